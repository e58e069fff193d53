"""What trees cost and held, on trees small enough to count by hand."""

from statistics import median_low

from agentcli.evaluation.growth import MoveShape, StepShape, TreeShape, cost_of, totals
from agentcli.evaluation.record import Rate
from agentcli.records.siblings import Siblings, by_place, fork_depths, median_depth, shares_by_depth
from agentcli.records.types import Ledger, Outcome, StopReason, Task, Validity
from hypothesis import given
from hypothesis import strategies as st


def tree(number: int, outcomes: str, method: str = "spark", inner: int = 1, **ledger: int) -> TreeShape:
    """A leaf for each sign of `outcomes` ("!" errored) and `inner` steps before, the first of them tagged explore."""
    signs = {"+": Outcome.SUCCESS, "-": Outcome.FAILURE, "!": Outcome.ERRORED}
    before = [StepShape(tag="think" if place else "explore") for place in range(inner)]
    steps = [*before, *(StepShape(outcome=signs[sign]) for sign in outcomes)]
    task = Task(id=f"t{number}", world="w", split="s", kind="k")
    return TreeShape(task=task, method=method, steps=steps, ledger=Ledger(leaves=len(outcomes), **ledger))


def test_totals_by_hand() -> None:
    growth = totals(
        [
            tree(1, "+-!", steps=10, generated_tokens=60, prompt_tokens=100, shared_prompt_tokens=30),
            tree(2, "+", inner=4, steps=6, generated_tokens=20, prompt_tokens=100, shared_prompt_tokens=10),
        ]
    )
    assert (growth.method, growth.tasks) == ("spark", 2)
    assert (growth.success.rate, growth.errored) == (2 / 4, 1)
    assert growth.success.low == 1 / 3
    assert growth.success.high == 1.0
    assert growth.explore == 2 / 9
    assert growth.shared == 40 / 200
    assert (growth.steps_per_leaf, growth.tokens_per_leaf) == (4.0, 20.0)
    assert growth.ledger.generated_tokens == 80


def test_trees_of_several_methods_name_them_all() -> None:
    assert totals([tree(1, "+", "chain"), tree(2, "+"), tree(3, "-", "chain")]).method == "chain, spark"


def test_no_trees() -> None:
    growth = totals([])
    assert (growth.tasks, growth.success) == (0, Rate(rate=0.0, low=0.0, high=1.0))
    assert (growth.explore, growth.shared, growth.tokens_per_leaf) == (0.0, 0.0, 0.0)
    assert (growth.malformed, growth.cut) == (0.0, None)


def test_siblings_are_counted_where_they_are() -> None:
    """At the start go, go, take; after the first look, look, of which one step alone was never answered; in copies, the order of
    moves is no difference, and two unreadable responses are alike."""
    moves = [MoveShape(1, "go"), MoveShape(2, "take")]
    steps = [
        *(StepShape(action=action) for action in ("go", "go", "take")),
        *(StepShape(parent=0, action="look") for _ in range(2)),
        StepShape(parent=0, error="no answer"),
        StepShape(parent=1, action="look"),
        *(StepShape(parent=2, moves=chosen) for chosen in (moves, moves[::-1], moves[:1])),
        *(StepShape(parent=3, validity=Validity.MALFORMED) for _ in range(2)),
    ]
    one = tree(1, "")
    one.steps, one.ledger = steps, Ledger(siblings=10, distinct_siblings=2 + 1 + 2 + 1)
    growth = totals([one])
    assert by_place(steps) == (Siblings(3, 2), Siblings(7, 4))
    assert (growth.distinct, growth.distinct_at_start, growth.distinct_of_forks) == (6 / 10, 2 / 3, 4 / 7)
    assert cost_of(Ledger(), 0).distinct is None


def test_forks_are_counted_by_the_steps_before_them() -> None:
    """Two forks after the first step and one after the third; three roots are none."""
    parents = [None, 0, 0, 0, 1, 4, 4, None, None, 7]
    one = tree(1, "")
    one.steps = [StepShape(parent=parent) for parent in parents]
    assert fork_depths(one.steps) == [1, 1, 3]
    assert totals([one]).forks_by_depth == [2 / 3, 0.0, 1 / 3]
    assert totals([tree(1, "+")]).forks_by_depth == []


@given(depths=st.lists(st.integers(1, 9)))
def test_the_median_is_that_of_the_depths(depths: list[int]) -> None:
    assert median_depth(shares_by_depth(depths)) == (median_low(depths) if depths else None)


def test_faults_are_shares_of_the_responses() -> None:
    """Ten steps, two of which broke before the policy had answered."""
    kinds = [
        (5, StepShape(stop=StopReason.STOP)),
        (1, StepShape(stop=StopReason.LENGTH, tag="explore")),
        (1, StepShape(stop=StopReason.STOP, validity=Validity.MALFORMED)),
        (1, StepShape(stop=StopReason.LENGTH, validity=Validity.MALFORMED)),
        (2, StepShape(error="TimeoutError", tag="explore", validity=Validity.MALFORMED)),
    ]
    grown = [tree(number, "") for number in range(2)]
    grown[0].steps, grown[1].steps = [], [step for count, step in kinds for _ in range(count)]
    growth = totals(grown)
    assert (growth.malformed, growth.cut, growth.explore) == (2 / 8, 2 / 8, 1 / 8)


def test_no_model_was_asked_and_nothing_could_be_cut() -> None:
    growth = totals([tree(1, "+"), tree(2, "-")])
    assert (growth.malformed, growth.cut) == (0.0, None)
