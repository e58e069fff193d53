"""The commands of the documents: what stands in the fenced blocks of a page, in its order.

A comment right above a block says why it is not typed as it stands: `<!-- dry: REASON -->` adds --dry-run to its commands,
`<!-- not typed: REASON -->` leaves them out. A block with a title is the file of that name.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r'```(?P<language>\w*)(?: title="(?P<title>[^"]+)")?$')
MARK = re.compile(r"<!-- (?P<mark>dry|not typed): .+ -->$")


class Block(NamedTuple):
    """A fenced block of a page."""

    place: str
    """The page and the line of its first line."""
    language: str
    title: str | None
    mark: str | None
    lines: list[str]


def pages() -> list[Path]:
    """The README, and every page of docs/ with a block."""
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in documents if any(blocks(page))]


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page."""
    block: Block | None = None
    mark = None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if block is not None and line == "```":
            yield block
            block = mark = None
        elif block is not None:
            block.lines.append(line)
        elif fence := FENCE.match(line):
            place = f"{page.relative_to(ROOT)}:{number + 1}"
            block = Block(place, fence["language"], fence["title"], mark, [])
        else:
            match = MARK.match(line)
            mark = match["mark"] if match else None


def commands(block: Block) -> Iterator[list[str]]:
    """The words of every line of a block that types commands."""
    if block.language == "sh":
        for line in block.lines:
            words = shlex.split(line, comments=True)
            if words:
                yield words
