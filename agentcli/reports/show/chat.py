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
    instruction = one_line(shown.tree.instruction)
    place = one_line(shown.place)
    yield Text(instruction, style="bold")
    yield Text(f"{place}  trajectory {number}", style=QUIET)
    children = Counter(step.parent for step in shown.tree.steps)
    for step in steps:
        title = Text(f"step {step.id}")
        if shown.credit is not None:
            value = shown.advantage(step.id)
            title.append_text(advantage(value))
        siblings = children[step.parent]
        if siblings > 1:
            title.append(f"  one of {siblings} tried here", style="cyan")
        yield _heading(title)
        yield _indented(step.observation, QUIET)
        yield from _pictures(shown, step.pictures)
        yield _indented(step.response or "(no response)")
        more = _beyond_response(step)
        if more:
            yield _indented(more)
    yield Rule(style=QUIET)
    yield from _came_back(shown, steps[-1])
    outcome = steps[-1].outcome
    assert outcome is not None
    mark, style = MARKS[outcome]
    yield Text(f"{mark} {outcome} after {len(steps)} steps", style=style)


def _beyond_response(step: Step) -> Text:
    """The action, unless the response above shows it; then only what is wrong with it."""
    is_shown = step.validity is Validity.MALFORMED
    if step.action:
        is_shown |= step.action in step.response
    if step.error is not None or not step.response or not is_shown:
        return action(step)
    if step.validity is Validity.VALID:
        return Text()
    return Text(step.validity, style="yellow")


def step_details(shown: ShownTree, step: Step) -> Iterator[RenderableType]:
    """Everything about one step: prompt, response, numbers, credit, states."""
    place = one_line(shown.place)
    yield Text(f"{place}  step {step.id}", style=QUIET)
    if step.system:
        yield _heading("system")
        yield _indented(step.system)
    if step.tools:
        yield _heading("tools")
        yield _indented(step.tools)
    asked = "what the tool returned" if step.role == "tool" else "prompt"
    if step.continues:
        asked = f"{asked}, after step {step.parent}"
    yield _heading(asked)
    yield _indented(step.prompt or "(none)")
    yield from _pictures(shown, step.pictures)
    yield _heading("response")
    yield _indented(step.response or "(none)")
    yield _heading("what came of it")
    yield _indented(action(step))
    yield from _came_back(shown, step)
    yield _heading("numbers")
    for name, value in _numbers(step):
        yield Text(f"  {one_line(name):<18}{one_line(value)}")
    if shown.credit is not None:
        title = Text(f"credit by {one_line(shown.credit)}")
        yield _heading(title)
        for row in shown.rows.get(step.id, []):
            text = Text("  ")
            text.append_text(advantage(row.advantage))
            if row.masked is not None:
                text.append(f"  masked: {one_line(row.masked)}")
            for name, part in row.parts.items():
                text.append(f"  {one_line(name)} {part:+.4g}", style=QUIET)
            text.append(f"  weight {row.weight:g}", style=QUIET)
            yield text


def _came_back(shown: ShownTree, step: Step) -> Iterator[RenderableType]:
    """The observation after a step."""
    yield _indented(step.next_observation, QUIET)
    yield from _pictures(shown, step.next_pictures)


def _pictures(shown: ShownTree, names: Pictures) -> Iterator[RenderableType]:
    """The files of pictures, which open in any viewer."""
    folder = folder_beside(Path(shown.file))
    for name in names or ():
        text = described(folder, name)
        yield _indented(text, QUIET)


def _heading(title: str | Text) -> Rule:
    return Rule(title, style=QUIET, align="left")


def _indented(text: str | Text, style: str = "") -> Padding:
    # A Text, since Rich would take brackets in a plain string for markup.
    if isinstance(text, str):
        text = Text("\n".join(lines(text)), style=style)
    return Padding(text, (0, 0, 0, INDENT))


def _numbers(step: Step) -> Iterator[tuple[str, str]]:
    parent = "none: the initial state"
    if step.parent is not None:
        parent = str(step.parent)
    yield "parent", parent
    yield "validity", step.validity
    yield "outcome", step.outcome or "none: not a leaf"
    yield "reward", f"{step.reward:g}"
    if step.logprobs:
        surprise = [-value for value in step.logprobs]
        number = len(surprise)
        mean = sum(surprise) / number
        most = max(surprise)
        yield "tokens", f"{number}, stopped by {step.stop}"
        yield "-log p a token", f"{mean:.3f}, at most {most:.3f}"
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


class SampledText(NamedTuple):
    """A trajectory to read."""

    task: str
    kind: str
    outcome: str
    text: str


def sampled_texts(trees: Iterator[Tree], count: int) -> list[SampledText]:
    """The first trajectory of each of the first `count` trees."""
    texts = []
    for tree in islice(trees, count):
        steps = paths(tree)[0]
        text = one_line(tree.instruction)
        text += f"\n   {one_line(steps[0].observation)}"
        for number, step in enumerate(steps, 1):
            text += f"\n{number} {action(step).plain}"
            text += f"\n   -> {one_line(step.next_observation)}"
        sampled = SampledText(
            task=one_line(tree.task.id),
            kind=one_line(tree.task.kind),
            outcome=steps[-1].outcome or Outcome.ERRORED,
            text=text,
        )
        texts.append(sampled)
    return texts
