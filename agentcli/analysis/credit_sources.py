"""The credit of a run's trees, method by method: from its file, or computed.

A method is taken from RUN/credit where the manifest says that the file there was
computed from exactly these trees, and otherwise computed with its defaults.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from agentcli.credit.registry import Assign, changed, make, method_names
from agentcli.errors import DataError
from agentcli.records.faults import shown
from agentcli.records.files import read_numbered, sha256_file
from agentcli.records.regular import is_there
from agentcli.records.runs import RunDirectory, credit_name
from agentcli.records.trees import validate_credit
from agentcli.records.types import Credit, Tree
from agentcli.reports.standing import Progress

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


def credit_sources(
    directory: RunDirectory,
    trees: Path,
    names: Sequence[str],
) -> list[CreditSource]:
    """Each method's file where it was computed from these trees, else none."""
    stages = directory.load_manifest().stages
    sha256 = sha256_file(trees) if stages and names else None
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
        try:
            return assign(tree, source.switches)
        except DataError as error:
            raise DataError(f"{place}: {error}") from error

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
