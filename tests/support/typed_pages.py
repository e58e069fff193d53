"""The commands of the documents: what stands in the fenced blocks of a page, in its order.

A comment right above a block says how it is typed otherwise than it stands:

    <!-- dry: REASON -->            with --dry-run
    <!-- not typed: REASON -->      not at all
    <!-- other world: NAME -->      without the sizes of the quickstart's games
    <!-- smaller: N as M, REASON -->  with M where N stands

A block with a title is the file of that name.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r'```(?P<language>\w*)(?: title="(?P<title>[^"]+)")?$')
MARK = re.compile(r"<!-- (?P<mark>dry|not typed|other world|smaller): (?P<text>.+) -->$")


class Block(NamedTuple):
    """A fenced block of a page."""

    place: str
    """The page and the line of its first line."""
    language: str
    title: str | None
    marks: dict[str, str]
    """The comments right above it: the mark and its text."""
    lines: list[str]


def pages() -> list[Path]:
    """The README, AGENTS.md, and every page of docs/ with a block."""
    documents = [ROOT / "README.md", ROOT / "AGENTS.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in documents if any(blocks(page))]


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page."""
    block: Block | None = None
    marks: dict[str, str] = {}
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if block is not None and line == "```":
            yield block
            block, marks = None, {}
        elif block is not None:
            block.lines.append(line)
        elif fence := FENCE.match(line):
            place = f"{page.relative_to(ROOT)}:{number + 1}"
            block = Block(place, fence["language"], fence["title"], marks, [])
        elif match := MARK.match(line):
            marks[match["mark"]] = match["text"]
        else:
            marks = {}


def commands(block: Block) -> Iterator[list[str]]:
    """The words of every line of a block that types commands."""
    if block.language == "sh":
        for line in block.lines:
            words = shlex.split(line, comments=True)
            if words:
                yield words
