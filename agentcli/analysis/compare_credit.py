"""credit compare: several methods on the same trees. Nothing is written.

A method is taken from RUN/credit where the manifest says that the file there was
computed from exactly these trees, and otherwise computed with its defaults. The answer
says which. The trees are read twice: once for the numbers, once for the texts of the
few steps that are listed.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from agentcli.credit.compare import Comparison, CreditComparison, Disagreement
from agentcli.credit.registry import changed, make, method_names
from agentcli.errors import DataError, UsageError
from agentcli.records.faults import shown
from agentcli.records.files import read_numbered, sha256_file
from agentcli.records.regular import is_there
from agentcli.records.runs import RunDirectory, credit_name
from agentcli.records.trees import validate_credit
from agentcli.records.types import Credit, Tree
from agentcli.reports.standing import Progress, Standing
from agentcli.stages.trees import checked_trees

MOST = 10
"""Steps that are listed."""
NextCredit = Callable[[Tree, str], Credit]
"""The credit of the next tree; its place in the file is for messages."""


class Source(msgspec.Struct, kw_only=True):
    """Where a method's advantages came from."""

    method: str
    file: str | None
    """None: computed here."""
    stale: str | None
    """A file of the method that is of other trees."""
    settings: dict[str, Any]
    """Switches other than the method's defaults."""


def compare_credit(
    run: Path,
    names: Sequence[str],
    progress: Progress,
    most: int = MOST,
) -> CreditComparison:
    """Compares the methods `names`; without any, those whose credit RUN holds.

    Credit of other trees is not read, which is noted. Raises UsageError for fewer than
    two methods or one named twice, and DataError for damaged trees, or credit that does
    not belong to them.
    """
    directory = RunDirectory(run)
    trees = directory.existing_trees()
    names = list(names) or _held(run)
    _check_names(run, names)
    sources = _sources(directory, trees, names)
    takers = [_taker(source) for source in sources]
    comparison = Comparison(names)
    progress.start(Standing("compare", None))
    for line, tree in checked_trees(trees):
        place = f"{trees}:{line}"
        comparison.add(line, tree, [take(tree, place) for take in takers])
        progress.advance()
    progress.stop()
    for take in takers:
        if isinstance(take, _Reader):
            take.end(trees)
    if comparison.kept == 0:
        raise DataError(
            f"{trees}: holds no steps; grow some trees with: agentcli rollout "
            f"--resume -o {run}"
        )
    for source in sources:
        if source.stale is not None:
            progress.note(
                f"{source.stale} was not computed from these trees; {source.method} "
                "is computed now with its defaults"
            )
    answer = comparison.answer(most)
    for method, source in zip(answer.methods, sources, strict=True):
        method.file = source.file
        method.settings = source.settings
    _add_texts(trees, answer.disagreements)
    return answer


def _check_names(run: Path, names: Sequence[str]) -> None:
    """Raises UsageError for an unknown method, one named twice, and fewer than two."""
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{name} is named twice; name each method once")
        make({"method": name})
    if len(names) < 2:
        raise UsageError(
            f"nothing to compare in {run}; name two methods, for instance: agentcli "
            f"credit compare {run} grpo carl"
        )


def _held(run: Path) -> list[str]:
    """The methods whose credit RUN holds.

    Raises DataError for a file that no method is named after.
    """
    files = sorted((run / "credit").glob("*.jsonl"))
    for file in files:
        if file.stem not in method_names():
            raise DataError(
                f"{file}: {shown(file.stem)} is not a credit method; move it away, or "
                "name the methods to compare"
            )
    return [file.stem for file in files]


def _sources(
    directory: RunDirectory,
    trees: Path,
    names: Sequence[str],
) -> list[Source]:
    """Each method's file where it was computed from these trees, else none."""
    stages = directory.load_manifest().stages
    sha256 = sha256_file(trees) if stages else None
    sources = []
    for name in names:
        file = directory.credit(name)
        record = stages.get(f"credit/{credit_name(name)}")
        credit = {"method": name}
        fresh = stale = None
        if is_there(file) and record and sha256 in record.inputs.values():
            fresh = str(file)
            credit |= record.settings.get("credit", {})
        elif is_there(file):
            stale = str(file)
        settings = changed(make(credit)[2])
        sources.append(Source(method=name, file=fresh, stale=stale, settings=settings))
    return sources


def _taker(source: Source) -> NextCredit:
    if source.file is not None:
        return _Reader(Path(source.file))
    _, assign, switches = make({"method": source.method})

    def compute(tree: Tree, place: str) -> Credit:
        try:
            return assign(tree, switches)
        except DataError as error:
            raise DataError(f"{place}: {error}") from error

    return compute


class _Reader:
    """Reads a credit file tree by tree."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._records: Iterator[tuple[int, Credit]] = read_numbered(file, Credit)

    def __call__(self, tree: Tree, place: str) -> Credit:
        line, credit = next(self._records, (0, None))
        if credit is None:
            raise DataError(
                f"{self._file}: ends before {place}; run assign-credit again"
            )
        validate_credit(credit, tree, f"{self._file}:{line}")
        return credit

    def end(self, trees: Path) -> None:
        """Raises DataError where there is credit left when the trees have ended."""
        line, credit = next(self._records, (0, None))
        if credit is not None:
            raise DataError(
                f"{self._file}:{line}: holds more than {trees} has trees; run "
                "assign-credit again"
            )


class _MoveText(msgspec.Struct):
    """The part of a move that is listed."""

    copy: int
    action: str | None


class _StepText(msgspec.Struct):
    """The part of a step that is listed."""

    action: str | None
    moves: list[_MoveText] = []

    @property
    def text(self) -> str | None:
        """The action, or that of every copy."""
        if not self.moves:
            return self.action
        actions = [f"{move.copy}: {move.action}" for move in self.moves]
        return ", ".join(actions)


class _TaskText(msgspec.Struct):
    """The part of a task that is listed."""

    id: str
    kind: str


class _TreeText(msgspec.Struct):
    """The part of a tree that is listed."""

    task: _TaskText
    steps: list[_StepText]


def _add_texts(trees: Path, rows: list[Disagreement]) -> None:
    """Fills in task, kind and action."""
    # Few steps are listed: what follows their trees is not decoded.
    owed = {row.line for row in rows}
    texts: dict[int, _TreeText] = {}
    records = read_numbered(trees, _TreeText)
    while len(texts) < len(owed):
        line, tree = next(records)
        if line in owed:
            texts[line] = tree
    for row in rows:
        tree = texts[row.line]
        row.task = tree.task.id
        row.kind = tree.task.kind
        row.action = tree.steps[row.step].text
