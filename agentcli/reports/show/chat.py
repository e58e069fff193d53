"""One trajectory as a chat or as plain text, and everything about one step."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from rich.console import RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

from agentcli.records.pictures import described, folder_beside
from agentcli.records.trees import paths
from agentcli.records.types import Outcome, Pictures, Step, Tree, Validity
from agentcli.reports.show.style import MARKS, QUIET, action, advantage, lines, one_line
from agentcli.reports.show.trees import ShownTree

INDENT = 2


def chat(shown: ShownTree, steps: list[Step], number: int) -> Iterator[RenderableType]:
    """The observations and responses of a trajectory, in turn.

    steps: from the root to the leaf. number: of the trajectory in its tree, from 1.
    """
    yield Text(one_line(shown.tree.instruction), style="bold")
    yield Text(f"{one_line(shown.place)}  trajectory {number}", style=QUIET)
    children = Counter(step.parent for step in shown.tree.steps)
    for step in steps:
        yield _heading(_turn(shown, step, children[step.parent]))
        yield _indented(step.observation, style=QUIET)
        yield from _pictures(shown, step.pictures)
        yield _indented(step.response or "(no response)", style="")
        if more := _beyond_response(step):
            yield Padding(more, (0, 0, 0, INDENT))
    last = steps[-1]
    yield Rule(style=QUIET)
    yield _indented(last.next_observation, style=QUIET)
    yield from _pictures(shown, last.next_pictures)
    assert last.outcome is not None
    mark, style = MARKS[last.outcome]
    yield Text(f"{mark} {last.outcome} after {len(steps)} steps", style=style)


def _beyond_response(step: Step) -> Text:
    """The action, unless the response above shows it; then only what is wrong with it."""
    if step.error is None and step.response:
        if step.validity is Validity.MALFORMED:
            return Text(Validity.MALFORMED, style="yellow")
        if step.action and step.action in step.response:
            valid = step.validity is Validity.VALID
            return Text("" if valid else step.validity, style="yellow")
    return action(step)


def step_details(shown: ShownTree, step: Step) -> Iterator[RenderableType]:
    """Everything about one step: prompt, response, numbers, credit, states."""
    yield Text(f"{one_line(shown.place)}  step {step.id}", style=QUIET)
    if step.system:
        yield _heading("system")
        yield _indented(step.system, style="")
    if step.tools:
        yield _heading("tools")
        yield _indented(step.tools, style="")
    asked = "what the tool returned" if step.role == "tool" else "prompt"
    if step.continues:
        asked = f"{asked}, after step {step.parent}"
    for title, text in ((asked, step.prompt), ("response", step.response)):
        yield _heading(title)
        yield _indented(text or "(none)", style="")
        if title == asked:
            yield from _pictures(shown, step.pictures)
    yield _heading("what came of it")
    yield Padding(action(step), (0, 0, 0, INDENT))
    yield _indented(step.next_observation, style=QUIET)
    yield from _pictures(shown, step.next_pictures)
    yield _heading("numbers")
    for name, value in _numbers(step):
        yield Text(f"  {one_line(name):<18}{one_line(value)}")
    if shown.credit is not None:
        yield _heading(Text(f"credit by {one_line(shown.credit)}"))
        yield from _credit_rows(shown, step)


def _pictures(shown: ShownTree, names: Pictures) -> Iterator[RenderableType]:
    """The files of pictures, which open in any viewer."""
    folder = folder_beside(Path(shown.file))
    for name in names or ():
        yield _indented(described(folder, name), style=QUIET)


def _heading(title: str | Text) -> Rule:
    return Rule(title, style=QUIET, align="left")


def _turn(shown: ShownTree, step: Step, siblings: int) -> Text:
    """The number of a step, its advantage, and how many were tried at its state."""
    text = Text(f"step {step.id}")
    if shown.credit is not None:
        text.append_text(advantage(shown.advantage(step.id)))
    if siblings > 1:
        text.append(f"  one of {siblings} tried here", style="cyan")
    return text


def _indented(text: str, *, style: str) -> Padding:
    # A Text, since Rich would take brackets in a plain string for markup.
    return Padding(Text("\n".join(lines(text)), style=style), (0, 0, 0, INDENT))


def _numbers(step: Step) -> Iterator[tuple[str, str]]:
    yield (
        "parent",
        "none: the initial state" if step.parent is None else str(step.parent),
    )
    yield "validity", step.validity
    yield "outcome", step.outcome or "none: not a leaf"
    yield "reward", f"{step.reward:g}"
    if step.logprobs:
        surprise = [-value for value in step.logprobs]
        mean = sum(surprise) / len(surprise)
        yield "tokens", f"{len(surprise)}, stopped by {step.stop}"
        yield "-log p a token", f"{mean:.3f}, at most {max(surprise):.3f}"
        yield "temperature", f"{step.temperature:g}"
    if step.value is not None:
        yield "value", f"{step.value:g}"
    # Without a model that scores it is unset, and not None.
    if isinstance(step.score, float):
        yield "score", f"{step.score:g}"
    for name, note in step.notes.items():
        yield name, str(note)
    yield "state", f"{step.state} -> {step.next_state}"
    if step.canonical is not None:
        yield "paper's state", f"{step.canonical} -> {step.next_canonical}"
    if step.admissible:
        yield "admissible", ", ".join(step.admissible)


def _credit_rows(shown: ShownTree, step: Step) -> Iterator[RenderableType]:
    for row in shown.rows.get(step.id, []):
        text = Text("  ").append_text(advantage(row.advantage))
        if row.masked is not None:
            text.append(f"  masked: {one_line(row.masked)}")
        for name, value in row.parts.items():
            text.append(f"  {one_line(name)} {value:+.4g}", style=QUIET)
        text.append(f"  weight {row.weight:g}", style=QUIET)
        yield text


class SampledText(NamedTuple):
    """A trajectory to read."""

    task: str
    kind: str
    outcome: str
    text: str


def sampled_texts(trees: Iterator[Tree], count: int) -> list[SampledText]:
    """The first trajectory of each of the first `count` trees."""
    return [_text(tree, paths(tree)[0]) for tree in islice(trees, count)]


def _text(tree: Tree, steps: list[Step]) -> SampledText:
    outcome = steps[-1].outcome or Outcome.ERRORED
    rows = [one_line(tree.instruction), f"   {one_line(steps[0].observation)}"]
    for number, step in enumerate(steps, 1):
        rows.append(f"{number} {action(step).plain}")
        rows.append(f"   -> {one_line(step.next_observation)}")
    return SampledText(
        one_line(tree.task.id), one_line(tree.task.kind), outcome, "\n".join(rows)
    )
