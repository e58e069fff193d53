"""A tree whose time is up: what is kept of it, and what it says."""

import asyncio

import pytest
from agentcli.policies.protocol import Reply, Request
from agentcli.prompts.tagged import write_tagged
from agentcli.records.types import Outcome
from growths import GROWTHS, growths
from scripted import SeededPolicy
from word_trees import grow_word


class Stuck(SeededPolicy):
    """Never answers in the third trajectory, and in no trajectory after `patience` answers."""

    def __init__(self, patience: int = 10**9) -> None:
        super().__init__(("win",))
        self.rows: list[int] = []
        self.patience = patience

    async def respond(self, request: Request) -> Reply:
        if request.episode_seed not in self.rows:
            self.rows.append(request.episode_seed)
        if self.rows.index(request.episode_seed) == 2 and request.moment.copies[0].actions:
            await asyncio.Event().wait()
        self.patience -= 1
        if self.patience < 0:
            await asyncio.Event().wait()
        action = "a" if self.rows.index(request.episode_seed) == 2 else "win"
        return Reply(text=write_tagged("think", "go", action), token_ids=(1,), logprobs=(-1.0,))


@pytest.mark.parametrize(
    ("minimum", "outcomes"),
    [(2, [Outcome.SUCCESS, Outcome.SUCCESS]), (3, [Outcome.SUCCESS, Outcome.SUCCESS, Outcome.ERRORED])],
)
def test_the_deadline_keeps_what_is_enough(minimum: int, outcomes: list[Outcome]) -> None:
    tree = grow_word("chain", Stuck(), leaves=3, deadline_seconds=1.0, minimum_leaves=minimum)
    assert [step.outcome for step in tree.steps] == outcomes
    assert tree.ledger.leaves == len(outcomes)
    assert tree.ledger.generated_tokens == 3
    why = "the tree was not finished within 1 s (rollout.deadline_seconds)"
    assert [step.error for step in tree.steps] == [None, None, why][: len(outcomes)]


def test_a_tree_of_too_few_leaves_is_errored_even_where_the_others_had_not_begun() -> None:
    tree = grow_word("chain", Stuck(patience=2), leaves=3, deadline_seconds=1.0, minimum_leaves=3)
    assert [step.outcome for step in tree.steps] == [Outcome.SUCCESS, Outcome.SUCCESS, Outcome.ERRORED]
    assert len(grow_word("chain", Stuck(patience=2), leaves=3, deadline_seconds=1.0, minimum_leaves=2).steps) == 2


@growths
def test_a_deadline_before_the_first_step_is_an_errored_tree(growth: str) -> None:
    rollout = {**GROWTHS[growth], "roots": 2, "deadline_seconds": 0.05}
    tree = grow_word(policy=Stuck(patience=0), **rollout)
    assert [step.outcome for step in tree.steps] == [Outcome.ERRORED]
    assert tree.method == GROWTHS[growth]["method"]


def test_a_deadline_that_is_kept_changes_nothing() -> None:
    bounded, free = (grow_word("carl", SeededPolicy(("a", "win")), deadline_seconds=s) for s in (60.0, None))
    assert bounded == free
