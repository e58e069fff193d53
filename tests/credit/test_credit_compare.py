"""Agreement of credit methods: correlations against scipy, signs, repeated and masked rows, steps furthest apart, the sample."""

import math

import numpy as np
import pytest
from agentcli.credit.compare import Comparison, by_step, pearson, ranks
from agentcli.credit.registry import make
from agentcli.records.types import Credit, StepCredit, Task, Tree
from credit_trees import FAILURE, SUCCESS, outcomes, step, tree
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats


def credit(*advantages: float | None) -> Credit:
    return Credit(task="t", method="m", steps=[StepCredit(step=n, advantage=one) for n, one in enumerate(advantages)])


def steps(count: int, kind: str = "k") -> Tree:
    grown = tree(*(step(n, None, outcome=SUCCESS) for n in range(count)))
    grown.task = Task(id="t", world="w", split="train", kind=kind)
    return grown


def compared(*columns: list[float | None]) -> Comparison:
    comparison = Comparison([f"m{n}" for n in range(len(columns))])
    comparison.add(1, steps(len(columns[0])), [credit(*column) for column in columns])
    return comparison


NUMBERS = st.lists(st.tuples(*[st.sampled_from([-2.0, -0.5, 0.0, 0.25, 3.0])] * 2), min_size=2, max_size=30)


@settings(max_examples=80, deadline=None)
@given(NUMBERS)
def test_correlations_are_scipys(rows: list[tuple[float, float]]) -> None:
    one, other = (list(column) for column in zip(*rows, strict=True))
    over_all = compared(one, other).agreement()[-1]
    assert (over_all.methods, over_all.kind, over_all.steps) == (["m0", "m1"], None, len(rows))
    if len(set(one)) == 1 or len(set(other)) == 1:
        assert over_all.pearson is over_all.spearman is None
    else:
        assert over_all.pearson == pytest.approx(stats.pearsonr(one, other).statistic)
        assert over_all.spearman == pytest.approx(stats.spearmanr(one, other).statistic)
    assert over_all.share_opposite == pytest.approx(sum(a * b < 0 for a, b in rows) / len(rows))


def test_only_steps_with_both_advantages_count_and_kinds_are_apart() -> None:
    comparison = Comparison(["a", "b"])
    comparison.add(1, steps(4, "heat"), [credit(1.0, 2.0, None, -1.0), credit(1.0, 2.0, 5.0, 1.0)])
    comparison.add(2, steps(3, "cool"), [credit(1.0, 2.0, 0.0), credit(-1.0, -2.0, -3.0)])
    rows = {row.kind: row for row in comparison.agreement()}
    assert list(rows) == ["cool", "heat", None]
    assert [rows[kind].steps for kind in rows] == [3, 3, 6]
    assert rows["heat"].share_opposite == pytest.approx(1 / 3)
    assert rows["cool"].share_zero_in_one == pytest.approx(1 / 3)
    assert rows["cool"].pearson == pytest.approx(stats.pearsonr([1, 2, 0], [-1, -2, -3]).statistic)
    first, second = comparison.methods()
    assert (first.steps, first.share_masked) == (6, pytest.approx(1 / 7))
    assert (second.share_masked, second.share_zero) == (0.0, 0.0)
    assert second.mean == pytest.approx(3 / 7)
    assert second.spread == pytest.approx(np.std([1, 2, 5, 1, -1, -2, -3], ddof=1))


def test_float_noise_is_neither_a_sign_nor_a_rank() -> None:
    row = compared([1e-17, 1.0, 1.0 + 1e-15, 2.0], [-0.5, 1.0, 1.0, 2.0]).agreement()[-1]
    assert (row.share_opposite, row.share_zero_in_one, row.spearman) == (0.0, 0.25, pytest.approx(1.0))
    assert compared([1e-17, 1.0], [0.0, 1.0]).methods()[0].share_zero == 0.5


def test_an_epsilon_in_a_division_is_no_difference() -> None:
    """Twice the same advantages, divided by spreads with an epsilon of 1e-6 in one of the two."""
    one = [1.5, -0.5, -0.5, -0.5, 1.0, -1.0]
    other = [2 * value / (1 + 1e-6 * number) for number, value in enumerate(one)]
    comparison = compared(one, other)
    assert comparison.agreement()[-1].spearman == pytest.approx(1.0)
    assert comparison.disagreements(10) == []
    assert compared([0.5, 0.5 + 1e-7, 0.5], [1.0, 2.0, 3.0]).agreement()[-1].pearson is None


def test_rows_of_one_step_are_its_weighted_mean() -> None:
    rows = [
        StepCredit(step=0, advantage=1.0),
        StepCredit(step=0, advantage=4.0, weight=0.5),
        StepCredit(step=0, advantage=None, masked="errored"),
        StepCredit(step=2, advantage=None, masked="errored"),
        StepCredit(step=3, advantage=7.0, weight=0.0),
    ]
    first, *others = by_step(Credit(task="t", method="m", steps=rows), 4)
    assert first == pytest.approx((1.0 + 2.0) / 1.5)
    assert all(math.isnan(other) for other in others)


def test_merged_and_duplicated_prefixes_compare_as_the_same_steps() -> None:
    shared = tree(
        step(0, None), step(1, 0, outcome=SUCCESS), step(2, 0, outcome=FAILURE), step(3, None, outcome=FAILURE)
    )
    comparison = Comparison(["merged", "duplicated"])
    credits = []
    for prefix in ("merge", "duplicate"):
        _, assign, switches = make({"method": "grpo", "prefix": prefix})
        credits.append(assign(shared, switches))
    comparison.add(1, shared, credits)
    row = comparison.agreement()[-1]
    assert (row.steps, row.pearson, row.spearman) == (4, pytest.approx(1.0), pytest.approx(1.0))
    assert comparison.disagreements(5) == []


def test_the_steps_furthest_apart_come_first_each_method_in_its_own_unit() -> None:
    """Root mean squares 1 and 10: apart by 0, 2, 1 and (masked in one) nothing."""
    comparison = compared([1.0, 1.0, -1.0, None], [10.0, -10.0, 0.0, 10.0 * math.sqrt(2)])
    rows = comparison.disagreements(2)
    assert [(row.line, row.step) for row in rows] == [(1, 1), (1, 2)]
    assert [row.distance for row in rows] == pytest.approx([2.0, 1.0])
    assert rows[0].advantages == {"m0": 1.0, "m1": -10.0}
    assert [row.step for row in comparison.disagreements(10)] == [1, 2]
    assert comparison.disagreements(0) == []


def test_a_masked_method_is_none_among_three() -> None:
    rows = compared([1.0, 1.0], [-1.0, 1.0], [None, 1.0]).disagreements(5)
    assert rows[0].advantages == {"m0": 1.0, "m1": -1.0, "m2": None}


def test_a_sample_bounds_what_is_kept_and_still_estimates() -> None:
    """2,000 of 20,000 steps with correlation 0.8: within 5 standard errors, (1 - r^2) / sqrt(n) = 0.008; one seed, one sample."""
    draw = np.random.default_rng(0)
    one = draw.normal(size=20_000)
    other = 0.8 * one + 0.6 * draw.normal(size=20_000)
    answers = []
    for _ in range(2):
        comparison = Comparison(["a", "b"], sample=2_000)
        for line in range(200):
            part = slice(100 * line, 100 * line + 100)
            comparison.add(line + 1, steps(100), [credit(*one[part].tolist()), credit(*other[part].tolist())])
        answers.append(comparison.agreement())
    assert (comparison.steps, comparison.kept) == (20_000, 2_000)
    assert answers[0] == answers[1]
    assert answers[0][-1].pearson == pytest.approx(0.8, abs=0.04)
    assert {row.line > 100 for row in comparison.disagreements(50)} == {True, False}


def test_methods_that_give_nothing_are_no_error() -> None:
    comparison = compared([None, None], [1.0, 2.0])
    row = comparison.agreement()[-1]
    assert (row.steps, row.pearson, row.share_opposite) == (0, None, None)
    assert comparison.methods()[0].mean is None
    assert comparison.disagreements(5) == []


def test_ranks_share_ties() -> None:
    assert ranks(np.array([3.0, 1.0, 3.0, 2.0])).tolist() == [3.5, 1.0, 3.5, 2.0]
    assert pearson(np.array([1.0]), np.array([1.0])) is None


def test_spark_agrees_with_grpo_but_for_its_scale() -> None:
    grown = outcomes([2, 1, 1], [SUCCESS, FAILURE, FAILURE])
    comparison = Comparison(["grpo", "spark"])
    made = [make({"method": name, "invalid_penalty": 0.0}) for name in comparison.names]
    comparison.add(1, grown, [assign(grown, switches) for _, assign, switches in made])
    assert comparison.agreement()[-1].pearson == pytest.approx(1.0)
