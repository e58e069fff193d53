"""The index of a page: everything but the trees, which lie in blocks of their own."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from agentcli.analysis.compare import compare
from agentcli.analysis.page.endings import ENDINGS
from agentcli.analysis.page.overview import PageRun
from agentcli.analysis.page.trees import TreeLine
from agentcli.credit.compare import CreditComparison
from agentcli.errors import AgentCliError
from agentcli.evaluation.compare import PairedTests
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


class ComparedRun(msgspec.Struct, kw_only=True):
    """One run's evaluation against the first run's."""

    run: str
    against: PairedTests
    kinds: list[tuple[str, PairedTests]]


class PageComparison(msgspec.Struct, kw_only=True):
    """The evaluations of one label, on the same tasks."""

    label: str
    first: str
    others: list[ComparedRun]


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
    comparisons: list[PageComparison]
    notes: list[str]
    """What is left out, and why."""


def comparisons_of(names: Mapping[Path, str], notes: list[str]) -> list[PageComparison]:
    """The evaluations that several runs share, tested in pairs.

    Where they cannot be compared, a note says why.
    """
    places = [place for place in names if evaluations(place)]
    if len(places) < 2:
        return []
    by_path = {str(place): names[place] for place in places}
    try:
        comparison = compare(places, [], Progress())
    except AgentCliError as error:
        notes.append(f"evaluations are not compared: {error}")
        return []
    found = []
    for label, evaluated in comparison.evaluations.items():
        others = []
        for path, results in evaluated.items():
            if not isinstance(results.against, PairedTests):
                continue
            kinds = []
            for kind, of_kind in results.kinds.items():
                if isinstance(of_kind.against, PairedTests):
                    kinds.append((kind, of_kind.against))
            others.append(
                ComparedRun(run=by_path[path], against=results.against, kinds=kinds)
            )
        first = by_path[comparison.first]
        found.append(PageComparison(label=label, first=first, others=others))
    return found
