"""One trajectory as plain text, for places that show no colours: trackers."""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from agentcli.records.trees import paths
from agentcli.records.types import Outcome, Step, Tree
from agentcli.reports.show.style import action, one_line


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
