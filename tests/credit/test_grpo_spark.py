"""grpo and spark in the paper form: arithmetic done by hand."""

import math

import pytest
from agentcli.credit import grpo, spark
from agentcli.credit.statistics import CreditStatistics
from agentcli.records.types import Credit, Outcome, StepCredit, Tree, Validity
from credit_trees import ERRORED, FAILURE, SUCCESS, TRUNCATED, advantages, outcomes, step, tree

GRPO = grpo.GrpoSettings


def forked(*extra: Outcome) -> Tree:
    """A prefix of one step (0) with a success (1) and a failure (2) below it, and single-step trajectories `extra` beside."""
    steps = [step(0, None), step(1, 0, outcome=SUCCESS), step(2, 0, outcome=FAILURE)]
    return tree(*steps, *(step(3 + n, None, outcome=end) for n, end in enumerate(extra)))


def test_two_of_four_succeed() -> None:
    # R = 1 1 0 0: mean 1/2, std = sqrt(4 * (1/2)^2 / 3) = sqrt(1/3).
    credit = grpo.assign(outcomes([2, 1, 3, 1], [SUCCESS, SUCCESS, FAILURE, TRUNCATED]), GRPO())
    high = 0.5 / (math.sqrt(1 / 3) + 1e-6)
    assert advantages(credit) == pytest.approx([high] * 3 + [-high] * 4, abs=1e-12)
    assert credit.method == "grpo"
    assert credit.task == "t"
    assert all(row.weight == 1.0 and row.masked is None for row in credit.steps)


def test_mean_only_and_success_reward() -> None:
    credit = grpo.assign(outcomes([1, 1, 1, 2], [SUCCESS] + [FAILURE] * 3), GRPO(normalise="mean", success_reward=10.0))
    assert advantages(credit) == pytest.approx([7.5, -2.5, -2.5, -2.5, -2.5], abs=1e-12)


def test_penalty_is_inside_the_baseline_when_nobody_succeeds() -> None:
    # T = 2, 3 and the first step of the first is invalid: scores -0.1 0 | 0 0 0 with weights 1/2 1/2 | 1/3 1/3 1/3.
    # mean = (-0.1 / 2) / 2 = -0.025
    # variance = (0.075^2 / 2 + 0.025^2 / 2 + 3 * 0.025^2 / 3) / (2 - 1) = 0.0028125 + 0.0003125 + 0.000625 = 0.00375
    tree_ = outcomes([2, 3], [FAILURE, TRUNCATED], invalid={(0, 0)})
    std = math.sqrt(0.00375) + 1e-6
    credit = grpo.assign(tree_, GRPO())
    assert advantages(credit) == pytest.approx([-0.075 / std] + [0.025 / std] * 4, abs=1e-12)
    assert credit.steps[0].parts == pytest.approx({"reward": 0.0, "penalty": 0.1, "baseline": -0.025})
    plain = advantages(grpo.assign(tree_, GRPO(normalise="mean")))
    assert plain == pytest.approx([-0.075, 0.025, 0.025, 0.025, 0.025], abs=1e-12)


@pytest.mark.parametrize("over", ["trajectories", "steps"])
def test_one_trajectory_is_its_own_baseline(over: str) -> None:
    credit = grpo.assign(outcomes([2, 1], [SUCCESS, ERRORED]), GRPO(over=over))
    assert advantages(credit) == [0.0, 0.0, None]
    assert [row.parts["baseline"] for row in credit.steps[:2]] == [1.0, 1.0]


def test_over_steps_lets_long_trajectories_weigh_more() -> None:
    # Rows 1 | 0 0 0: mean 1/4, std = sqrt((9/16 + 3/16) / 3) = 1/2.
    credit = grpo.assign(outcomes([1, 3], [SUCCESS, FAILURE]), GRPO(over="steps"))
    assert advantages(credit) == pytest.approx([0.75 / 0.500001] + [-0.25 / 0.500001] * 3, abs=1e-12)


def test_shared_prefix_merged_and_duplicated() -> None:
    # Leaves 1 0 0: mean 1/3, std = sqrt((4/9 + 1/9 + 1/9) / 2) = sqrt(1/3). The prefix has mean reward 1/2.
    std = math.sqrt(1 / 3) + 1e-6
    merged = grpo.assign(forked(FAILURE), GRPO())
    assert advantages(merged) == pytest.approx([1 / 6 / std, 2 / 3 / std, -1 / 3 / std, -1 / 3 / std], abs=1e-12)
    doubled = grpo.assign(forked(FAILURE), GRPO(prefix="duplicate"))
    assert [row.step for row in doubled.steps] == [0, 1, 0, 2, 3]
    high, low = 2 / 3 / std, -1 / 3 / std
    assert advantages(doubled) == pytest.approx([high, high, low, low, low], abs=1e-12)


def test_over_steps_counts_a_merged_prefix_once() -> None:
    # Rows 1/2 1 0: mean 1/2, differences 0 1/2 -1/2. Duplicated: 1 1 0 0.
    settings = GRPO(over="steps", normalise="mean")
    assert advantages(grpo.assign(forked(), settings)) == pytest.approx([0, 0.5, -0.5], abs=1e-12)
    doubled = GRPO(over="steps", normalise="mean", prefix="duplicate")
    assert advantages(grpo.assign(forked(), doubled)) == pytest.approx([0.5, 0.5, -0.5, -0.5], abs=1e-12)


@pytest.mark.parametrize("prefix", ["merge", "duplicate"])
def test_errored_leaves_are_masked_and_change_nothing_else(prefix: str) -> None:
    broken = forked(FAILURE, ERRORED)
    broken.steps.append(step(5, 0, outcome=ERRORED))
    without = grpo.assign(forked(FAILURE), GRPO(prefix=prefix))
    credit = grpo.assign(broken, GRPO(prefix=prefix))
    masked = [row for row in credit.steps if row.advantage is None]
    assert [(row.step, row.masked) for row in masked] == [(4, "errored"), (5, "errored")]
    assert [row for row in credit.steps if row.advantage is not None] == without.steps


def test_a_prefix_of_errored_leaves_is_masked_once() -> None:
    lost = forked(SUCCESS)
    lost.steps[1].outcome = lost.steps[2].outcome = ERRORED
    for prefix in ("merge", "duplicate"):
        credit = grpo.assign(lost, GRPO(prefix=prefix))
        assert [(row.step, row.advantage) for row in credit.steps] == [(0, None), (1, None), (2, None), (3, 0.0)]


def test_everything_errored() -> None:
    credit = grpo.assign(outcomes([2, 1], [ERRORED, ERRORED]), GRPO())
    assert advantages(credit) == [None, None, None]


def test_group_of_one() -> None:
    lonely = outcomes([2], [SUCCESS], invalid={(0, 1)})
    assert advantages(grpo.assign(lonely, GRPO())) == [0.0, 0.0]
    assert advantages(grpo.assign(lonely, GRPO(over="steps"))) == [0.0, 0.0]
    single = outcomes([1], [SUCCESS])
    assert advantages(grpo.assign(single, GRPO(form="release"))) == pytest.approx([1.0], abs=1e-5)


@pytest.mark.parametrize("normalise", ["std", "mean"])
def test_the_release_counts_rows_so_one_trajectory_of_several_is_a_group(normalise: str) -> None:
    """Its torch.mean and torch.std run over the list of a group's rows, and only a list of one keeps its score."""
    release = GRPO(form="release", normalise=normalise)
    # Rows 1 1: mean 1, std 0. Both forms of the account say why.
    for grown in (outcomes([2], [SUCCESS]), outcomes([3], [FAILURE])):
        assert set(advantages(grpo.assign(grown, release))) == {0.0}
    # Rows 1 .9: mean .95, std sqrt(2 * .05^2 / 1).
    computed = advantages(grpo.assign(outcomes([2], [SUCCESS], invalid={(0, 1)}), release))
    divisor = math.sqrt(2 * 0.05**2) + 1e-6 if normalise == "std" else 1.0
    assert computed == pytest.approx([0.05 / divisor, -0.05 / divisor], abs=1e-12)
    # One row keeps its score, an invalid one with its penalty.
    divisor = 1 + 1e-6 if normalise == "std" else 1.0
    lonely = outcomes([1], [SUCCESS], invalid={(0, 0)})
    assert advantages(grpo.assign(lonely, release)) == pytest.approx([0.9 / divisor], abs=1e-12)
    # Over trajectories a trajectory is one row, however long.
    once = GRPO(form="release", normalise=normalise, over="trajectories")
    assert advantages(grpo.assign(outcomes([2], [SUCCESS]), once)) == pytest.approx([1 / divisor] * 2, abs=1e-12)


@pytest.mark.parametrize("reward", [0.1, 0.3, 1.0, 10.0])
@pytest.mark.parametrize("end", [SUCCESS, FAILURE])
@pytest.mark.parametrize("normalise", ["std", "mean"])
def test_equal_outcomes_are_exactly_zero(reward: float, end: Outcome, normalise: str) -> None:
    credit = grpo.assign(outcomes([1, 2, 4], [end] * 3), GRPO(success_reward=reward, normalise=normalise))
    assert advantages(credit) == [0.0] * 7


def test_spark_is_grpo_over_the_leaves_with_its_own_reward() -> None:
    both = forked(FAILURE, TRUNCATED)
    ours = spark.assign(both, spark.SparkSettings(normalise="mean"))
    assert ours.method == "spark"
    # Leaves 10 0 0 0: mean 2.5, the prefix has mean reward 5.
    assert advantages(ours) == pytest.approx([2.5, 7.5, -2.5, -2.5, -2.5], abs=1e-12)
    same = grpo.assign(both, GRPO(normalise="mean", success_reward=10.0))
    assert [(row.step, row.advantage) for row in ours.steps] == [(row.step, row.advantage) for row in same.steps]


def test_form_decides_over_and_prefix_unless_they_are_set() -> None:
    assert (GRPO().over, GRPO().prefix) == ("trajectories", "merge")
    assert (GRPO(form="release").over, GRPO(form="release").prefix) == ("steps", "duplicate")
    assert GRPO(form="release", prefix="merge").prefix == "merge"


def test_inadmissible_and_malformed_cost_the_same() -> None:
    grown = outcomes([2, 2], [FAILURE, FAILURE], invalid={(0, 0), (1, 1)})
    grown.steps[3].validity = Validity.INADMISSIBLE
    computed = advantages(grpo.assign(grown, GRPO(normalise="mean")))
    assert computed == pytest.approx([-0.05, 0.05, 0.05, -0.05], abs=1e-12)


def test_statistics_stream() -> None:
    statistics = CreditStatistics()
    assert statistics.summary()["mean"] is None
    for grown in (
        outcomes([1, 1], [SUCCESS, FAILURE]),
        outcomes([1, 1], [FAILURE, FAILURE]),
        outcomes([1, 1, 1], [SUCCESS, SUCCESS, ERRORED]),
    ):
        statistics.add(grown, grpo.assign(grown, GRPO(normalise="mean")))
    computed = statistics.summary()
    # Rows 0.5 -0.5 | 0 0 | 0 0 masked: spread^2 = 0.5 / 5.
    assert computed.pop("spread") == pytest.approx(math.sqrt(0.1))
    assert computed == {
        "trees": 3,
        "rows": 7,
        "mean": pytest.approx(0.0),
        "drift": pytest.approx(0.0),
        "share_zero": pytest.approx(4 / 6),
        "share_masked": pytest.approx(1 / 7),
        "groups_without_success": 1,
        "groups_all_equal": 2,
        "equal_outcomes": {"rows": 4, "rows_not_zero": 0, "share_of_mass": 0.0},
        "nonzero": {},
    }


def test_a_tree_of_errored_leaves_is_neither_equal_nor_without_success() -> None:
    statistics = CreditStatistics()
    broken = outcomes([1, 1], [ERRORED, ERRORED])
    statistics.add(broken, grpo.assign(broken, GRPO()))
    computed = statistics.summary()
    assert computed["trees"] == 1
    assert (computed["groups_without_success"], computed["groups_all_equal"]) == (0, 0)


def test_advantages_of_groups_with_equal_outcomes_are_counted() -> None:
    """Of 2 + 4 rows: the second group has a penalty alone to tell its trajectories apart."""
    statistics = CreditStatistics()
    for grown in (
        outcomes([1, 1], [SUCCESS, FAILURE]),
        outcomes([2, 2], [FAILURE, FAILURE], invalid={(0, 0)}),
    ):
        statistics.add(grown, grpo.assign(grown, GRPO(normalise="mean")))
    counts = statistics.summary()["equal_outcomes"]
    assert counts["rows"] == 4
    assert counts["rows_not_zero"] == 4
    masses = [abs(value) for value in advantages(grpo.assign(grown, GRPO(normalise="mean")))]
    assert counts["share_of_mass"] == pytest.approx(sum(masses) / (1.0 + sum(masses)))


def test_summands_that_say_nothing_are_counted() -> None:
    """Of four assigned rows: action 0 in three, trajectory in none; other parts and masked rows do not count."""
    grown = outcomes([1] * 5, [SUCCESS, FAILURE, SUCCESS, FAILURE, ERRORED])
    parts = [{"action": float(number == 2), "trajectory": 1.0 + number, "gain": 0.0} for number in range(5)]
    rows = [StepCredit(step=number, advantage=0.5, parts=parts[number]) for number in range(4)]
    rows.append(StepCredit(step=4, advantage=None, parts=parts[2], masked="errored"))
    statistics = CreditStatistics()
    statistics.add(grown, Credit(task=grown.task.id, method="rewardflow", steps=rows))
    assert statistics.summary()["nonzero"] == {"action": 0.25, "trajectory": 1.0}


def test_drift_is_the_mean_against_the_spread() -> None:
    # Advantages 1 1 (two errored beside them) and 0 0: mean 1/2, spread sqrt(4 * 1/4 / 3) = sqrt(1/3).
    statistics = CreditStatistics()
    for end, advantage in ((SUCCESS, 1.0), (FAILURE, 0.0)):
        grown = outcomes([1, 1, 1], [end, end, ERRORED])
        rows = [StepCredit(step=n, advantage=advantage if n < 2 else None) for n in range(3)]
        statistics.add(grown, Credit(task="t", method="m", steps=rows))
    assert statistics.summary()["drift"] == pytest.approx(0.5 / math.sqrt(1 / 3))
    assert statistics.warnings == []


def test_a_warning_where_nothing_can_be_learnt() -> None:
    failed, errored = outcomes([1, 1], [FAILURE, FAILURE]), outcomes([2], [ERRORED])
    for trees, words in (
        ([], "no step in any tree"),
        ([errored], "all 2 rows are masked"),
        ([failed, failed, errored], "all 4 advantages are zero; 2 of 3 trees have no success, 2 have equal outcomes"),
    ):
        statistics = CreditStatistics()
        for grown in trees:
            statistics.add(grown, grpo.assign(grown, GRPO()))
        (line,) = statistics.warnings
        assert "nothing to learn" in line
        assert words in line
    mixed = outcomes([1, 1], [SUCCESS, FAILURE])
    statistics.add(mixed, grpo.assign(mixed, GRPO()))
    assert statistics.warnings == []
