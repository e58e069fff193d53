"""The tables of `compare` hold the numbers they were given, in the units they announce."""

import io
from typing import Any

import pytest
from agentcli.evaluation.compare import Difference, PairedTests, RunComparison, over_benchmarks, side_by_side
from agentcli.evaluation.growth import Cost, Growth
from agentcli.evaluation.record import Rate
from agentcli.evaluation.training import LoopCost, ResponsesUpdated
from agentcli.records.types import Episode, Ledger
from agentcli.reports.comparison import (
    behaviour_table,
    comparison_tables,
    kinds_table,
    label_table,
    training_table,
    trees_table,
    verdict,
)
from evaluated import episodes
from msgspec.structs import asdict, replace
from rich.console import Console
from table_text import text_of


def evaluation(wins: str, tokens: int, samples: int = 1) -> list[Episode]:
    """A task for each sign, all its samples alike, kinds in turn."""
    return episodes({str(task): sign * samples for task, sign in enumerate(wins)}, tokens, ("clean", "heat"))


RUNS = side_by_side({"a": evaluation("+---", 10), "b": evaluation("++++", 25)})


def test_success_and_gain() -> None:
    header, first, second = text_of(label_table("L0", RUNS))
    assert header == ["run", "episodes", "success % (95 %)", "gain (95 %)", "McNemar p"]
    assert first == ["a", "4", "25.0 (4.6-69.9)", "", ""]
    assert second[:3] == ["b", "4", "100.0 (51.0-100.0)"]
    assert second[3].startswith("+75.0 (+25.0 to +100.0")
    assert second[4] == "0.25"


def test_a_score_that_is_more_than_success_stands_beside_it() -> None:
    shops = {name: replace(run, score=run.score + 0.25) for name, run in RUNS.items()}
    header, first, _ = text_of(label_table("L0", shops))
    assert header[:4] == ["run", "episodes", "success % (95 %)", "score"]
    assert first[:4] == ["a", "4", "25.0 (4.6-69.9)", "0.500"]


def test_several_samples_show_solved_tasks_and_no_mcnemar() -> None:
    runs = side_by_side({"a": evaluation("+---", 10), "b": evaluation("++--", 25, samples=3)})
    header, _, second = text_of(label_table("L0", runs))
    assert header[-1] == "tasks solved % (95 %)"
    assert (second[1], second[4], second[5]) == ("12", "-", "50.0 (15.0-85.0)")


def test_behaviour_and_cost() -> None:
    header, first, second = text_of(behaviour_table("L0", RUNS))
    assert header[1:] == [
        "steps an episode",
        "repeated %",
        "explore %",
        "malformed %",
        "inadmissible %",
        "steps a task",
        "tokens a task",
    ]
    assert first == ["a", "4.0", "25.0", "50.0", "0.0", "0.0", "4.0", "10.0"]
    assert second == ["b", "4.0", "25.0", "50.0", "0.0", "0.0", "4.0 x1.00", "25.0 x2.50"]


def test_kinds() -> None:
    header, clean, heat = text_of(kinds_table("L0", RUNS))
    assert header == ["kind", "a", "b"]
    assert (clean[0], clean[1][:4], clean[2][-5:]) == ("clean", "50.0", "+50.0")
    assert (heat[0], heat[2][-6:]) == ("heat", "+100.0")


def trees(steps: int, forks: int, method: str = "chain", errored: int = 0) -> Growth:
    return Growth(
        method=method,
        tasks=3,
        success=Rate(rate=0.5, low=0.25, high=0.75),
        errored=errored,
        explore=0.4,
        malformed=0.975,
        cut=None if method == "expert" else 0.96,
        distinct_at_start=None,
        distinct_of_forks=0.375,
        forks_by_depth=[0.5, 0.0, 0.125, 0.25, 0.125] if forks else [],
        seconds={"policy": 1.5},
        **asdict(cost(steps, forks, None if method == "expert" else 0.25)),
    )


def cost(steps: int, forks: int, distinct: float | None = 0.25) -> Cost:
    return Cost(
        shared=0.125,
        distinct=distinct,
        steps_per_leaf=steps / 100,
        tokens_per_leaf=2.0 * steps,
        ledger=Ledger(steps=steps, forks=forks),
    )


def test_trees() -> None:
    rows = text_of(trees_table({"a": trees(2000, 0), "b": trees(1500, 12)}))
    assert rows[0] == ["", "a", "b"]
    assert ["steps", "2,000", "1,500 x0.75"] in rows
    assert ["forks", "0", "12"] in rows
    shares = {"1": "50.0", "2": "0.0", "3-4": "37.5", "5-8": "12.5"}
    assert [row[2] for row in rows if row[0].startswith("forks % after step")] == list(shares.values())
    for steps, share in shares.items():
        assert [f"forks % after step {steps}", "-", share] in rows
    assert ["shared % of prompt tokens", "12.5", "12.5"] in rows
    assert ["distinct actions % of siblings", "25.0", "25.0"] in rows
    assert ["distinct % at the initial state", "-", "-"] in rows
    assert ["distinct % at forks", "37.5", "37.5"] in rows
    assert ["steps per leaf", "20.0", "15.0 x0.75"] in rows
    assert ["policy seconds", "1.50", "1.50 x1.00"] in rows
    assert ["environment seconds", "-", "-"] in rows
    assert ["explore % of responses", "40.0", "40.0"] in rows
    assert ["malformed % of responses", "97.5", "97.5"] in rows
    assert [row[1:] for row in rows if "max_tokens" in row[0]] == [["96.0", "96.0"]]
    assert "errored leaves" not in [row[0] for row in rows]
    assert ["success of leaves % (95 %)", "50.0 (25.0-75.0)", "50.0 (25.0-75.0)"] in rows


def test_nothing_was_cut_where_no_model_was_asked() -> None:
    rows = text_of(trees_table({"a": trees(20, 0, "expert"), "b": trees(15, 0)}))
    assert [row[1:] for row in rows if "max_tokens" in row[0]] == [["-", "96.0"]]


def test_errored_leaves_are_shown_where_there_are_any() -> None:
    rows = text_of(trees_table({"a": trees(20, 0), "b": trees(15, 0, errored=3)}))
    assert ["errored leaves", "0", "3"] in rows


def loop(steps: int, updated: int | None, **more: Any) -> LoopCost:
    responses = None
    if updated is not None:
        responses = ResponsesUpdated(updated=updated, given=steps, share=updated / steps)
    one = LoopCost(
        iterations=28,
        unfinished=0,
        ended=True,
        method="carl",
        credit="carl",
        trees=steps // 10,
        leaves=100,
        errored=0,
        forks_by_depth=[0.75, 0.25],
        success_by_part=[0.5, 0.625],
        responses=responses,
        updates=None if updated is None else updated // 10,
        seconds={"policy": 120.0, "environment": 1.5, "train": None},
        **asdict(cost(steps, 4)),
    )
    return replace(one, **more)


def test_training() -> None:
    rows = text_of(training_table({"a": loop(2000, 1000), "b": loop(1500, 150)}))
    for row in (
        ["", "a", "b"],
        ["iterations", "28", "28"],
        ["trees", "200", "150 x0.75"],
        ["steps", "2,000", "1,500 x0.75"],
        ["steps per leaf", "20.0", "15.0 x0.75"],
        ["forks % after step 2", "25.0", "25.0"],
        ["responses updated", "1,000", "150 x0.15"],
        ["updated % of responses", "50.0", "10.0 x0.20"],
        ["updates", "100", "15 x0.15"],
        ["policy seconds", "120", "120 x1.00"],
        ["environment seconds", "1.50", "1.50 x1.00"],
        ["train seconds", "-", "-"],
        ["success of leaves %, by part", "50.0 62.5", "50.0 62.5"],
    ):
        assert row in rows
    assert "errored leaves" not in [row[0] for row in rows]
    assert ["errored leaves", "2", "0"] in text_of(training_table({"a": loop(20, 1, errored=2), "b": loop(15, 1)}))


def test_what_is_not_over_and_what_is_no_loop() -> None:
    one = loop(100, None, iterations=None, unfinished=None, ended=None, method=None, credit=None)
    going, short = loop(100, 10, iterations=3, ended=False), loop(100, 10, iterations=27, unfinished=1)
    rows = text_of(training_table({"a": one, "b": going, "c": short}))
    assert ["iterations", "-", "3 (unfinished)", "27 (unfinished)"] in rows
    for row in (["method", "-", "carl", "carl"], ["responses updated", "-", "10", "10"], ["updates", "-", "1", "1"]):
        assert row in rows


def test_what_a_budget_cut_is_told_beside_what_it_is_compared_with() -> None:
    """The first solves task 0 of four; the other walked two of them, at twice the cost."""
    runs = side_by_side({"a": evaluation("+---", 10), "b": evaluation("+-", 20)})
    header, first, second = text_of(label_table("L0", runs))
    assert header[-1] == "tasks in common"
    assert (first[2][:4], first[-1]) == ("25.0", "")
    assert (second[2][:4], second[3][:4], second[-1]) == ("50.0", "+0.0", "2")


def test_cost_is_relative_to_what_the_first_paid_for_the_same_tasks() -> None:
    first = episodes({"0": "+"}, tokens=10) + episodes({"1": "+"}, tokens=90)
    runs = side_by_side({"a": first, "b": episodes({"0": "+"}, tokens=20)})
    rows = text_of(behaviour_table("L0", runs))
    assert [row[-1] for row in rows] == ["tokens a task", "50.0", "20.0 x2.00"]


def test_a_kind_without_a_task_in_common_has_no_gain() -> None:
    runs = side_by_side({"a": evaluation("+", 10), "b": evaluation("++", 10)})
    _, clean, heat = text_of(kinds_table("L0", runs))
    assert (clean[2][-5:], heat[1], heat[2]) == (" +0.0", "-", "100.0 (20.7-100.0)")


def test_errored_episodes_have_a_column_where_there_are_any() -> None:
    runs = side_by_side({"a": evaluation("++", 10), "b": evaluation("+!", 10)})
    assert [row[-1] for row in text_of(label_table("L0", runs))] == ["errored", "0", "1"]
    assert "errored" not in text_of(label_table("L0", RUNS))[0]


def test_hostile_names_are_shown_as_they_are() -> None:
    name, kind = "runs/[red]x[/nope]\x1b[31m\\", "[bold]k[/x]:warning:\x1b"
    rows = episodes({"t": "+"}, kinds=(kind,))
    runs = side_by_side({"a": rows, name: rows})
    result = RunComparison(first="a", evaluations={name: runs}, trees={"a": trees(1, 0), name: trees(1, 0, kind)})
    out = io.StringIO()
    for table in comparison_tables(result):
        Console(file=out, width=250, emoji=False).print(table)
    assert "\x1b" not in out.getvalue()
    assert out.getvalue().count("runs/[red]x[/nope]\\x1b[31m\\") == 3 + 4 + 2
    assert out.getvalue().count("[bold]k[/x]:warning:\\x1b") == 2


def test_every_part_of_a_result_has_its_table() -> None:
    wilcoxon = over_benchmarks({"b": [0.2, 0.3]})
    result = RunComparison(
        first="a",
        evaluations={"L0": RUNS},
        wilcoxon=wilcoxon,
        benchmarks=["L0", "L2"],
        trees={"a": trees(1, 0), "b": trees(1, 0)},
        training={"a": loop(10, 0), "b": loop(10, 0)},
    )
    tables = list(comparison_tables(result))
    assert len(tables) == 7
    assert "signed-rank over L0, L2, " in tables[4].title
    assert text_of(tables[4])[1] == ["b", "2", "0.5"]


def made_tests(difference: float, low: float, high: float, **p: float | None) -> PairedTests:
    gain = Difference(difference=difference, low=low, high=high)
    return PairedTests(tasks=140, gained=71, lost=4, success=gain, tokens=None, steps=None, **p)


@pytest.mark.parametrize(
    ("low", "high", "mcnemar", "relation"),
    [
        (0.3, 0.6, 1e-20, "b is better than a"),
        (0.3, 0.6, None, "b is better than a"),
        (0.3, 0.6, 0.25, "b cannot be told from a"),
        (-0.1, 0.6, 0.01, "b cannot be told from a"),
        (-0.6, -0.3, 0.01, "b is worse than a"),
        (-0.6, -0.3, 0.06, "b cannot be told from a"),
        (0.0, 0.1, None, "b cannot be told from a"),
    ],
)
def test_the_verdict_needs_the_interval_and_the_exact_test(
    low: float, high: float, mcnemar: float | None, relation: str
) -> None:
    sentence = verdict("greedy", "a", "b", made_tests((low + high) / 2, low, high, mcnemar=mcnemar)).plain
    assert sentence.startswith(f"{relation} on greedy: ")
    assert "71 gained, 4 lost" in sentence
    assert (f"p {mcnemar:.2g}" in sentence) if mcnemar is not None else ("p " not in sentence.partition("points")[2])


def test_several_samples_a_task_need_the_signed_rank_test() -> None:
    """Two tasks of three samples: the bootstrap alone would call b better, in words and in green."""
    runs = side_by_side({"a": episodes({"1": "---", "2": "+--"}), "b": episodes({"1": "+--", "2": "+++"})})
    against = runs["b"].against
    assert against
    assert verdict("L0", "a", "b", against).plain.startswith("b cannot be told from a on L0: ")
    assert "p 0.5;" in verdict("L0", "a", "b", against).plain
    out = io.StringIO()
    Console(file=out, width=250, color_system="standard", force_terminal=True).print(label_table("L0", runs))
    assert "\x1b[32m" not in out.getvalue()
    sure = verdict("L0", "a", "b", made_tests(0.2, 0.1, 0.3, mcnemar=None, signed_rank=0.01))
    assert (sure.plain.startswith("b is better than a on L0: "), str(sure.style)) == (True, "green")
