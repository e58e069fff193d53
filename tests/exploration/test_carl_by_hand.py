"""carl: trees worked out by hand from Algorithm 1 of CARL. All entropies are exact in binary, so ties are ties."""

from agentcli.credit import carl
from agentcli.errors import PolicyError
from agentcli.exploration.triggers import surprise
from agentcli.policies.protocol import Reply, Request
from agentcli.records.trees import children
from agentcli.records.types import Outcome
from credit_trees import step
from scripted import Answers, ScriptedPolicy, scripted
from word_trees import grow_word, words

CARL: Answers = {
    (): [("a", 0.5), ("b", 0.75), ("win", 0.25)],
    ("a",): [("b", 0.875), ("win", 0.125)],
    ("a", "b"): [("win", 0.125)],
    ("b",): [("win", 0.5), ("a", 0.25)],
    ("b", "a"): [("die", 0.3125)],
}
"""After N0 = 2 trajectories, [a b win] and [b win]:

    state     H              n   H/n
    start     (.5 + .75)/2   2   .3125
    a         .875           1   .875     <- fork 1 says win (.125): H .5, n 2, H/n .25
    a b       .125           1   .125
    b         .5             1   .5       <- fork 2 says a (.25): H .375, n 2, H/n .1875, and a new state follows
    b a       .3125          1   .3125    as much as start, which is older: fork 3 leaves from start
"""


def test_carl_forks_the_largest_entropy_per_child() -> None:
    trees = {n: grow_word("carl", scripted(CARL), leaves=n, roots=2) for n in (2, 3, 4, 5)}
    assert words(trees[2]) == [["a", "b", "win"], ["b", "win"]]
    assert words(trees[3]) == [["a", "b", "win"], ["a", "win"], ["b", "win"]]
    assert words(trees[4]) == [["a", "b", "win"], ["a", "win"], ["b", "win"], ["b", "a", "die"]]
    assert words(trees[5]) == [["a", "b", "win"], ["a", "win"], ["b", "win"], ["b", "a", "die"], ["win"]]


def test_a_tree_says_how_many_trajectories_started_from_scratch() -> None:
    """Tree.roots is N0, whatever was forked from the initial state later; what has no first phase says nothing."""
    assert [grow_word("carl", scripted(CARL), leaves=n, roots=2).roots for n in (2, 5)] == [2, 2]
    tree = grow_word("carl", scripted(CARL), leaves=4, roots=2)
    forked = carl.assign(tree, carl.CarlSettings(first_phase="forked"))
    # Two forks beside two first-phase steps: 2N. All that have a sibling are two more, the first actions.
    assert sum(row.advantage is not None for row in forked.steps) == 4
    assert sum(row.advantage is not None for row in carl.assign(tree, carl.CarlSettings()).steps) == 6
    assert grow_word("treerl", scripted(CARL), leaves=2, roots=1).roots == 1
    assert grow_word("spark", scripted(CARL), leaves=3, roots=2).roots == 2
    assert grow_word("chain", scripted(CARL), leaves=2).roots is None


LITE: Answers = {
    (): [("a", 0.5), ("", 0.25)],
    ("a",): [("b", 1.0), ("crash", 0.5), ("win", 0.25)],
    ("a", "b"): [("win", 0.75), ("a", 0.25)],
    ("a", "b", "a"): [("die", 0.125)],
    ("",): [("win", 0.4375), ("die", 0.25)],
}
"""N0 = 1 begins with [a b win]:

    state      H             n   H/n
    start      .5            1   .5
    a          1             1   1        <- fork 1 breaks the engine with a sampled response (.5): H .75, n 2, H/n .375
    a b        .75           1   .75      <- fork 2 says a (.25): H .5, n 2, H/n .25
    a b a      .125          1   .125     new with it; it says die
    start      .5            1   .5       <- fork 3 cannot be read (.25): H .375, n 2, H/n .1875; the engine stays where it is, but
    unread     .4375         1   .4375       what the agent has seen does not: a new state. It says win. <- fork 4 says die (.25)
    a          .75           2   .375     <- fork 5 says win (.25)
"""


def test_carl_lite_with_an_errored_leaf_and_an_unreadable_response() -> None:
    trees = [words(grow_word("carl", scripted(LITE), leaves=n, roots=1)) for n in range(1, 7)]
    first, crash, deep = ["a", "b", "win"], ["a", "crash"], ["a", "b", "a", "die"]
    assert trees == [
        [first],
        [first, crash],
        [first, deep, crash],
        [first, deep, crash, [None, "win"]],
        [first, deep, crash, [None, "win"], [None, "die"]],
        [first, deep, crash, ["a", "win"], [None, "win"], [None, "die"]],
    ]


BROKEN: Answers = {
    (): [("a", 0.5), ("win", 0.5)],
    ("a",): [("b", 1.0), ("break", 9.0), ("win", 0.25)],
    ("a", "b"): [("win", 0.625), ("win", 0.125)],
}
"""A fork that the policy does not answer is a child without an entropy:

    state      H             n   H/n
    start      .5            1   .5
    a          1             1   1        <- fork 1 gets no answer: H 1, n 2, H/n .5
    a b        .625          1   .625     <- fork 2 says win (.125): H .375, n 2, H/n .1875
    start      .5            1   .5       <- fork 3, as much as a and older, says win (.5): H .5, n 2, H/n .25
    a          1             2   .5       <- fork 4
"""


def test_carl_counts_a_child_that_was_never_sampled_and_gives_it_no_entropy() -> None:
    trees = [words(grow_word("carl", scripted(BROKEN), leaves=n, roots=1)) for n in range(2, 6)]
    first, none = ["a", "b", "win"], ["a", None]
    assert trees == [
        [first, none],
        [first, first, none],
        [first, first, none, ["win"]],
        [first, first, none, ["a", "win"], ["win"]],
    ]


def test_carl_takes_the_oldest_of_equals() -> None:
    """[a a win] gives three states of H/n .5. Forks 1 and 2 leave from start and a, H (.5 + .25) / 2, H/n .1875; fork 3 from a a,
    which says .5 again: H .5, H/n .25, so fork 4 does too."""
    answers = {(): [("a", 0.5), ("win", 0.25)], ("a",): [("a", 0.5), ("win", 0.25)], ("a", "a"): [("win", 0.5)]}
    deep, middle = ["a", "a", "win"], ["a", "win"]
    assert [words(grow_word("carl", scripted(answers), leaves=n, roots=1)) for n in range(1, 6)] == [
        [deep],
        [deep, ["win"]],
        [deep, middle, ["win"]],
        [deep, deep, middle, ["win"]],
        [deep, deep, deep, middle, ["win"]],
    ]


def test_carl_takes_the_mean_over_all_samples_of_a_state() -> None:
    """Beside a (11/64, n 1) the start has H/n .5, then (.5 + .25) / 2 / 2 = .1875, then (.5 + .25 + .75) / 3 / 3 = .1667: two forks
    leave from start and the third from a. Half of the sum of the mean and the new sample would be .5625 and H/n .1875."""
    answers = {(): [("a", 0.5), ("win", 0.25), ("win", 0.75)], ("a",): [("win", 0.171875)]}
    assert [words(grow_word("carl", scripted(answers), leaves=n, roots=1)) for n in range(1, 5)] == [
        [["a", "win"]],
        [["a", "win"], ["win"]],
        [["a", "win"], ["win"], ["win"]],
        [["a", "win"], ["a", "win"], ["win"], ["win"]],
    ]


def test_carl_charges_its_ledger() -> None:
    """Nine steps; two forks away from the start; siblings after the first share their prompt: a|win, b|a, and two at the start."""
    ledger = grow_word("carl", scripted(CARL), leaves=5, roots=2).ledger
    assert (ledger.leaves, ledger.steps, ledger.forks, ledger.generated_tokens) == (5, 9, 2, 27)
    assert (ledger.prompt_tokens, ledger.shared_prompt_tokens) == (63, 28)


def test_carl_lite_starts_with_one_trajectory_and_bounds_its_training_steps() -> None:
    """N0 = 1 and N forks: N + 1 leaves, and between N + 1 and 2N actions have a sibling (eq. 15)."""
    for forks in (1, 3, 8):
        tree = grow_word("carl", scripted(CARL), leaves=forks + 1, roots=1, max_steps=6)
        critical = sum(len(siblings) for siblings in children(tree).values() if len(siblings) > 1)
        assert tree.ledger.leaves == forks + 1
        assert forks + 1 <= critical <= 2 * forks


def test_carl_is_not_misled_by_length() -> None:
    """Entropy is per token: -1.0 twice is as uncertain as -1.0 once, and less than -1.5 once."""
    assert surprise(step(0, None, logprobs=[-1.0, -1.0]), "") == 1.0
    assert surprise(step(0, None, logprobs=[-1.5]), "") == 1.5


def test_a_policy_that_breaks_leaves_an_errored_leaf_and_the_states_before_it() -> None:
    class Breaks(ScriptedPolicy):
        async def respond(self, request: Request) -> Reply:
            if len(request.moment.copies[0].actions) == 2:
                raise PolicyError("prompt too long")
            return await super().respond(request)

    policy = Breaks(lambda h, t: ("think", "a"), lambda h, t: 0.5)
    tree = grow_word("carl", policy, leaves=3, roots=1)
    ends = [step for step in tree.steps if step.outcome is not None]
    assert [step.outcome for step in ends] == [Outcome.ERRORED] * 3
    assert {step.error for step in ends} == {"prompt too long"}
    assert tree.ledger.forks + sum(step.parent is None for step in tree.steps) == 3
