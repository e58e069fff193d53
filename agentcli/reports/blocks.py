"""A table that cuts no number: where the terminal is too narrow for all columns, it becomes several tables, one below the other.

The first columns hold texts and stand in every block; long ones are folded. The others hold numbers, in the order of their
columns as many to a block as fit. Texts come from files and folders: they are escaped, whatever they hold.
"""

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from agentcli.records.faults import shown

BORDER = 3
"""Columns of the terminal that a column's border and padding take; one more closes the row."""
LEAST, LONGEST = 8, 24
"""Columns of the terminal: the least a text is folded to, and the most that a word of a header may ask for."""


class Blocks:
    """Rows of texts and numbers. `texts`, `numbers`: the headers; a table needs at least one of each."""

    def __init__(self, title: str, texts: Sequence[str], numbers: Sequence[str]) -> None:
        self.title = shown(title)
        self._heads = [shown(head) for head in (*texts, *numbers)]
        self._texts = len(texts)
        self._rows: list[list[str]] = []
        self._styles: list[str | None] = []

    def add(self, texts: Sequence[str], numbers: Sequence[str], style: str | None = None) -> None:
        """A row; as many cells as there are headers."""
        self._rows.append([shown(cell) for cell in (*texts, *numbers)])
        self._styles.append(style)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        """One table, or its blocks; only the first has the title."""
        widths = self._widths(options.max_width)
        room = options.max_width - 1 - sum(width + BORDER for width in widths[: self._texts])
        title = escape(self.title)
        for block in _filled(widths[self._texts :], room):
            yield self._block(title, widths, [self._texts + place for place in block])
            title = ""

    def _widths(self, width: int) -> list[int]:
        """Of every column: its header on one line if all fit so, else what its cells need; texts folded to half of `width`."""
        cells = [max(map(cell_len, column)) for column in zip(*self._rows, strict=True)] or [0] * len(self._heads)
        whole = [max(own, cell_len(head)) for own, head in zip(cells, self._heads, strict=True)]
        if sum(own + BORDER for own in whole) < width:
            return whole
        words = [max(map(cell_len, head.split()), default=0) for head in self._heads]
        narrow = [max(own, min(word, LONGEST)) for own, word in zip(cells, words, strict=True)]
        texts = narrow[: self._texts]
        while sum(own + BORDER for own in texts) > width // 2 and max(texts) > LEAST:
            texts[texts.index(max(texts))] -= 1
        return texts + narrow[self._texts :]

    def _block(self, title: str, widths: Sequence[int], numbers: Sequence[int]) -> Table:
        table = Table(title=title or None, title_justify="left")
        places = [*range(self._texts), *numbers]
        for place in places:
            justify: JustifyMethod = "left" if place < self._texts else "right"
            table.add_column(Text(self._heads[place]), width=widths[place], justify=justify, overflow="fold")
        for row, style in zip(self._rows, self._styles, strict=True):
            table.add_row(*(Text(row[place]) for place in places), style=style)
        return table


def _filled(widths: Sequence[int], room: int) -> Iterator[list[int]]:
    """Places of `widths`, in their order, as many at a time as fit into `room`, at least one."""
    block: list[int] = []
    for place in range(len(widths)):
        if block and sum(widths[other] + BORDER for other in [*block, place]) > room:
            yield block
            block = []
        block.append(place)
    yield block
