"""Tables hold the numbers they were given, in the units they announce."""

import io
import json
from typing import Any

import pytest
from agentcli.evaluation.record import Rate
from agentcli.records.types import Ledger
from agentcli.reports.output import print_rows
from agentcli.reports.tables import (
    equal_outcomes_line,
    folded_values,
    ledger_table,
    pass_at_k_table,
    results_table,
    rows_table,
    values_line,
)
from msgspec.structs import replace
from quickstart_report import ledgers_table, success_table
from rich.console import Console, RenderableType
from table_text import results, summary, text_of


def test_evaluation_by_kind_and_over_all() -> None:
    rows = text_of(results_table("eval", summary(0.5, {"clean": results(0.25)})))
    assert rows[1] == ["clean", "40", "25.0 (15.0-35.0)", "7.2", "80", "12.5", "50.0", "0.0", "7.0"]
    assert rows[2][:3] == ["all", "40", "50.0 (40.0-60.0)"]


def test_a_score_that_is_more_than_success_has_a_column() -> None:
    graded = replace(results(0.25), score=0.75)
    rows = text_of(results_table("eval", summary(0.5, {"fashion": graded})))
    assert rows[0][3] == "score"
    assert rows[1][2:4] == ["25.0 (15.0-35.0)", "0.750"]
    assert "score" not in text_of(results_table("eval", summary(0.5)))[0]


def test_pass_at_k() -> None:
    chances = {"1": Rate(rate=0.5, low=0.4, high=0.6), "4": Rate(rate=0.9, low=0.8, high=1.0)}
    rows = text_of(pass_at_k_table(summary(0.5, pass_at_k=chances)))
    assert rows[1:] == [["1", "50.0 (40.0-60.0)"], ["4", "90.0 (80.0-100.0)"]]


def test_statistics_are_folded_to_the_terminal() -> None:
    text = folded_values("statistics", {f"value_{number}": number for number in range(30)}, 40)
    assert max(map(len, text.splitlines())) <= 40
    assert [word.rstrip(",") for word in text.split()][2::2] == [str(number) for number in range(30)]


def test_statistics_on_one_line() -> None:
    line = values_line({"rows": 12, "advantage": {"mean": 0.0, "std": 1.23456}, "reasons": [1, 2], "model": None})
    assert line == "rows 12, advantage.mean 0, advantage.std 1.235, reasons 1 2, model -"


def test_rows_as_a_table_and_as_json_lines(capsys: Any) -> None:
    rows: list[dict[str, Any]] = [{"world": "alfworld", "splits": {"train": 3553, "L0": 140}, "problem": None}]
    assert text_of(rows_table("worlds", rows))[1] == ["alfworld", "train 3553, L0 140", "-"]
    print_rows("worlds", rows, json=True)
    assert json.loads(capsys.readouterr().out) == rows[0]


def every_table() -> dict[str, RenderableType]:
    """As long as they get: names of task kinds, ledgers and intervals."""
    kind = "pick_clean_then_place_in_recep"
    one = summary(0.9, {kind: results(0.9), "look_at_obj_in_light": results(0.9)})
    ledger = Ledger(leaves=123_456_789, shared_prompt_tokens=123_456_789)
    return {
        "eval": results_table("eval", one),
        "pass@k": pass_at_k_table(replace(one, pass_at_k={"16": Rate(rate=0.9, low=0.8, high=1.0)})),
        "pair": success_table("greedy", one, one, 0.00123),
        "ledger": ledger_table(ledger),
        "ledgers": ledgers_table({"chain": ledger, "a-run-with-a-long-name": ledger}),
        "rows": rows_table("doctor", [{"name": "generated games", "found": True, "detail": "3558 games " * 20}]),
    }


@pytest.mark.parametrize("width", [76, 80, 100, 120, 140, 200])
@pytest.mark.parametrize("name", list(every_table()))
def test_no_width_cuts_a_header_or_a_number(name: str, width: int) -> None:
    wide, narrow = io.StringIO(), io.StringIO()
    Console(file=wide, width=1000).print(every_table()[name])
    Console(file=narrow, width=width).print(every_table()[name])
    assert "…" not in narrow.getvalue()
    assert max(map(len, narrow.getvalue().splitlines())) <= width
    frame = str.maketrans("", "", "┏┓┡┩└┘━─┳╇┴")
    words, there = ({*text.getvalue().translate(frame).replace("┃", "│").split()} for text in (wide, narrow))
    torn = {word for word in words - there if "_" not in word}
    assert not torn, "only names of task kinds are folded"


def test_texts_of_a_world_are_no_markup() -> None:
    rows = text_of(results_table("eval", summary(0.5, {"[red]clean[/x]": results(0.25)})))
    assert rows[1][0] == "[red]clean[/x]"


@pytest.mark.parametrize(
    ("credit", "named"),
    [
        ({"penalty": "inside", "invalid_penalty": 0.1}, True),
        ({"penalty": "outside", "invalid_penalty": 0.1}, False),
        ({"penalty": "inside", "invalid_penalty": 0.0}, False),
        ({}, False),
    ],
)
def test_a_penalty_that_moves_equal_groups_can_be_charged_outside(credit: dict[str, Any], named: bool) -> None:
    counts = {"rows": 20, "rows_not_zero": 13, "share_of_mass": 0.4}
    line = equal_outcomes_line({"equal_outcomes": counts}, credit)
    assert line is not None
    assert ("--set credit.penalty=outside" in line) == named
    assert equal_outcomes_line({"equal_outcomes": counts | {"rows_not_zero": 0}}, credit) is None
