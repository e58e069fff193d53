"""A table that is too wide becomes several, and no width cuts a number."""

import io
import re

import pytest
from rich.console import Console

from agentcli.reports.blocks import Blocks

NUMBERS = [f"{100 + number}.5 ({number}.0-{number}.9)" for number in range(10)]


def printed(table: Blocks, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, emoji=False).print(table)
    return out.getvalue().splitlines()


def ten_columns(name: str = "runs/a") -> Blocks:
    table = Blocks("ten", ("run",), [f"what is {number}" for number in range(10)])
    table.add((name,), NUMBERS)
    table.add(("b",), NUMBERS[::-1])
    return table


def cells(lines: list[str]) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]


def test_what_fits_is_one_table_with_headers_on_one_line() -> None:
    lines = printed(ten_columns(), 250)
    assert lines[0].strip() == "ten"
    assert cells(lines) == [["runs/a", *NUMBERS], ["b", *NUMBERS[::-1]]]
    assert "what is 9" in lines[2]


@pytest.mark.parametrize("width", [30, 40, 60, 80, 100, 140])
def test_what_does_not_fit_is_several_with_every_name_and_number(width: int) -> None:
    lines = printed(ten_columns(), width)
    rows = cells(lines)
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)
    assert "".join(lines).count("ten") == 1
    for name, numbers in (("runs/a", NUMBERS), ("b", NUMBERS[::-1])):
        own = [row for row in rows if row[0] == name]
        assert len(own) > 1
        assert [cell for row in own for cell in row[1:]] == numbers


def test_a_long_name_is_folded_to_half_of_the_width() -> None:
    name = "runs/" + "x" * 100
    lines = printed(ten_columns(name), 60)
    assert max(map(len, lines)) <= 60
    first = next(place for place, row in enumerate(cells(lines)) if row[0] == "b")
    assert "".join(row[0] for row in cells(lines)[:first]) == name
    assert sum(number in line for line in lines for number in NUMBERS) == 2 * len(NUMBERS)
    assert max(len(line.split("│")[1]) for line in lines if line.startswith("│")) <= 30


def test_long_headers_are_folded_where_the_numbers_are_short() -> None:
    table = Blocks("t", ("",), [f"runs/a-very-long-name-of-a-run-{number}" for number in range(4)])
    table.add(("leaves",), ["1"] * 4)
    lines = printed(table, 70)
    assert max(map(len, lines)) <= 70
    assert [row for row in cells(lines) if row[0] == "leaves"] == [["leaves", "1", "1"]] * 2


def test_a_table_without_rows_has_its_headers() -> None:
    assert any("what is 3" in line for line in printed(Blocks("t", ("run",), ["what is 3"]), 80))


def test_texts_are_shown_whatever_they_hold() -> None:
    table = Blocks("[red]t[/x]", ("[b]",), ("[/c]",))
    table.add(("[bold]x[/y] :warning: \x1b[31m\n2",), ("[1]",), style="bold")
    lines = printed(table, 80)
    assert lines[0].strip() == "[red]t[/x]"
    assert re.search(r"\[b\] +┃ \[/c\]", "".join(lines))
    assert cells(lines) == [["[bold]x[/y] :warning: \\x1b[31m\\n2", "[1]"]]
