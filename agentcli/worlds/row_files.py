"""Rows of a data set as it was published: parquet, JSON Lines or JSON.

JSON Lines may be compressed, by their suffix. Every row is checked by its type. What
does not fit, and a file that was not downloaded to its end, is refused with file and
row.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import TypeVar, overload

import msgspec

from agentcli.errors import DataError
from agentcli.records.faults import shown
from agentcli.records.files import read_json, read_numbered
from agentcli.records.regular import refuse_irregular

LINES = (".jsonl", ".jsonl.zst", ".jsonl.gz")
SUFFIXES = (".parquet", ".json", *LINES)

RowT = TypeVar("RowT", bound=msgspec.Struct)


def row_files(data: Path) -> list[Path]:
    """The file that `data` is, or the files of rows in that folder.

    Raises DataError where there is none.
    """
    if data.is_file():
        return [data]
    if not data.is_dir():
        raise DataError(f"--data {data}: no such file or folder")
    files = [path for path in sorted(data.rglob("*")) if path.name.endswith(SUFFIXES)]
    if not files:
        raise DataError(
            f"--data {data}: no file in it ends with {', '.join(SUFFIXES)}; name the "
            "folder that holds them"
        )
    return files


def rows_of(path: Path, kind: type[RowT]) -> Iterator[tuple[str, RowT]]:
    """The rows of a file, each with its place. Raises DataError."""
    if path.name.endswith(".parquet"):
        yield from _parquet_rows(path, kind)
    elif path.name.endswith(LINES):
        for number, row in read_numbered(path, kind, whole=True):
            yield f"{path}:{number}", row
    elif path.name.endswith(".json"):
        for number, row in enumerate(read_json(path, list[kind]), 1):  # type: ignore[valid-type]
            yield f"{path}: row {number}", row
    else:
        raise DataError(
            f"--data {path}: not a file of rows; its name must end with "
            f"{', '.join(SUFFIXES)}"
        )


def _parquet_rows(path: Path, kind: type[RowT]) -> Iterator[tuple[str, RowT]]:
    import pyarrow
    from pyarrow import parquet

    refuse_irregular(path)
    names = {field.encode_name for field in msgspec.structs.fields(kind)}
    number = 0
    try:
        file = parquet.ParquetFile(path)
        # Whole articles may stand in the columns that nobody reads.
        columns = [name for name in file.schema_arrow.names if name in names]
        # By batches: the rows of a large file are never all Python objects at once.
        for batch in file.iter_batches(columns=columns):
            for values in batch.to_pylist():
                number += 1
                yield f"{path}: row {number}", msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise DataError(f"{path}: row {number}: {shown(str(error))}") from error
    except (pyarrow.ArrowException, OSError) as error:
        reason = shown(str(error))
        raise DataError(f"{path}: cannot be read as parquet ({reason})") from error


class LinesOnDisk(Sequence[RowT]):
    """The lines of an open file, each read and decoded when it is asked for.

    `starts` are the positions of the lines, and the end of the last one.
    """

    def __init__(
        self,
        file: BufferedReader,
        starts: Sequence[int],
        decode: Callable[[bytes], RowT],
    ) -> None:
        self._file = file
        self._starts = starts
        self._decode = decode

    def __len__(self) -> int:
        return len(self._starts) - 1

    @overload
    def __getitem__(self, place: int) -> RowT: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[RowT]: ...
    def __getitem__(self, place: int | slice) -> RowT | Sequence[RowT]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        # The range turns a negative place into its own, and refuses one beyond.
        number = range(len(self))[place]
        start = int(self._starts[number])
        end = int(self._starts[number + 1])
        # A position of the file itself would be moved by other threads.
        return self._decode(os.pread(self._file.fileno(), end - start, start))
