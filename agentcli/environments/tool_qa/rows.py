"""Rows of MMLU-Pro, read unchanged: parquet, JSON Lines or JSON; `.zst` by suffix.

Every row is checked: a field of a wrong type, an answer that is not the option at its
index, or an id that is there twice is refused with file, row and field.
"""

import random
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import msgspec

from agentcli.environments.tool_qa.options import ToolQaOptions, split_of
from agentcli.errors import DataError
from agentcli.records.faults import shown
from agentcli.records.files import read_json, read_numbered
from agentcli.records.regular import refuse_irregular

LETTERS = "ABCDEFGHIJ"
LINES = (".jsonl", ".jsonl.zst")
SUFFIXES = (".parquet", ".json", *LINES)


class QaRow(msgspec.Struct, kw_only=True, frozen=True):
    """One question of MMLU-Pro."""

    question_id: int
    question: str
    options: tuple[str, ...]
    """2 to 10."""
    answer: str
    """A letter."""
    answer_index: int
    category: str
    cot_content: str | None = None
    src: str | None = None


@lru_cache(maxsize=4)
def load_rows(data: Path) -> dict[int, QaRow]:
    """All rows of a file, or of the files of a folder, by their id.

    Raises DataError.
    """
    rows: dict[int, QaRow] = {}
    for path in _files(data):
        for place, row in _rows(path):
            _check(row, place)
            if row.question_id in rows:
                raise DataError(
                    f"{place}: question_id {row.question_id} is there twice; keep one "
                    "of them"
                )
            rows[row.question_id] = row
    return rows


@lru_cache(maxsize=8)
def rows_of_split(data: Path, options: ToolQaOptions, split: str) -> tuple[QaRow, ...]:
    """The rows of a split, in a seeded order, at most as many as its size.

    A question's text says which split it belongs to. Raises DataError where none does.
    """
    rows = [row for row in load_rows(data).values() if split_of(row.question) == split]
    if not rows:
        raise DataError(
            f"{data}: none of its questions belongs to the split {split}; name more "
            "data with --data"
        )
    random.Random(options.seed).shuffle(rows)
    return tuple(rows[: getattr(options.sizes, split)])


def _files(data: Path) -> list[Path]:
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


def _rows(path: Path) -> Iterator[tuple[str, QaRow]]:
    """The rows of a file, each with its place."""
    if path.name.endswith(".parquet"):
        yield from _parquet_rows(path)
    elif path.name.endswith(LINES):
        for number, row in read_numbered(path, QaRow, whole=True):
            yield f"{path}:{number}", row
    elif path.name.endswith(".json"):
        for number, row in enumerate(read_json(path, list[QaRow]), 1):
            yield f"{path}: row {number}", row
    else:
        raise DataError(
            f"--data {path}: not a file of questions; its name must end with "
            f"{', '.join(SUFFIXES)}"
        )


def _parquet_rows(path: Path) -> Iterator[tuple[str, QaRow]]:
    import pyarrow
    from pyarrow import parquet

    refuse_irregular(path)
    number = 0
    try:
        for batch in parquet.ParquetFile(path).iter_batches():
            for values in batch.to_pylist():
                number += 1
                yield f"{path}: row {number}", msgspec.convert(values, QaRow)
    except msgspec.ValidationError as error:
        raise DataError(f"{path}: row {number}: {shown(str(error))}") from error
    except (pyarrow.ArrowException, OSError) as error:
        reason = shown(str(error))
        raise DataError(f"{path}: cannot be read as parquet ({reason})") from error


def _check(row: QaRow, place: str) -> None:
    """Raises DataError for a row that contradicts itself."""
    count = len(row.options)
    if not 2 <= count <= len(LETTERS):
        raise DataError(f"{place}: {count} options, not 2 to 10 - at `$.options`")
    if not 0 <= row.answer_index < count:
        raise DataError(
            f"{place}: {row.answer_index} is not one of {count} options - at "
            "`$.answer_index`"
        )
    if row.answer != LETTERS[row.answer_index]:
        raise DataError(
            f"{place}: {shown(row.answer)!r} is not {LETTERS[row.answer_index]!r}, the "
            "letter of answer_index - at `$.answer`"
        )
    for field in ("question", "category"):
        if not getattr(row, field).strip():
            raise DataError(f"{place}: is empty - at `$.{field}`")
