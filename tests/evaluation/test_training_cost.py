"""What a loop cost, on iterations small enough to sum by hand."""

from typing import Any

import msgspec
import pytest
from agentcli.evaluation.training import Iteration, ResponsesUpdated, course, training_cost
from agentcli.records.types import Ledger
from hypothesis import given
from hypothesis import strategies as st

SECONDS = {"policy": 2.0, "environment": 1.0}
TRAINED = {
    "settings": {"train": {"objective": "grpo"}},
    "inputs": {"x/trees.jsonl": "", "x/credit/grpo.jsonl": ""},
    "statistics": {"updates": 2, "rows": 8, "rows_skipped": 5, "rows_unassigned": 2},
    "seconds": {"wall": 3.0},
}
"""Three of ten responses were updated."""


def iteration(leaves: int = 4, success: int = 1, train: Any = TRAINED, **more: Any) -> Iteration:
    ledger = Ledger(leaves=leaves, steps=10, generated_tokens=60, prompt_tokens=100, shared_prompt_tokens=30)
    rollout = {
        "settings": {
            "environment": {"name": "toy", "split": "train"},
            "rollout": {"method": more.get("method", "chain")},
        },
        "counts": {
            "trees": more.get("trees", 2),
            "leaves": leaves,
            "success": success,
            "errored": more.get("errored", 0),
        },
        "statistics": {"forks_by_depth": more.get("forks_by_depth", [])},
        "ledger": more.get("ledger", ledger),
        "seconds": more.get("seconds", SECONDS),
    }
    return msgspec.convert({"rollout": rollout, "train": train}, Iteration)


def trained(inputs: tuple[str, ...] = ("x/credit/grpo.jsonl",), **statistics: Any) -> dict[str, Any]:
    return {**TRAINED, "inputs": dict.fromkeys(inputs, ""), "statistics": statistics}


def test_sums_by_hand() -> None:
    other = Ledger(leaves=6, steps=20, forks=4, generated_tokens=40, prompt_tokens=100, shared_prompt_tokens=50)
    cost = training_cost(
        [
            iteration(),
            iteration(6, 6, trained(updates=5, rows=2, rows_not_critical=18), trees=3, errored=1, ledger=other),
        ]
    )
    assert (cost.method, cost.credit) == ("chain", "grpo")
    assert (cost.trees, cost.leaves, cost.errored, cost.updates) == (5, 10, 1, 7)
    assert (cost.ledger.steps, cost.ledger.forks, cost.ledger.generated_tokens) == (30, 4, 100)
    assert (cost.shared, cost.steps_per_leaf, cost.tokens_per_leaf) == (80 / 200, 3.0, 10.0)
    assert cost.responses == ResponsesUpdated(updated=5, given=30, share=5 / 30)
    assert cost.seconds == {"policy": 4.0, "environment": 2.0, "train": 6.0}
    assert cost.success_by_part == [0.25, 1.0]


def test_responses_of_trees_without_spread_were_given_too() -> None:
    cost = training_cost([iteration(train=trained(updates=1, rows=4, rows_without_spread=5, rows_without_tokens=1))])
    assert cost.responses == ResponsesUpdated(updated=4, given=10, share=0.4)


def test_success_has_no_interval_and_no_sum() -> None:
    """Leaves of one tree, and of unlike policies, are no sample to compute one from."""
    assert not hasattr(training_cost([iteration()]), "success")


@pytest.mark.parametrize("place", [0, 1])
def test_what_one_iteration_does_not_know_is_not_known_of_all(place: int) -> None:
    iterations = [iteration(), iteration()]
    iterations[place] = iteration(train=None, seconds={"environment": 1.0})
    cost = training_cost(iterations)
    assert (cost.responses, cost.updates, cost.credit) == (None, None, "grpo")
    assert cost.seconds == {"policy": None, "environment": 2.0, "train": None}
    assert cost.leaves == 8


def test_forks_by_depth_are_shares_of_all_forks() -> None:
    """Of four forks all after the first step, of twelve half; one iteration has none."""
    early = iteration(ledger=Ledger(forks=4), forks_by_depth=[1.0])
    deep = iteration(ledger=Ledger(forks=12), forks_by_depth=[0.5, 0.0, 0.5])
    none = iteration(ledger=Ledger())
    assert training_cost([early, none, deep]).forks_by_depth == [10 / 16, 0.0, 6 / 16]
    assert training_cost([none]).forks_by_depth == []
    unknown = iteration(ledger=Ledger(forks=10))
    assert training_cost([unknown, early]).forks_by_depth == [1.0]


def test_nothing_that_was_updated_is_known_to_be_nothing() -> None:
    cost = training_cost([iteration(0, 0, trained(updates=0, rows=0), ledger=Ledger())] * 2)
    assert (cost.responses, cost.updates) == (ResponsesUpdated(updated=0, given=0, share=0.0), 0)
    assert (cost.success_by_part, cost.shared, cost.tokens_per_leaf) == ([0.0, 0.0], 0.0, 0.0)


def test_settings_that_changed_on_the_way_are_all_named() -> None:
    carl = trained(("y/credit/carl.jsonl",), updates=1)
    cost = training_cost([iteration(), iteration(method="spark", train=carl), iteration()])
    assert (cost.method, cost.credit) == ("chain, spark", "grpo, carl")
    assert training_cost([iteration(train=None)]).credit is None
    assert training_cost([iteration(train=trained((), updates=1))]).credit == "grpo", "the objective"


def test_the_course_by_hand() -> None:
    assert course([1, 2, 3, 4, 5, 6, 7, 8]) == [1.5, 3.5, 5.5, 7.5]
    assert course([1, 2, 3, 4, 5, 6, 7, 8], parts=2) == [2.5, 6.5]
    assert course([1, 2, 6]) == [1, 2, 6]
    assert course([1, 2, 3, 4, 5]) == [1.5, 3, 4, 5]
    assert course([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.integers(1, 6))
def test_every_iteration_is_in_one_part_in_order(loop: list[float], parts: int) -> None:
    means = course(loop, parts=parts)
    assert len(means) == min(parts, len(loop))
    assert all(min(loop) - 1e-9 <= mean <= max(loop) + 1e-9 for mean in means)
    rising = course(list(map(float, range(len(loop)))), parts=parts)
    assert rising == sorted(rising)
