"""Tool calls as tables: how often each tool is called, and the steps of one tree."""

from collections.abc import Iterator, Sequence

from agentcli.evaluation.calls import CallShares
from agentcli.records.calls import read_call
from agentcli.records.types import Step
from agentcli.reports.blocks import Blocks
from agentcli.reports.show.style import one_line
from agentcli.reports.show.trees import ShownTree
from agentcli.reports.tables import percent

LONGEST_THOUGHT = 60
"""Characters of a thought that are shown."""


def shares_table(file: str, shares: Sequence[CallShares]) -> Blocks:
    """The share of each tool at every step, in percent (Rare-tool Figure 5)."""
    together, *steps = shares
    columns = ["all", *(f"step {one.step}" for one in steps)]
    table = Blocks(f"calls in {file}, in %", ["tool"], columns)
    for name in together.calls:
        cells = []
        for one in shares:
            total = sum(one.calls.values())
            cells.append(percent(one.calls.get(name, 0) / max(1, total)))
        table.add([name, *cells])
    table.add(
        ["entropy, nats", *(f"{one.entropy:.2f}" for one in shares)], style="bold"
    )
    table.add(["trajectories", *(str(one.trajectories) for one in shares)])
    return table


def steps_table(shown: ShownTree) -> Blocks:
    """The calls of one tree with what the judge said of them (Rare-tool Table 1)."""
    title = f"{shown.place}  {shown.tree.task.id}"
    table = Blocks(
        title,
        ["thought", "tool", "query"],
        ["step", "LINE:STEP", "chosen", "best", "process ok"],
    )
    places: dict[int | None, int] = {None: 0}
    for step in shown.tree.steps:
        # Counted from 1, as in the table of a whole run.
        place = places[step.parent] + 1
        places[step.id] = place
        name = f"{shown.line}:{step.id}"
        table.add([*_words(step), str(place), name, *_judgement(step)])
    return table


def _words(step: Step) -> Iterator[str]:
    """Thought, tool and query."""
    # The text of the first tag; a response without tags has none.
    opened = step.response.partition(">")[2]
    thought = one_line(opened.partition("</")[0].strip())
    if len(thought) > LONGEST_THOUGHT:
        thought = f"{thought[:LONGEST_THOUGHT]}..."
    call = read_call(step.action or "")
    yield thought
    yield call.name if call else "-"
    yield call.argument if call else step.action or "-"


def _judgement(step: Step) -> Iterator[str]:
    """What the judge said of the call."""
    for name in ("chosen", "best"):
        score = step.notes.get(name)
        yield "-" if score is None else f"{score:.1f}"
    sound = step.notes.get("process_ok")
    yield "-" if sound is None else ("yes" if sound else "no")
