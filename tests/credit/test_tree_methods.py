"""carl, treerl, treerpo, arpo and rloo: arithmetic done by hand, and a simulation of who is biased."""

import math
import random
from statistics import fmean, stdev

import msgspec
import pytest
from agentcli.credit import arpo, carl, rloo, treerl, treerpo
from agentcli.errors import DataError
from agentcli.records.types import Credit, Outcome, Step, Tree, Validity
from credit_trees import ERRORED, FAILURE, SUCCESS, advantages, outcomes, step, tree


def uneven(invalid: int | None = None, *more: Outcome) -> Tree:
    """Two first steps, 0 and the failure 5. Below 0 the success 1 and the step 2, which forks into the success 3 and the failure 4.
    `more`: further leaves below 2."""
    ends = {1: SUCCESS, 3: SUCCESS, 4: FAILURE, 5: FAILURE}
    steps = [step(n, parent, outcome=ends.get(n)) for n, parent in enumerate([None, 0, 0, 2, 2, None])]
    steps += [step(6 + n, 2, outcome=end) for n, end in enumerate(more)]
    if invalid is not None:
        steps[invalid].validity = Validity.INADMISSIBLE
    return tree(*steps)


def part(credit: Credit, name: str) -> list[float]:
    return [row.parts[name] for row in credit.steps]


def test_carl_by_hand() -> None:
    # E[2] = (1 + 0) / 2 = 1/2; E[0] = (1 + 1/2) / 2 = 3/4; E[root] = (3/4 + 0) / 2 = 3/8.
    credit = carl.assign(uneven(), carl.CarlSettings())
    assert part(credit, "expected") == [0.75, 1.0, 0.5, 1.0, 0.0, 0.0]
    assert part(credit, "baseline") == [0.375, 0.75, 0.75, 0.5, 0.5, 0.375]
    assert advantages(credit) == [0.375, 0.25, -0.25, 0.5, -0.5, -0.375]


def test_carl_charges_an_invalid_step_among_its_siblings_only() -> None:
    # Siblings 1 and 2 score 1 - .1 and 1/2, mean .7; all expectations stay.
    credit = carl.assign(uneven(invalid=1), carl.CarlSettings())
    assert advantages(credit) == pytest.approx([0.375, 0.2, -0.2, 0.5, -0.5, -0.375], abs=1e-12)
    assert part(credit, "expected") == [0.75, 1.0, 0.5, 1.0, 0.0, 0.0]


def test_carl_trains_critical_actions_only_unless_told_otherwise() -> None:
    # 0 -> 1 -> success 2 beside the failure 3: E[0] = E[1] = 1, E[root] = 1/2. Only 0 and 3 have a sibling; 1 and 2 inherit
    # from 0, the invalid 2 without its penalty.
    steps = [step(0, None), step(1, 0), step(2, 1, outcome=SUCCESS), step(3, None, outcome=FAILURE)]
    steps[2].validity = Validity.MALFORMED
    critical = carl.assign(tree(*steps), carl.CarlSettings())
    assert advantages(critical) == [0.5, None, None, -0.5]
    assert [row.masked for row in critical.steps] == [None, "only child", "only child", None]
    assert advantages(carl.assign(tree(*steps), carl.CarlSettings(update="all"))) == [0.5, 0.5, 0.5, -0.5]
    # A first step alone has nobody to inherit from.
    lonely = tree(step(0, None), step(1, 0, outcome=SUCCESS), step(2, 0, outcome=FAILURE))
    assert advantages(carl.assign(lonely, carl.CarlSettings(update="all"))) == [0.0, 0.5, -0.5]


def two_phases(*more: tuple[int | None, Outcome]) -> Tree:
    """N0 = 2: the success 0 1 2 and the failure 3 4 from scratch; then the failure 5, forked from the state after 0. `more`:
    further leaves with their parents."""
    ends = {2: SUCCESS, 4: FAILURE, 5: FAILURE}
    steps = [step(n, parent, outcome=ends.get(n)) for n, parent in enumerate([None, 0, 1, None, 3, 0])]
    steps += [step(6 + n, parent, outcome=end) for n, (parent, end) in enumerate(more)]
    return msgspec.structs.replace(tree(*steps), roots=2)


def test_carl_may_leave_out_the_first_phase() -> None:
    # E[0] = (1 + 0) / 2, E[3] = 0, E[root] = 1/4. From scratch: 0 1 2 3 4; forked later: only the state that 1 and 5 leave.
    credits = {
        phase: carl.assign(two_phases(), carl.CarlSettings(first_phase=phase)) for phase in ("all", "forked", "none")
    }
    assert advantages(credits["all"]) == [0.25, 0.5, None, -0.25, None, -0.5]
    assert advantages(credits["forked"]) == [None, 0.5, None, None, None, -0.5]
    assert advantages(credits["none"]) == [None, None, None, None, None, -0.5]
    reasons = ["first phase", None, "first phase", "first phase", "first phase", None]
    assert [row.masked for row in credits["forked"].steps] == reasons
    assert all(row.parts == {} for row in credits["forked"].steps if row.masked)
    # Once the root is forked (by 6), the first actions of both trajectories have a sibling of the second phase.
    forked = carl.assign(two_phases((None, SUCCESS)), carl.CarlSettings(first_phase="forked"))
    assert [row.step for row in forked.steps if row.advantage is not None] == [0, 1, 3, 5, 6]
    # `update: all` trains the rest of the second phase too, and of the first phase no more than before.
    every = carl.CarlSettings(first_phase="forked", update="all")
    assert [row.step for row in carl.assign(two_phases(), every).steps if row.advantage is not None] == [1, 5]


def test_a_fork_that_errored_forks_nothing() -> None:
    lost = two_phases()
    lost.steps[5].outcome = ERRORED
    credit = carl.assign(lost, carl.CarlSettings(first_phase="forked"))
    assert [row.masked for row in credit.steps] == ["first phase"] * 5 + ["errored"]


@pytest.mark.parametrize("phase", ["forked", "none"])
def test_a_tree_that_does_not_say_what_its_first_phase_is_is_refused(phase: str) -> None:
    with pytest.raises(DataError) as caught:
        carl.assign(uneven(), carl.CarlSettings(first_phase=phase))
    assert str(caught.value).startswith("task t: roots: ")
    assert "rollout --method carl" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert advantages(carl.assign(uneven(), carl.CarlSettings())) == [0.375, 0.25, -0.25, 0.5, -0.5, -0.375]


def test_carl_leaves_errored_children_out() -> None:
    credit = carl.assign(uneven(None, ERRORED), carl.CarlSettings())
    assert advantages(credit) == [0.375, 0.25, -0.25, 0.5, -0.5, -0.375, None]
    # With the failure 4 errored too, 3 is an only child and E[2] = 1.
    lost = uneven(None, ERRORED)
    lost.steps[4].outcome = ERRORED
    assert advantages(carl.assign(lost, carl.CarlSettings())) == [0.5, 0.0, 0.0, None, None, -0.5, None]


def test_treerl_by_hand() -> None:
    # Leaves below 0: 1 3 4, V = 2/3; below 2: 3 4, V = 1/2; root: V = 2/4.
    # 0: 3^-1/2 (1/6 + 1/6); 1: 1/2 + 1/3; 2: 2^-1/2 (0 - 1/6); 3: 1/2 + 1/2; 4: -1/2 - 1/2; 5: -1/2 - 1/2.
    credit = treerl.assign(uneven(), treerl.TreerlSettings())
    wanted = [1 / 3 / math.sqrt(3), 5 / 6, -1 / 6 / math.sqrt(2), 1.0, -1.0, -1.0]
    assert advantages(credit) == pytest.approx(wanted, abs=1e-12)
    assert part(credit, "value") == pytest.approx([2 / 3, 1, 0.5, 1, 0, 0])
    assert part(credit, "leaves") == [3, 1, 2, 1, 1, 1]


def test_treerl_baselines_hold_the_penalty() -> None:
    # Step 1 is invalid. Mean penalty of the trajectories 5 | 0 1 | 0 2 3 | 0 2 4: .1 (0 + 1/2 + 0 + 0) / 4 = .0125, so the root's
    # baseline is .4875; that of 1 and 2, whose leaves are 1 and 2: 2/3 - .1 / 3 = .6333.
    credit = treerl.assign(uneven(invalid=1), treerl.TreerlSettings())
    above = 2 / 3 - 0.1 / 3
    assert credit.steps[1].advantage == pytest.approx((0.9 - 0.4875) + (0.9 - above), abs=1e-12)
    assert credit.steps[2].advantage == pytest.approx(((0.5 - 0.4875) + (0.5 - above)) / math.sqrt(2), abs=1e-12)
    assert credit.steps[5].advantage == pytest.approx(-0.4875 - 0.5, abs=1e-12)


def test_treerpo_by_hand() -> None:
    # Siblings 3/4 and 0: mean 3/8, std 3/8 sqrt 2. 1 and 1/2: mean 3/4, std 1/4 sqrt 2. 1 and 0: mean 1/2, std 1/2 sqrt 2.
    credit = treerpo.assign(uneven(), treerpo.TreerpoSettings())
    high, middle, low = (d / (d * math.sqrt(2) + 1e-6) for d in (0.375, 0.25, 0.5))
    assert advantages(credit) == pytest.approx([high, middle, -middle, low, -low, -high], abs=1e-12)
    plain = treerpo.assign(uneven(), treerpo.TreerpoSettings(normalise="mean"))
    assert advantages(plain) == [0.375, 0.25, -0.25, 0.5, -0.5, -0.375]
    # An invalid step 1 scores .9 against .5: mean .7.
    charged = treerpo.assign(uneven(invalid=1), treerpo.TreerpoSettings(normalise="mean"))
    assert advantages(charged) == pytest.approx([0.375, 0.2, -0.2, 0.5, -0.5, -0.375], abs=1e-12)


def test_treerpo_gives_an_only_child_nothing() -> None:
    grown = tree(step(0, None), step(1, 0, outcome=SUCCESS), step(2, 0, outcome=FAILURE))
    grown.steps[0].validity = Validity.MALFORMED
    assert advantages(treerpo.assign(grown, treerpo.TreerpoSettings(normalise="mean"))) == [0.0, 0.5, -0.5]


def test_arpo_by_hand() -> None:
    # Leaves 1 1 0 0: mean 1/2, std sqrt(1/3). Step 0 is shared by 1 3 4: ((1/2 + 1/2 - 1/2) / 3) / std; step 2 by 3 and 4: 0.
    credit = arpo.assign(uneven(), arpo.ArpoSettings())
    std = math.sqrt(1 / 3) + 1e-6
    wanted = [1 / 6 / std, 0.5 / std, 0.0, 0.5 / std, -0.5 / std, -0.5 / std]
    assert advantages(credit) == pytest.approx(wanted, abs=1e-12)
    plain = arpo.assign(uneven(), arpo.ArpoSettings(normalise="mean", success_reward=6.0))
    assert advantages(plain) == pytest.approx([1, 3, 0, 3, -3, -3], abs=1e-12)


def test_rloo_by_hand() -> None:
    # Outcomes 1 1 0 0: a success less the mean of the others 1 - 1/3, a failure 0 - 2/3.
    credit = rloo.assign(outcomes([2, 1, 3, 1], [SUCCESS, SUCCESS, FAILURE, FAILURE]), rloo.RlooSettings())
    assert advantages(credit) == pytest.approx([2 / 3] * 3 + [-2 / 3] * 4, abs=1e-12)
    # Over steps, rows 1 1 1 | 0 0 0 0: a success row less the other rows' mean 1 - 2/6, a failure row 0 - 3/6.
    rows = rloo.assign(outcomes([2, 1, 3, 1], [SUCCESS, SUCCESS, FAILURE, FAILURE]), rloo.RlooSettings(over="steps"))
    assert advantages(rows) == pytest.approx([2 / 3] * 3 + [-1 / 2] * 4, abs=1e-12)
    # A shared step takes the mean of its leaves: 0 of 1 3 4, 2 of 3 4.
    assert advantages(rloo.assign(uneven(), rloo.RlooSettings())) == pytest.approx(
        [(2 / 3 + 2 / 3 - 2 / 3) / 3, 2 / 3, 0.0, 2 / 3, -2 / 3, -2 / 3], abs=1e-12
    )


def test_rloo_penalty_is_inside_the_baseline() -> None:
    # Two failures of one step, the first invalid: -.1 - 0 and 0 - (-.1).
    credit = rloo.assign(outcomes([1, 1], [FAILURE, FAILURE], invalid={(0, 0)}), rloo.RlooSettings())
    assert advantages(credit) == pytest.approx([-0.1, 0.1], abs=1e-12)


def test_rloo_of_one_trajectory() -> None:
    assert advantages(rloo.assign(outcomes([2], [SUCCESS]), rloo.RlooSettings())) == [0.0, 0.0]
    assert advantages(rloo.assign(outcomes([1], [SUCCESS]), rloo.RlooSettings(form="release"))) == [1.0]


def sampled(draw: random.Random) -> Tree:
    """A known policy: from the root a or b with 1/2 each; after a the next step succeeds with .9, after b with .1. Two trajectories
    from the root, and three more continuations of every state that a leads to: forked unevenly, as guided search does."""
    steps: list[Step] = []
    for _ in range(2):
        good = draw.random() < 0.5
        steps.append(step(len(steps), None))
        first = steps[-1].id
        for _ in range(4 if good else 1):
            won = draw.random() < (0.9 if good else 0.1)
            steps.append(step(len(steps), first, outcome=SUCCESS if won else FAILURE))
    return tree(*steps)


def interval(values: list[float]) -> tuple[float, float]:
    """99.9 % of the mean."""
    middle, half = fmean(values), 3.29 * stdev(values) / math.sqrt(len(values))
    return middle - half, middle + half


def test_carl_is_unbiased_under_uneven_forking_and_treerl_is_not() -> None:
    """CARL App. A.1, where no action sampled in a state decides how often it is forked; Algorithm 1: test_carl_bias.py.
    True value of the root: (.9 + .1) / 2 = .5. The mean over leaves weighs a's four leaves against b's one: with first
    steps aa .9, ab (4 * .9 + .1) / 5 = .74, bb .1, hence .9 / 4 + .74 / 2 + .1 / 4 = .62. arpo's baseline is treerl's."""
    draw = random.Random(7)
    roots: dict[str, list[float]] = {"carl": [], "treerl": [], "arpo": []}
    for _ in range(4000):
        grown = sampled(draw)
        first = carl.assign(grown, carl.CarlSettings()).steps[0]
        roots["carl"].append(first.parts["baseline"])
        first = treerl.assign(grown, treerl.TreerlSettings()).steps[0]
        roots["treerl"].append(first.parts["value"] - first.parts["global"])
        roots["arpo"].append(arpo.assign(grown, arpo.ArpoSettings()).steps[0].parts["baseline"])
    intervals = {name: interval(values) for name, values in roots.items()}
    assert intervals["carl"][0] < 0.5 < intervals["carl"][1], intervals
    for name in ("treerl", "arpo"):
        assert intervals[name][0] < 0.62 < intervals[name][1], intervals
        assert intervals[name][0] > 0.5 + 0.08, intervals
    assert intervals["carl"][1] - intervals["carl"][0] < 0.04
