"""credit compare: several methods on the same trees. Nothing is written.

A method is taken from RUN/credit where the manifest says that the file there was
computed from exactly these trees, and otherwise computed with its defaults. The trees
are read twice: once for the numbers, once for the texts of the few steps that are
listed.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from agentcli.credit.compare import Comparison, CreditComparison, Disagreement
from agentcli.credit.registry import Assign, changed, make, method_names
from agentcli.errors import DataError, UsageError, prefixed, word_of
from agentcli.records.faults import shown
from agentcli.records.files import read_numbered, sha256_file
from agentcli.records.grouping import grouped
from agentcli.records.regular import is_there
from agentcli.records.runs import RunDirectory, credit_name
from agentcli.records.trees import validate_credit
from agentcli.records.types import Credit, Step, Tree
from agentcli.reports.standing import Progress, Standing
from agentcli.stages.trees import checked_trees, note_lost_trees

NextCredit = Callable[[Tree, str], Credit]
"""The credit of the next tree; its place in the file is for messages."""


class CreditSource(msgspec.Struct, kw_only=True):
    """Where a method's advantages come from."""

    method: str
    file: str | None
    """None: computed here."""
    stale: str | None
    """A file of the method that is of other trees."""
    switches: msgspec.Struct
    """The method's settings, those of the file where there is one."""

    @property
    def settings(self) -> dict[str, Any]:
        """Switches other than the method's defaults."""
        return changed(self.switches)


def held_methods(run: Path) -> list[str]:
    """The methods whose credit RUN holds, a user's own as FILE.py:FUNCTION.

    Raises DataError for a file that neither a method nor the manifest has a name for.
    """
    directory = RunDirectory(run)
    names = in_full(directory, [file.stem for file in directory.credit_files])
    for name, file in zip(names, directory.credit_files, strict=True):
        if name == file.stem and name not in method_names():
            raise DataError(
                f"{file}: {shown(name)} is not a credit method; move it away, or "
                "name the methods to compare"
            )
    return names


def in_full(directory: RunDirectory, names: Sequence[str]) -> list[str]:
    """The names, a user's method as FILE.py:FUNCTION where the run holds its credit."""
    stages = directory.load_manifest().stages
    full = []
    for name in names:
        record = stages.get(f"credit/{name}")
        if record is not None and name not in method_names():
            name = str(record.settings.get("credit", {}).get("method", name))
        full.append(name)
    return full


def credit_sources(
    directory: RunDirectory,
    trees: Path,
    names: Sequence[str],
) -> list[CreditSource]:
    """Each method's file where it was computed from these trees, else none."""
    stages = directory.load_manifest().stages
    # Files of trees are large: not read where there is nothing to compare with.
    sha256 = sha256_file(trees) if stages and names else None
    sources = []
    for name in names:
        file = directory.credit(name)
        record = stages.get(f"credit/{credit_name(name)}")
        credit = {"method": name}
        # Credit of other trees would be compared step by step with the wrong steps.
        fresh = stale = None
        if is_there(file) and record and sha256 in record.inputs.values():
            fresh = str(file)
            credit |= record.settings.get("credit", {})
        elif is_there(file):
            stale = str(file)
        switches = make(credit)[2]
        source = CreditSource(method=name, file=fresh, stale=stale, switches=switches)
        sources.append(source)
    return sources


def computed(method: str) -> CreditSource:
    """A method that is computed with its defaults."""
    switches = make({"method": method})[2]
    return CreditSource(method=method, file=None, stale=None, switches=switches)


def note_stale(sources: Sequence[CreditSource], progress: Progress) -> None:
    """Notes every method whose file was not read."""
    for source in sources:
        if source.stale is not None:
            progress.note(
                f"{source.stale} was not computed from these trees; {source.method} "
                "is computed now with its defaults"
            )


def taker(source: CreditSource) -> NextCredit:
    """The function that gives tree after tree its credit."""
    if source.file is not None:
        return CreditReader(Path(source.file))
    assign: Assign = make({"method": source.method})[1]

    def compute(tree: Tree, place: str) -> Credit:
        with prefixed(place, DataError):
            return assign(tree, source.switches)

    return compute


def refuse_leftover(takers: Sequence[NextCredit], trees: Path) -> None:
    """Raises DataError where a file has credit left when the trees have ended."""
    for take in takers:
        if isinstance(take, CreditReader):
            take.end(trees)


class CreditReader:
    """Reads a credit file tree by tree."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._records: Iterator[tuple[int, Credit]] = read_numbered(file, Credit)

    def __call__(self, tree: Tree, place: str) -> Credit:
        line, credit = next(self._records, (0, None))
        if credit is None:
            raise DataError(
                f"{self._file}: ends before {place}; run assign-credit with --overwrite"
            )
        validate_credit(credit, tree, f"{self._file}:{line}")
        return credit

    def end(self, trees: Path) -> None:
        """Raises DataError where there is credit left when the trees have ended."""
        line, credit = next(self._records, (0, None))
        if credit is not None:
            raise DataError(
                f"{self._file}:{line}: holds more than {trees} has trees; run "
                "assign-credit with --overwrite"
            )


MOST = 10
"""Maximum number of steps that are listed."""


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
    names = in_full(directory, names) or held_methods(run)
    _check_names(run, names)
    sources = credit_sources(directory, trees, names)
    takers = [taker(source) for source in sources]
    comparison = Comparison(names)
    progress.start(Standing("compare", None))
    held = 0
    for line, tree in checked_trees(trees):
        held += 1
        place = f"{trees}:{line}"
        comparison.add(line, tree, [take(tree, place) for take in takers])
        progress.advance()
    progress.stop()
    refuse_leftover(takers, trees)
    if comparison.kept == 0:
        raise DataError(
            f"{trees}: holds no steps; grow some trees with: agentcli rollout "
            f"--resume -o {run}"
        )
    note_lost_trees(trees, held, progress)
    note_stale(sources, progress)
    return answer_of(comparison, sources, trees, most)


def answer_of(
    comparison: Comparison,
    sources: Sequence[CreditSource],
    trees: Path,
    most: int = MOST,
) -> CreditComparison:
    """The result of comparing all `trees`, with its sources and texts."""
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
            f"credit compare {word_of(run)} grpo carl"
        )


def _add_texts(trees: Path, rows: Sequence[Disagreement]) -> None:
    """Fills in task, kind and action."""
    by_line = grouped((row.line, row) for row in rows)
    # Few steps are listed: what follows their trees is not decoded.
    records = read_numbered(trees, Tree)
    while by_line:
        line, tree = next(records)
        for row in by_line.pop(line, []):
            row.task = tree.task.id
            row.kind = tree.task.kind
            row.action = _action(tree.steps[row.step])


def _action(step: Step) -> str | None:
    """The action, or that of every copy."""
    if not step.moves:
        return step.action
    return ", ".join(f"{move.copy}: {move.action}" for move in step.moves)
