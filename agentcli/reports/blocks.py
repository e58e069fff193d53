"""A table that cuts no number: where the terminal is too narrow for all columns, it
becomes several tables, one below the other.

The first columns hold texts and stand in every block; long texts are folded. The others
hold numbers, in the order of their columns, as many to a block as fit. Texts come from
files and folders: they are shown as they are, whatever they hold.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, JustifyMethod
from rich.table import Table
from rich.text import Text

from agentcli.records.faults import shown

BORDER = 3
"""Columns of the terminal that a column's border and padding take; one more closes the
row.
"""
LEAST = 8
"""Columns of the terminal that a text is folded to at least."""
EASY = 16
"""Columns of the terminal that each text needs at least to have all columns in one
block.
"""
LONGEST = 24
"""Columns of the terminal that a word of a header may ask for at most."""
_WORD = re.compile(r"\S+\s*|\s+")
_PIECE = re.compile(r".+?(?:[/_:=-]+\s*|$)")
"""The pieces of a word that does not fit into a line: paths and long names are folded
behind their separators.
"""


class Blocks:
    """Rows of texts and numbers. `texts`, `numbers`: the headers; a table of texts
    alone is folded into one block.
    """

    def __init__(
        self, title: str, texts: Sequence[str], numbers: Sequence[str] = ()
    ) -> None:
        self.title = shown(title)
        self._heads = [shown(head) for head in (*texts, *numbers)]
        self._texts = len(texts)
        self._rows: list[list[str]] = []
        self._styles: list[str | None] = []

    def add(
        self,
        texts: Sequence[str],
        numbers: Sequence[str] = (),
        style: str | None = None,
    ) -> None:
        """A row; as many cells as there are headers."""
        self._rows.append([shown(cell) for cell in (*texts, *numbers)])
        self._styles.append(style)

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[Table | Text]:
        """The title, as wide as the terminal is, and one table, or its blocks."""
        cells = [0] * len(self._heads)
        for row in self._rows:
            cells = [
                max(width, cell_len(cell))
                for width, cell in zip(cells, row, strict=True)
            ]
        whole = [
            max(width, cell_len(head))
            for width, head in zip(cells, self._heads, strict=True)
        ]
        widths = self._widths(cells, whole, options.max_width)
        texts = dict(enumerate(widths[: self._texts]))
        room = options.max_width - 1 - sum(width + BORDER for width in texts.values())
        if self.title:
            yield Text(self.title, style="table.title")
        for block in _filled(widths[self._texts :], room):
            places = [self._texts + place for place in block]
            spare = room - sum(widths[place] + BORDER for place in places)
            yield self._block(texts | _widened(widths, whole, places, spare))

    def _widths(
        self, cells: Sequence[int], whole: Sequence[int], width: int
    ) -> Sequence[int]:
        """The width of every column.

        Where all fit so, a header stands on one line. Else a column is as wide as its
        cells need, and texts are folded to what numbers leave, or where that is little
        to half of `width`.
        """
        if sum(column + BORDER for column in whole) < width:
            return whole
        narrow = []
        for cell, head in zip(cells, self._heads, strict=True):
            longest_word = max(map(cell_len, head.split()), default=0)
            narrow.append(max(cell, min(longest_word, LONGEST)))
        texts = narrow[: self._texts]
        numbers = narrow[self._texts :]
        left = width - 1 - sum(column + BORDER for column in numbers)
        enough = sum(min(column, EASY) + BORDER for column in texts)
        most = left if left >= enough or not numbers else width // 2
        while sum(column + BORDER for column in texts) > most and max(texts) > LEAST:
            texts[texts.index(max(texts))] -= 1
        return texts + numbers

    def _block(self, widths: Mapping[int, int]) -> Table:
        """The columns of `widths`, by their places."""
        table = Table()
        for place, width in widths.items():
            justify: JustifyMethod = "left" if place < self._texts else "right"
            table.add_column(
                _folded(self._heads[place], width), width=width, justify=justify
            )
        for row, style in zip(self._rows, self._styles, strict=True):
            cells = [_folded(row[place], width) for place, width in widths.items()]
            table.add_row(*cells, style=style)
        return table


def _filled(widths: Sequence[int], room: int) -> Iterator[list[int]]:
    """Places of `widths`, in their order, as many at a time as fit into `room`, at
    least one.
    """
    block: list[int] = []
    for place in range(len(widths)):
        if block and sum(widths[other] + BORDER for other in [*block, place]) > room:
            yield block
            block = []
        block.append(place)
    yield block


def _widened(
    widths: Sequence[int], whole: Sequence[int], places: Sequence[int], spare: int
) -> dict[int, int]:
    """The widths of `places`; while there is something to spare, headers get their one
    line.
    """
    widened = {}
    for place in places:
        more = whole[place] - widths[place]
        if more > spare:
            more = 0
        widened[place] = widths[place] + more
        spare -= more
    return widened


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
        lines = [line for line in lines if line]
        lines += [piece] if _fits(piece, width) else chop_cells(piece, width)
    return Text("\n".join(line.rstrip() for line in lines), overflow="fold")


def _pieces(text: str, width: int) -> Iterator[str]:
    """`text` in parts, the space behind each with it."""
    for word in _WORD.findall(text):
        if _fits(word, width):
            yield word
        else:
            yield from _PIECE.findall(word)


def _fits(text: str, width: int) -> bool:
    return cell_len(text.rstrip()) <= width
