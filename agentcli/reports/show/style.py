"""Colours and marks that mean the same in every view, and texts made harmless."""

from rich.text import Text

from agentcli.records.faults import printable
from agentcli.records.siblings import named_action
from agentcli.records.types import Outcome, Step, Validity

GAIN, LOSS, QUIET = "dodger_blue2", "dark_orange", "dim"
MARKS = {
    Outcome.SUCCESS: ("✓", "green"),
    Outcome.FAILURE: ("✗", "red"),
    Outcome.TRUNCATED: ("▪", "red"),
    Outcome.ERRORED: ("!", "magenta"),
}
"""Mark and colour of an outcome."""
BARS = "▁▂▃▄▅▆▇█"


def one_line(text: str) -> str:
    """A text of a world or model on one line, whatever it holds."""
    return printable(" ".join(text.split()))


def lines(text: str) -> list[str]:
    """The lines of such a text."""
    return [printable(line.expandtabs(4)) for line in text.splitlines()]


def advantage(value: float | None) -> Text:
    """An advantage in seven columns: blue for a gain, orange for a loss, "-" for none."""
    if value is None:
        return Text(f"{'-':>7}", style=QUIET)
    style = QUIET
    if value > 0:
        style = GAIN
    elif value < 0:
        style = LOSS
    return Text(f"{value:+7.2f}", style=style)


def share_style(success: int, whole: int) -> str:
    """Green where all succeed, red where none does, else yellow."""
    if success == whole:
        return "green"
    if success == 0:
        return "red"
    return "yellow"


def action(step: Step) -> Text:
    """The action of a step, or what came in the place of one."""
    text = Text()
    if step.tag is not None:
        text.append(f"[{one_line(step.tag)}] ", style="cyan")
    if step.error is not None:
        return text.append(f"errored: {one_line(step.error)}", style="magenta")
    if step.validity is Validity.MALFORMED:
        return text.append(f"malformed: {one_line(step.response)}", style="yellow")
    moves = named_action(step).splitlines()
    words = " | ".join(map(one_line, moves))
    if step.validity is Validity.INADMISSIBLE:
        return text.append(f"{words} (inadmissible)", style="yellow")
    return text.append(words, style="bold")


def sparkline(shares: list[float]) -> str:
    """One character for each share, from ▁ for 0 to █ for 1."""
    line = ""
    for share in shares:
        height = round(share * (len(BARS) - 1))
        line += BARS[height]
    return line
