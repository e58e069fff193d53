"""A page: its index, and blocks of trees with their credit, accounts and graphs.

It is written once, or again whenever its runs have changed.
"""

import base64
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from agentcli.analysis import compare_credit
from agentcli.analysis.compare import compare
from agentcli.analysis.page.overview import PageRun, page_run, shown_path
from agentcli.analysis.page.texts import TextTable, token_ends_of, visible
from agentcli.analysis.page.trees import (
    MethodColumn,
    PlacedGraph,
    TreeLine,
    method_column,
    page_tree,
    placed_graph,
    tree_line,
)
from agentcli.credit.compare import Comparison, CreditComparison
from agentcli.credit.export import graph_of
from agentcli.credit.registry import Explainer, explainer
from agentcli.errors import AgentCliError, UsageError, word_of
from agentcli.evaluation.compare import ComparedEvaluation
from agentcli.evaluation.episodes import ENDINGS
from agentcli.evaluation.record import EvaluationSummary
from agentcli.records.files import read_json
from agentcli.records.pictures import folder_beside, read_picture
from agentcli.records.regular import is_there
from agentcli.records.runs import RunDirectory, loop_folders
from agentcli.records.scratch import ScratchFolder
from agentcli.records.trees import read_trees
from agentcli.records.types import Tree
from agentcli.reports.page.document import BlockStore, Filling, write_page
from agentcli.reports.show.runs import evaluations, is_run, model_of
from agentcli.reports.standing import Progress, Standing
from agentcli.stages.trees import note_lost_trees


class Album:
    """Numbers the pictures of a page as they come."""

    def __init__(self, store: BlockStore) -> None:
        self._numbers: dict[str, int] = {}
        self._filling = Filling(store)
        self._firsts: list[int] = []
        """The number of the first picture of each block."""

    def numbers(self, folder: Path, names: Sequence[str]) -> list[int]:
        """The numbers of pictures; those that are new are read from `folder`.

        Raises DataError for one that is missing or damaged.
        """
        for name in names:
            if name not in self._numbers:
                self._add(name, read_picture(folder, name))
        return [self._numbers[name] for name in names]

    def _add(self, name: str, png: bytes) -> None:
        number = len(self._numbers)
        text = base64.b64encode(png).decode()
        _, place = self._filling.add(msgspec.json.encode(text))
        if place == 0:
            self._firsts.append(number)
        self._numbers[name] = number

    def blocks(self) -> list[tuple[int, str]]:
        """Every block by its name, after the number of its first picture."""
        self._filling.close()
        return list(zip(self._firsts, self._filling.names, strict=True))


class TreeSource(msgspec.Struct, kw_only=True, frozen=True):
    """One file of trees."""

    name: str
    """As the page shows it: rl/iteration_005, rl/evaluation/greedy."""
    run: Path
    trees: Path
    evaluation: str | None = None
    """The label of the evaluation that kept the trees."""

    @property
    def files(self) -> list[Path]:
        """What its part of the page is made of: trees, credit, and who was sampled."""
        directory = RunDirectory(self.run)
        if self.evaluation is not None:
            summary = directory.evaluation(self.evaluation).with_suffix(".json")
            return [self.trees, summary]
        return [self.trees, directory.manifest_path, *directory.credit_files]

    @property
    def model(self) -> str | None:
        """The model that they were sampled from, as the manifest names it."""
        if self.evaluation is not None:
            file = RunDirectory(self.run).evaluation(self.evaluation)
            summary = file.with_suffix(".json")
            # Trees lie there before their evaluation has ended.
            if not is_there(summary):
                return None
            return read_json(summary, EvaluationSummary).model
        rollout = RunDirectory(self.run).finished("rollout")
        return None if rollout is None else model_of(rollout)


def short_names(places: Sequence[Path]) -> dict[Path, str]:
    """A name for every run: the end of its path, as long as it must be to be unlike.

    Raises UsageError for a run that is named twice.
    """
    whole = {place: place.resolve().parts for place in places}
    if len(set(whole.values())) < len(places):
        raise UsageError(f"a run is named twice among {', '.join(map(str, places))}")
    lengths = dict.fromkeys(places, 1)
    while True:
        names = {place: "/".join(whole[place][-lengths[place] :]) for place in places}
        counts = Counter(names.values())
        alike = [place for place in places if counts[names[place]] > 1]
        if not alike:
            return {place: visible(name) for place, name in names.items()}
        for place in alike:
            lengths[place] += 1


def sources_of(place: Path, name: str) -> Iterator[TreeSource]:
    """The trees of a run: its own, those of its iterations, and of its evaluations."""
    yield from _held(place, name)
    for folder in loop_folders(place):
        yield from _held(folder, f"{name}/{folder.name}")


def _held(run: Path, name: str) -> Iterator[TreeSource]:
    directory = RunDirectory(run)
    if is_there(directory.trees):
        yield TreeSource(name=name, run=run, trees=directory.trees)
    for file in sorted((run / "evaluation/trees").glob("*.jsonl")):
        label = file.stem
        yield TreeSource(
            name=f"{name}/evaluation/{visible(label)}",
            run=run,
            trees=file,
            evaluation=label,
        )


def refuse_others(places: Sequence[Path]) -> None:
    """Raises UsageError for a folder that is not a run."""
    for place in places:
        if not (is_run(place) or any(sources_of(place, place.name))):
            raise UsageError(
                f"{place}: is not a run; `agentcli show` lists those that there are"
            )


MOST_ACCOUNTS = 5_000
"""Steps of a tree with accounts: each lists its group, which may be the whole tree."""

PAGE_VERSION = 1


class PageSource(msgspec.Struct, kw_only=True):
    """One file of trees."""

    name: str
    run: str
    """The name of the run that it belongs to."""
    path: str
    """The run directory as a word of a command."""
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


Stamps = dict[Path, tuple[int, int]]
"""Size and time of files."""
KeptSources = dict[tuple[str, frozenset[tuple[Path, tuple[int, int]]]], PackedSource]
"""By name, and the stamps of the files that it was packed from."""


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
            # A checksum would read every file again at each pass.
            key = (source.name, frozenset(_stamps(source.files).items()))
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
            path=word_of(shown_path(str(source.run))),
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
            names = names or compare_credit.held_methods(source.run)
            self.sources = compare_credit.credit_sources(directory, source.trees, names)
            compare_credit.note_stale(self.sources, progress)
        else:
            # Credit lies beside the trees of a rollout only.
            self.sources = [compare_credit.computed(name) for name in names]
        self._takers = [compare_credit.taker(one) for one in self.sources]
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
        compare_credit.refuse_leftover(self._takers, self._trees)
        if len(self.sources) < 2 or not self._comparison.kept:
            return None
        answer = compare_credit.answer_of(self._comparison, self.sources, self._trees)
        for step in answer.disagreements:
            step.task, step.kind = visible(step.task), visible(step.kind)
            step.action = None if step.action is None else visible(step.action)
        return answer


def _graph(
    tree: Tree, sources: Sequence[compare_credit.CreditSource], texts: TextTable
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


PAUSE_SECONDS = 5.0
"""Seconds between two checks of the runs for changes."""
WATCHED = (
    "manifest.json",
    "*.jsonl*",
    "credit/*.jsonl",
    "evaluation/*.json",
    "evaluation/trees/*",
)
"""The files whose change makes a page out of date."""


def write_pages(
    runs: Sequence[Path],
    options: PageOptions,
    page: Path,
    progress: Progress,
    *,
    watch: bool,
) -> Iterator[Path]:
    """Writes the page and yields its path; with `watch` again after each change.

    It then ends when no loop is running. Trees that are packed already are not read
    again. Raises DataError and WriteError.
    """
    kept: KeptSources = {}
    with ScratchFolder() as folder:
        store = BlockStore(Path(folder))
        album = Album(store)
        while True:
            # Taken before the runs are read: a change meanwhile is not missed.
            stamps = _stamps(_watched(runs))
            over = not watch or not any(map(_goes_on, runs))
            index = packed_index(runs, options, store, progress, kept, album)
            name = store.add(msgspec.json.encode(index))
            blocks = index.blocks + [block for _, block in index.album]
            write_page(page, index.title, name, store, blocks)
            yield page
            if over:
                return
            # One line says that the page was written again.
            progress = Progress()
            while _stamps(_watched(runs)) == stamps:
                time.sleep(PAUSE_SECONDS)


def _goes_on(run: Path) -> bool:
    """Whether a loop was started in this run and has not ended."""
    begun = is_there(run / "settings/run.json") or bool(loop_folders(run))
    return begun and RunDirectory(run).finished("run") is None


def _watched(runs: Sequence[Path]) -> Iterator[Path]:
    """Every file that a page is made of."""
    for run in runs:
        for folder in (run, *loop_folders(run)):
            for pattern in WATCHED:
                yield from folder.glob(pattern)


def _stamps(files: Iterable[Path]) -> Stamps:
    """Size and time of the files that there are."""
    stamps: Stamps = {}
    for file in files:
        # Parts of files come and go.
        with suppress(FileNotFoundError):
            status = file.stat()
            stamps[file] = (status.st_size, status.st_mtime_ns)
    return stamps
