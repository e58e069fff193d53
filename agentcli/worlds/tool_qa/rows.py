"""environment.options of tool_qa, and rows of MMLU-Pro, read unchanged from files.

An answer that is not the option at its index, or an id that is there twice, is refused
with file, row and field.
"""

import random
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import msgspec

from agentcli.errors import DataError
from agentcli.records.faults import shown
from agentcli.records.section import Count, Seed
from agentcli.worlds.generated import split_of
from agentcli.worlds.row_files import row_files, rows_of


class Sizes(msgspec.Struct, kw_only=True, frozen=True):
    """Questions of each split (Rare-tool section 4: 2,500 and 840); of real ones at most."""

    train: Count = 2500
    valid: Count = 100
    test: Count = 840


class ToolQaOptions(msgspec.Struct, kw_only=True, frozen=True):
    """What is asked."""

    sizes: Sizes = msgspec.field(default_factory=Sizes)
    templates: tuple[str, ...] | None = None
    """Only these sorts of generated questions; None: all (templates.py)."""
    tools: tuple[str, ...] | None = None
    """Only these tools; None: all. []: a closed book."""
    choices: Annotated[int, msgspec.Meta(ge=2, le=10)] = 10
    """Options of a generated question."""
    seed: Seed = 0
    """Of the generated questions, and of the split of real ones."""


LETTERS = "ABCDEFGHIJ"


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
    for path in row_files(data):
        for place, row in rows_of(path, QaRow):
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
