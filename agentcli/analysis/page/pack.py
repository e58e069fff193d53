"""A page: its index, and blocks of trees with their credit, accounts and graphs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from agentcli.analysis.compare import compare
from agentcli.analysis.compare_credit import answer_of
from agentcli.analysis.credit_sources import (
    CreditSource,
    computed,
    credit_sources,
    held_methods,
    note_stale,
    refuse_leftover,
    taker,
)
from agentcli.analysis.page.accounts import MethodColumn, method_column
from agentcli.analysis.page.album import Album
from agentcli.analysis.page.graphs import PlacedGraph, placed_graph
from agentcli.analysis.page.overview import PageRun, page_run, shown_path
from agentcli.analysis.page.sources import TreeSource, short_names, sources_of
from agentcli.analysis.page.texts import TextTable, visible
from agentcli.analysis.page.tokens import token_ends_of
from agentcli.analysis.page.trees import TreeLine, page_tree, tree_line
from agentcli.credit.compare import Comparison, CreditComparison
from agentcli.credit.export import graph_of
from agentcli.credit.registry import Explainer, explainer
from agentcli.errors import AgentCliError, UsageError
from agentcli.evaluation.compare import ComparedEvaluation
from agentcli.evaluation.episodes import ENDINGS
from agentcli.records.pictures import folder_beside
from agentcli.records.runs import RunDirectory
from agentcli.records.trees import read_trees
from agentcli.records.types import Tree
from agentcli.reports.page.blocks import BlockStore, Filling
from agentcli.reports.show.runs import evaluations
from agentcli.reports.standing import Progress, Standing
from agentcli.stages.trees import note_lost_trees

MOST_ACCOUNTS = 5_000
"""Steps of a tree with accounts: each lists its group, which may be the whole tree."""

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


class PageOptions(msgspec.Struct, kw_only=True):
    """What the page should contain."""

    methods: list[str]
    """Credit methods; empty: those whose credit a run holds."""
    accounts: bool = True
    """Whether every advantage comes with its account."""


class PackedSource(msgspec.Struct, kw_only=True):
    """One file of trees, packed."""

    source: PageSource
    lines: list[TreeLine]
    """`block` counts from the first of `blocks`."""
    blocks: list[str]


KeptSources = dict[tuple[str, int, int], PackedSource]
"""By name, size and time of the file."""


def packed_index(
    places: Sequence[Path],
    options: PageOptions,
    store: BlockStore,
    progress: Progress,
    kept: KeptSources,
    album: Album,
) -> PageIndex:
    """The index of a page of these runs; their trees are packed into the `store`.

    `kept` and `album` contain what was packed before: writing a page again packs only
    the files that have changed.
    """
    names = short_names(places)
    notes: list[str] = []
    title = ", ".join(names.values())
    index = PageIndex(
        title=title if len(title) < 60 else f"{len(names)} runs",
        runs=[page_run(place, name) for place, name in names.items()],
        sources=[],
        trees=[],
        blocks=[],
        album=[],
        comparisons=comparisons_of(names, notes),
        notes=notes,
    )
    progress.start(Standing("trees", None))
    for place, name in names.items():
        for source in sources_of(place, name):
            stamp = source.trees.stat()
            key = (source.name, stamp.st_size, stamp.st_mtime_ns)
            if key not in kept:
                kept[key] = _packed(source, name, options, store, album, progress)
            _append(index, kept[key])
    index.album = album.blocks()
    progress.stop()
    return index


def _append(index: PageIndex, packed: PackedSource) -> None:
    """Adds a packed file, whose places are then those of the whole page."""
    for line in packed.lines:
        moved = msgspec.structs.replace(
            line,
            source=len(index.sources),
            block=line.block + len(index.blocks),
        )
        index.trees.append(moved)
    index.sources.append(packed.source)
    index.blocks += packed.blocks


def _packed(
    source: TreeSource,
    run: str,
    options: PageOptions,
    store: BlockStore,
    album: Album,
    progress: Progress,
) -> PackedSource:
    credit = _CreditColumns(source, options, progress)
    token_ends = token_ends_of(source.model, source.run)
    endings: Counter[str] = Counter()
    filling = Filling(store)
    numbers = partial(album.numbers, folder_beside(source.trees))
    lines: list[TreeLine] = []
    for line, tree in read_trees(source.trees):
        texts = TextTable()
        columns = credit.columns(line, tree, texts)
        graph = _graph(tree, credit.sources, texts)
        row = tree_line(0, line, tree, columns)
        page = page_tree(tree, texts, columns, graph, token_ends, numbers)
        row.block, row.place = filling.add(msgspec.json.encode(page))
        endings.update(row.endings)
        lines.append(row)
        progress.advance()
    filling.close()
    if source.evaluation is None:
        note_lost_trees(source.trees, len(lines), progress)
    return PackedSource(
        source=PageSource(
            name=source.name,
            run=run,
            path=shown_path(str(source.run)),
            evaluation=source.evaluation,
            methods=[one.method for one in credit.sources],
            endings=list(endings.items()),
            agreement=credit.agreement(),
        ),
        lines=lines,
        blocks=filling.names,
    )


class _CreditColumns:
    """The methods of one file of trees, and how far they agree."""

    def __init__(
        self, source: TreeSource, options: PageOptions, progress: Progress
    ) -> None:
        self._trees = source.trees
        directory = RunDirectory(source.run)
        names = options.methods
        if source.evaluation is None:
            names = names or held_methods(source.run)
            self.sources = credit_sources(directory, source.trees, names)
            note_stale(self.sources, progress)
        else:
            # Credit lies beside the trees of a rollout only.
            self.sources = [computed(name) for name in names]
        self._takers = [taker(one) for one in self.sources]
        self._explainers: list[Explainer | None] = [None for _ in self.sources]
        if options.accounts:
            self._explainers = [explainer(one.method) for one in self.sources]
        self._comparison = Comparison(names)

    def columns(self, line: int, tree: Tree, texts: TextTable) -> list[MethodColumn]:
        """The credit of one tree, method by method."""
        place = f"{self._trees}:{line}"
        if any(self._explainers) and len(tree.steps) > MOST_ACCOUNTS:
            raise UsageError(
                f"{place}: {len(tree.steps)} steps are too many to account for each "
                "advantage; leave that out with --no-accounts"
            )
        credits = [take(tree, place) for take in self._takers]
        self._comparison.add(line, tree, credits)
        columns = []
        for source, credit, how in zip(
            self.sources, credits, self._explainers, strict=True
        ):
            try:
                column = method_column(tree, credit, source.switches, how, texts)
            except AgentCliError as error:
                # A file without checksums may have been changed.
                origin = place if source.file is None else f"{source.file}: of {place}"
                raise type(error)(f"{origin}: {error}") from error
            column.method = source.method
            columns.append(column)
        return columns

    def agreement(self) -> CreditComparison | None:
        """How far the methods agree. Raises DataError where a file holds too much."""
        refuse_leftover(self._takers, self._trees)
        if len(self.sources) < 2 or not self._comparison.kept:
            return None
        answer = answer_of(self._comparison, self.sources, self._trees)
        for step in answer.disagreements:
            step.task, step.kind = visible(step.task), visible(step.kind)
            step.action = None if step.action is None else visible(step.action)
        return answer


def _graph(
    tree: Tree, sources: Sequence[CreditSource], texts: TextTable
) -> PlacedGraph | None:
    """The state graph as rewardflow draws it: by its settings, where it gave credit."""
    if not tree.steps or not all(step.state for step in tree.steps):
        return None
    switches = [one.switches for one in sources if one.method == "rewardflow"]
    settings = switches[0] if switches else msgspec.Struct()
    return placed_graph(tree, graph_of(tree, settings), texts)


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
