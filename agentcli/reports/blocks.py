"""A table that cuts no number.

Where the terminal is too narrow for all columns, it becomes several tables, one below
the other. The first columns hold texts and stand in every block; long texts are folded.
The others hold numbers, in the order of their columns, as many to a block as fit. Texts
come from files and folders: they are shown as they are, whatever they hold.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions
from rich.table import Table
from rich.text import Text

from agentcli.records.faults import shown

# All widths are counted in columns of the terminal.
BORDER = 3
"""Width of a table column's border and padding; one more closes the row."""
LEAST = 8
"""Minimum width that a text column is folded to."""
EASY = 16
"""Minimum width of a text column for a single block."""
LONGEST = 24
"""Maximum width that the longest word of a header is given."""
_WORD = re.compile(r"\S+\s*|\s+")
_PIECE = re.compile(r".+?(?:[/_:=-]+\s*|$)")
"""The pieces of a word that does not fit into a line: paths and long names are folded
behind their separators.
"""


@dataclass
class Column:
    """One column, and the width that it is given."""

    head: str
    is_text: bool
    cells: list[str] = field(default_factory=list)
    colours: list[str] = field(default_factory=list)
    """The colour of each cell, "" for the terminal's own."""
    width: int = 0

    @property
    def width_of_cells(self) -> int:
        return max(map(cell_len, self.cells), default=0)

    @property
    def whole_width(self) -> int:
        """The width at which the header stands on one line."""
        return max(self.width_of_cells, cell_len(self.head))

    @property
    def narrow_width(self) -> int:
        """The width at which no cell is folded, and a header only between words."""
        longest_word = max(map(cell_len, self.head.split()), default=0)
        return max(self.width_of_cells, min(longest_word, LONGEST))


class Blocks:
    """Rows of texts and numbers, under the headers `texts` and `numbers`."""

    def __init__(
        self, title: str, texts: Sequence[str], numbers: Sequence[str] = ()
    ) -> None:
        self.title = shown(title)
        self._texts = [Column(shown(head), is_text=True) for head in texts]
        self._numbers = [Column(shown(head), is_text=False) for head in numbers]
        self._styles: list[str | None] = []

    def add(
        self,
        cells: Iterable[str],
        style: str | None = None,
        colours: Mapping[str, str] | None = None,
    ) -> None:
        """Adds a row, of as many cells as there are headers.

        `colours` are those of cells, by their header.
        """
        columns = [*self._texts, *self._numbers]
        colours = colours or {}
        for column, cell in zip(columns, cells, strict=True):
            column.cells.append(shown(cell))
            colour = colours.get(column.head, "")
            column.colours.append(colour)
        self._styles.append(style)

    def leave_out(self, head: str) -> None:
        """Removes a column of numbers."""
        self._numbers = [column for column in self._numbers if column.head != head]

    def leave_out_constant(self, *heads: str) -> None:
        """Removes those of the columns whose cells are equal in all of several rows."""
        if len(self._styles) < 2:
            return
        for column in self._numbers:
            if column.head in heads and len(set(column.cells)) == 1:
                self.leave_out(column.head)

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[Table | Text]:
        """The title, as wide as the terminal is, and one table, or its blocks."""
        if self.title:
            yield Text(self.title, style="table.title")
        self._choose_widths(options.max_width)
        room = options.max_width - 1 - _taken(self._texts)
        for block in _blocks(self._numbers, room):
            _widen(block, room - _taken(block))
            yield self._table([*self._texts, *block])

    def _choose_widths(self, width: int) -> None:
        """Gives every column its width in a terminal of `width`."""
        columns = [*self._texts, *self._numbers]
        for column in columns:
            column.width = column.whole_width
        if _taken(columns) < width:
            return
        for column in columns:
            column.width = column.narrow_width
        most = width - 1 - _taken(self._numbers)
        easy = sum(min(column.width, EASY) + BORDER for column in self._texts)
        # Several blocks with texts that can be read are better than one of snippets.
        if most < easy and self._numbers:
            most = width // 2
        while _taken(self._texts) > most:
            # The widest first: short names stay whole while long texts give way.
            widest = max(self._texts, key=lambda column: column.width)
            if widest.width <= LEAST:
                break
            widest.width -= 1

    def _table(self, columns: Sequence[Column]) -> Table:
        table = Table()
        for column in columns:
            table.add_column(
                _folded(column.head, column.width),
                width=column.width,
                justify="left" if column.is_text else "right",
            )
        for row, style in enumerate(self._styles):
            cells = []
            for column in columns:
                cell = _folded(column.cells[row], column.width)
                cell.style = column.colours[row]
                cells.append(cell)
            table.add_row(*cells, style=style)
        return table


def _taken(columns: Iterable[Column]) -> int:
    """What the columns take of a terminal's width."""
    return sum(column.width + BORDER for column in columns)


def _blocks(columns: Sequence[Column], room: int) -> Iterator[list[Column]]:
    """The columns in their order, as many at a time as fit into `room`, at least one."""
    block: list[Column] = []
    for column in columns:
        if block and _taken([*block, column]) > room:
            yield block
            block = []
        block.append(column)
    yield block


def _widen(block: Sequence[Column], spare: int) -> None:
    """Widens columns until their headers fit on one line, while there is room."""
    for column in block:
        more = column.whole_width - column.width
        if more <= spare:
            column.width += more
            spare -= more


def _folded(text: str, width: int) -> Text:
    """`text` in lines of at most `width`.

    It is broken between words. A word that is wider is broken between its pieces, and a
    piece that still is anywhere.
    """
    lines = [""]
    for piece in _pieces(text, width):
        if _fits(lines[-1] + piece, width):
            lines[-1] += piece
            continue
        # A first piece that is too wide leaves the line before it empty.
        if lines[-1] == "":
            lines.pop()
        if _fits(piece, width):
            lines.append(piece)
        else:
            lines += chop_cells(piece, width)
    return Text("\n".join(line.rstrip() for line in lines), overflow="fold")


def _pieces(text: str, width: int) -> Iterator[str]:
    """`text` in parts, each with the space behind it."""
    for word in _WORD.findall(text):
        if _fits(word, width):
            yield word
        else:
            yield from _PIECE.findall(word)


def _fits(text: str, width: int) -> bool:
    return cell_len(text.rstrip()) <= width
