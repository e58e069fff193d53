"""A tree as stretches: every step once, in its place, with the leaves and successes below it."""

from agentcli.records.trees import leaves, paths
from agentcli.records.types import Outcome, Tree
from agentcli.reports.show.drawing import Stretch, count, outline, trajectory_numbers
from credit_trees import SUCCESS, TRUNCATED, random_trees, step, tree
from hypothesis import given


def flat(stretches: list[Stretch]) -> list[Stretch]:
    """All stretches, those above before those below."""
    every = []
    for stretch in stretches:
        every += [stretch, *flat(stretch.branches)]
    return every


def test_a_fork_ends_a_stretch() -> None:
    forked = tree(
        step(0, None),
        step(1, 0),
        step(2, 1, outcome=SUCCESS),
        step(3, 1, outcome=TRUNCATED),
        step(4, None, outcome=TRUNCATED),
    )
    first, second = outline(forked)
    assert [one.id for one in first.steps] == [0, 1]
    assert (first.leaves, first.success, first.trajectory) == (2, 1, None)
    assert [[one.id for one in branch.steps] for branch in first.branches] == [[2], [3]]
    assert [branch.trajectory for branch in first.branches] == [1, 2]
    assert (second.leaves, second.success, second.trajectory, second.branches) == (1, 0, 3, [])


@given(random_trees())
def test_every_step_is_in_one_stretch(drawn: Tree) -> None:
    stretches = outline(drawn)
    assert sorted(one.id for stretch in flat(stretches) for one in stretch.steps) == list(range(len(drawn.steps)))
    assert count(stretches) == len(drawn.steps)


@given(random_trees())
def test_counts_are_those_of_the_trajectories_below(drawn: Tree) -> None:
    trajectories = paths(drawn)
    for stretch in flat(outline(drawn)):
        through = [walk for walk in trajectories if stretch.steps[0] in walk]
        won = [walk for walk in through if walk[-1].outcome is Outcome.SUCCESS]
        assert (stretch.leaves, stretch.success) == (len(through), len(won))


@given(random_trees())
def test_trajectories_are_numbered_in_the_order_of_their_leaves(drawn: Tree) -> None:
    numbers = trajectory_numbers(drawn)
    assert [numbers[leaf.id] for leaf in leaves(drawn)] == list(range(1, len(numbers) + 1))


def test_depth_is_no_limit() -> None:
    """5,000 forks below each other."""
    steps = [step(0, None)]
    for _ in range(5000):
        parent = steps[-1].id
        steps.append(step(len(steps), parent, outcome=TRUNCATED))
        steps.append(step(len(steps), parent))
    steps[-1].outcome = SUCCESS
    (root,) = outline(tree(*steps))
    assert root.leaves == 5001
    assert root.success == 1
