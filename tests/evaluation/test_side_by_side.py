"""Evaluations side by side, on episodes small enough to count by hand."""

import pytest
from agentcli.evaluation.compare import SignedRankTest, over_benchmarks, paired, side_by_side
from agentcli.records.types import Outcome
from evaluated import episodes
from msgspec import UNSET


def test_success_cost_and_behaviour_against_the_first() -> None:
    base = episodes({"t1": "+", "t2": "-", "t3": "-", "t4": "-"})
    other = episodes({"t1": "-", "t2": "+", "t3": "+", "t4": "+"}, tokens=25)
    rows = side_by_side({"base": base, "other": other})
    assert rows["base"].against is UNSET
    against = rows["other"].against
    assert against.success.difference == pytest.approx(0.5)
    assert against.mcnemar == pytest.approx(2 * (1 + 4) / 2**4)
    assert (against.tasks, against.tokens, against.steps) == (4, 2.5, 1.0)
    assert rows["other"].ledger.generated_tokens == 100
    assert (rows["other"].repetitive, rows["other"].explore) == (0.25, 0.5)


def test_several_samples_a_task_have_no_mcnemar_but_a_share_of_solved_tasks() -> None:
    base, other = episodes({"t1": "+", "t2": "-"}), episodes({"t1": "+-", "t2": "-+"}, tokens=20)
    row = side_by_side({"base": base, "other": other})["other"]
    assert (row.success.rate, row.solved.rate) == (0.5, 1.0)
    assert row.against.mcnemar is None
    assert row.against.success.difference == 0.0
    assert (row.against.tokens, row.against.steps) == (2.0, 2.0)


def test_a_few_tasks_of_several_samples_are_tested_exactly() -> None:
    """Two tasks that gain have p = 2 / 2 ** 2, however sure the bootstrap is; without a task, or of many, there is none."""
    against = paired(episodes({"t1": "---", "t2": "+--"}), episodes({"t1": "+--", "t2": "+++"}))
    assert against.success.low > 0
    assert (against.mcnemar, against.signed_rank, against.p) == (None, 0.5, 0.5)
    many = episodes({f"t{number}": "+-" for number in range(101)})
    assert paired(many[2:], many[2:]).signed_rank == 1.0
    assert paired(many, many).signed_rank is None
    assert paired(many[:2], many[2:]).signed_rank is None
    alone = paired(episodes({"t1": "-", "t2": "+"}), episodes({"t1": "+", "t2": "+"}))
    assert alone.p == alone.mcnemar == 1.0


def test_only_tasks_of_both_are_paired() -> None:
    base, other = episodes({"t1": "+", "t2": "-", "t3": "+"}), episodes({"t1": "+", "t2": "+"}, tokens=20)
    against = paired(base, other)
    assert (against.tasks, against.tokens) == (2, 2.0)
    assert against.success.difference == 0.5


def test_kinds_are_compared_by_themselves() -> None:
    base = episodes({"t1": "-"}, kinds=("clean",)) + episodes({"t2": "+"}, kinds=("heat",))
    other = episodes({"t1": "+"}, kinds=("clean",)) + episodes({"t2": "+"}, kinds=("heat",))
    kinds = side_by_side({"base": base, "other": other})["other"].kinds
    assert {kind: row.against.success.difference for kind, row in kinds.items()} == {"clean": 1.0, "heat": 0.0}
    assert {kind: row.against.tasks for kind, row in kinds.items()} == {"clean": 1, "heat": 1}


def test_nothing_generated_has_no_ratio() -> None:
    base = episodes({"t1": "+"}, tokens=0)
    assert paired(base, base).tokens is None
    assert paired(base, base).steps == 1.0


def test_benchmarks() -> None:
    gains = {"spark": [0.1, 0.2, 0.3, 0.4, 0.5], "same": [0.0] * 5}
    assert over_benchmarks(gains) == {
        "spark": SignedRankTest(benchmarks=5, p=2 / 2**5),
        "same": SignedRankTest(benchmarks=5, p=1.0),
    }


def test_a_kind_that_only_one_walked_has_no_test() -> None:
    base = episodes({"t1": "-"})
    other = episodes({"t1": "+"}) + episodes({"t2": "+"}, kinds=("heat",))
    heat = side_by_side({"base": base, "other": other})["other"].kinds["heat"]
    assert heat.success.rate == 1.0
    assert (heat.against.tasks, heat.against.mcnemar, heat.against.tokens) == (0, None, None)


def test_errored_episodes_are_no_success_and_are_counted() -> None:
    row = side_by_side({"base": episodes({"t1": "+", "t2": "!"})})["base"]
    assert (row.success.rate, row.outcomes[Outcome.ERRORED]) == (0.5, 1)
