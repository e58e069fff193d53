"""The index of a page: everything except the trees, which are in separate blocks."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from agentcli.analysis.compare import compare
from agentcli.analysis.page.overview import PageRun
from agentcli.analysis.page.texts import visible
from agentcli.analysis.page.trees import TreeLine
from agentcli.credit.compare import CreditComparison
from agentcli.errors import AgentCliError
from agentcli.evaluation.compare import ComparedEvaluation
from agentcli.evaluation.episodes import ENDINGS
from agentcli.reports.show.runs import evaluations
from agentcli.reports.standing import Progress

PAGE_VERSION = 1


class PageSource(msgspec.Struct, kw_only=True):
    """One file of trees."""

    name: str
    run: str
    """The name of the run that it belongs to."""
    path: str
    """The run directory as a command names it."""
    evaluation: str | None
    methods: list[str]
    endings: list[tuple[str, int]]
    """How many trajectories ended in each way."""
    agreement: CreditComparison | None
    """None with fewer than two methods."""


class PageIndex(msgspec.Struct, kw_only=True):
    """What the page reads when it is opened."""

    version: int = PAGE_VERSION
    title: str
    endings: Sequence[str] = ENDINGS
    runs: list[PageRun]
    sources: list[PageSource]
    trees: list[TreeLine]
    blocks: list[str]
    """Names of the blocks that hold the trees."""
    album: list[tuple[int, str]]
    """The blocks with pictures, each after the number of its first picture."""
    comparisons: dict[str, dict[str, ComparedEvaluation]]
    """By label and run; the first run is what the others are compared with."""
    notes: list[str]
    """What is left out, and why."""


def comparisons_of(
    names: Mapping[Path, str], notes: list[str]
) -> dict[str, dict[str, ComparedEvaluation]]:
    """The evaluations that several runs share, tested in pairs.

    Where they cannot be compared, a note says why.
    """
    places = [place for place in names if evaluations(place)]
    if len(places) < 2:
        return {}
    try:
        comparison = compare(places, [], Progress())
    except AgentCliError as error:
        reason = visible(str(error))
        for place in places:
            reason = reason.replace(str(place), names[place])
        notes.append(f"evaluations are not compared: {reason}")
        return {}
    compared = {}
    for label, by_path in comparison.evaluations.items():
        compared[label] = {names[Path(path)]: one for path, one in by_path.items()}
    return compared
