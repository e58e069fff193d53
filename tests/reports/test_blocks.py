"""A table that is too wide becomes several, and no width cuts a number."""

import io
import re

import pytest
from agentcli.reports.blocks import Blocks
from rich.console import Console

NUMBERS = [f"{100 + number}.5 ({number}.0-{number}.9)" for number in range(10)]


def printed(table: Blocks, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, emoji=False).print(table)
    return out.getvalue().splitlines()


def ten_columns(name: str = "runs/a") -> Blocks:
    table = Blocks("ten", ("run",), [f"what is {number}" for number in range(10)])
    table.add([name, *NUMBERS])
    table.add(["b", *NUMBERS[::-1]])
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
        group = [row for row in rows if row[0] == name]
        assert len(group) > 1
        assert [cell for row in group for cell in row[1:]] == numbers


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
    table.add(["leaves", *["1"] * 4])
    lines = printed(table, 70)
    assert max(map(len, lines)) <= 70
    assert [row for row in cells(lines) if row[0] == "leaves"] == [["leaves", "1", "1"]] * 2
    assert all("runs/a-very-long-name-" in line for line in lines if "very" in line), "between its pieces"


def test_a_title_is_as_wide_as_the_terminal_and_no_narrower() -> None:
    table = Blocks("the signed-rank test over six benchmarks, against the first", ("run",), ("p",))
    table.add(["b", "0.5"])
    assert printed(table, 80)[0].rstrip() == table.title
    assert [line.rstrip() for line in printed(table, 40)[:2]] == [
        "the signed-rank test over six",
        "benchmarks, against the first",
    ]


def heads(lines: list[str]) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("┃").split("┃")] for line in lines if line.startswith("┃")]


def test_headers_have_one_line_while_their_block_has_room() -> None:
    table = Blocks("t", ("run",), ("tasks solved by anyone %", "steps of an episode", "McNemar p"))
    table.add(["a", "97.1 (92.9-98.9)", "12.25", "0.25"])
    whole, short = "tasks solved by anyone %", "McNemar p"
    assert heads(printed(table, 80)) == [["run", whole, "steps of an episode", short]]
    assert heads(printed(table, 60)) == [
        ["", "", "steps", ""],
        ["", "", "of an", ""],
        ["run", whole, "episode", short],
    ]
    assert heads(printed(table, 34)) == [
        ["run", whole],
        ["", "steps", ""],
        ["", "of an", ""],
        ["run", "episode", short],
    ]


def test_a_text_is_folded_a_little_to_have_all_numbers_in_one_table() -> None:
    table = Blocks("t", ("kind", "run"), ("episodes", "success % (95 %)"))
    table.add(["pick_clean_then_place_in_recep", "all", "420", "67.4 (61.0-73.8)"])
    for width in (60, (16 + 3) + (3 + 3) + (8 + 3) + (16 + 3) + 1):
        assert cells(printed(table, width)) == [
            ["pick_clean_then_", "all", "420", "67.4 (61.0-73.8)"],
            ["place_in_recep", "", "", ""],
        ]
    assert heads(printed(table, 50)) == [["kind", "run", "episodes"], ["kind", "run", "success % (95 %)"]]


def test_texts_alone_are_folded_between_words_to_the_whole_width() -> None:
    table = Blocks("t", ("name", "found", "detail"))
    table.add(("torch", "True", "trl 1.16.0, typer 0.29.2, from /usr/local/lib/python-3.11/alfworld, fine"))
    assert cells(printed(table, 100)) == [
        ["torch", "True", "trl 1.16.0, typer 0.29.2, from /usr/local/lib/python-3.11/alfworld, fine"]
    ]
    assert cells(printed(table, 70)) == [
        ["torch", "True", "trl 1.16.0, typer 0.29.2, from"],
        ["", "", "/usr/local/lib/python-3.11/alfworld, fine"],
    ]
    assert cells(printed(table, 40)) == [
        ["torch", "True", "trl 1.16.0, typer"],
        ["", "", "0.29.2, from /usr/"],
        ["", "", "local/lib/python-"],
        ["", "", "3.11/alfworld, fine"],
    ]


def test_a_wide_letter_takes_two_columns() -> None:
    table = Blocks("t", ("task",), ("p",))
    table.add(["洗" * 30, "0.5"])
    rows = cells(printed(table, 20))
    assert [row[0] for row in rows] == ["洗" * 4] * 7 + ["洗" * 2]


def test_a_table_without_rows_has_its_headers() -> None:
    assert any("what is 3" in line for line in printed(Blocks("t", ("run",), ["what is 3"]), 80))


def test_texts_are_shown_whatever_they_hold() -> None:
    table = Blocks("[red]t[/x]", ("[b]",), ("[/c]",))
    table.add(["[bold]x[/y] :warning: \x1b[31m\n2", "[1]"], style="bold")
    lines = printed(table, 80)
    assert lines[0].strip() == "[red]t[/x]"
    assert re.search(r"\[b\] +┃ \[/c\]", "".join(lines))
    assert cells(lines) == [["[bold]x[/y] :warning: \\x1b[31m\\n2", "[1]"]]


def test_wide_letters_are_folded_between_pieces_too() -> None:
    table = Blocks("t", ("task",), ("p",))
    table.add(["洗洗/洗洗/洗", "0.5"])
    assert [row[0] for row in cells(printed(table, 20))] == ["洗洗/", "洗洗/洗"]


def test_many_texts_share_the_whole_width() -> None:
    table = Blocks("t", ("a", "b", "c"))
    table.add(("x" * 30,) * 3)
    lines = printed(table, 40)
    assert {len(line) for line in lines[1:]} == {40}
    assert cells(lines) == [["x" * 10] * 3] * 3


def test_a_line_begins_with_no_space() -> None:
    table = Blocks("t", ("a", "b", "c"))
    table.add(("xxxxxxxxxx yyyyyyyyyy zz",) * 3)
    assert printed(table, 40)[-4:-1] == [
        "│ xxxxxxxxxx │ xxxxxxxxxx │ xxxxxxxxxx │",
        "│ yyyyyyyyyy │ yyyyyyyyyy │ yyyyyyyyyy │",
        "│ zz         │ zz         │ zz         │",
    ]
