"""credit compare: what several methods say of the same trees. Reads, and writes
nothing.

A method is taken from RUN/credit where the manifest says that the file there was
computed from exactly these trees, and otherwise computed with its defaults. The answer
says which. The trees are read twice: once for the numbers, once for the texts of the
few steps that are listed.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from agentcli.credit.compare import Comparison
from agentcli.credit.registry import changed, make, method_names
from agentcli.errors import DataError, UsageError
from agentcli.records.faults import shown
from agentcli.records.files import read_numbered, sha256_file
from agentcli.records.runs import RunDirectory
from agentcli.records.trees import validate_credit, validate_tree
from agentcli.records.types import Credit, Tree
from agentcli.stages.progress import Progress

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
    run: Path, names: Sequence[str], progress: Progress, most: int = MOST
) -> dict[str, Any]:
    """`steps`, `kept` (of which the figures are), and rows of `methods`, `agreement`
    and `disagreements` (credit.compare).

    `names`: methods; without any, those whose credit RUN holds. Credit of other trees
    is not read, which is noted. Raises UsageError for fewer than two or one named
    twice, and DataError for damaged trees, or credit that does not belong to them.
    """
    directory = RunDirectory(run)
    trees = directory.existing_trees()
    names = list(names) or _held(run)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{twice} is named twice; name each method once")
    for name in names:
        make({"method": name})
    if len(names) < 2:
        raise UsageError(
            f"nothing to compare in {run}; name two methods, for instance: agentcli "
            f"credit compare {run} grpo carl"
        )
    sources = _sources(directory, trees, names)
    takers = [_taker(source) for source in sources]
    found = Comparison(names)
    progress.start("compare", None)
    for line, tree in read_numbered(trees, Tree):
        place = f"{trees}:{line}"
        validate_tree(tree, place)
        found.add(line, tree, [take(tree, place) for take in takers])
        progress.advance()
    progress.stop()
    for take in takers:
        if isinstance(take, _Reader):
            take.end(trees)
    if found.kept == 0:
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
    return {
        "steps": found.steps,
        "kept": found.kept,
        "methods": [
            {**row, "file": source.file, "settings": source.settings}
            for row, source in zip(found.methods(), sources, strict=True)
        ],
        "agreement": found.agreement(),
        "disagreements": _with_texts(trees, found.disagreements(most)),
    }


def _held(run: Path) -> list[str]:
    """The methods whose credit is there. Raises DataError for a file that is no
    method's.
    """
    files = sorted((run / "credit").glob("*.jsonl"))
    for file in files:
        if file.stem not in method_names():
            raise DataError(
                f"{file}: {shown(file.stem)} is no credit method; move it away, or "
                "name the methods to compare"
            )
    return [file.stem for file in files]


def _sources(
    directory: RunDirectory, trees: Path, names: Sequence[str]
) -> list[Source]:
    """A file whose manifest entry names these trees' hash, else nothing."""
    stages = directory.load_manifest().stages
    recorded = {
        name: stages[f"credit/{name}"] for name in names if f"credit/{name}" in stages
    }
    sha256 = sha256_file(trees) if recorded else None
    found = []
    for name in names:
        file, record, settings = (
            directory.credit(name),
            recorded.get(name),
            {"method": name},
        )
        place = str(file) if file.exists() else None
        current = (
            place is not None
            and record is not None
            and sha256 in record.inputs.values()
        )
        if current and record is not None:
            settings |= record.settings.get("credit", {})
        read, stale = (place, None) if current else (None, place)
        found.append(
            Source(
                method=name, file=read, stale=stale, settings=changed(make(settings)[2])
            )
        )
    return found


def _taker(source: Source) -> NextCredit:
    if source.file is not None:
        return _Reader(Path(source.file))
    _, assign, own = make({"method": source.method})

    def compute(tree: Tree, place: str) -> Credit:
        try:
            return assign(tree, own)
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


class _Text(msgspec.Struct):
    """Of a step only what is listed; the rest is skipped while decoding."""

    action: str | None
    moves: list[dict[str, Any]] = []


class _Task(msgspec.Struct):
    id: str
    kind: str


class _Texts(msgspec.Struct):
    task: _Task
    steps: list[_Text]


def _with_texts(trees: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with task, kind and action."""
    owed = {row["line"] for row in rows}
    texts: dict[int, _Texts] = {}
    if owed:
        for line, tree in read_numbered(trees, _Texts):
            if line in owed:
                texts[line] = tree
            if line >= max(owed):
                break
    found = []
    for row in rows:
        tree = texts[row["line"]]
        step = tree.steps[row["step"]]
        action = (
            ", ".join(f"{move['copy']}: {move['action']}" for move in step.moves)
            if step.moves
            else step.action
        )
        found.append(
            {"task": tree.task.id, "kind": tree.task.kind, **row, "action": action}
        )
    return found
