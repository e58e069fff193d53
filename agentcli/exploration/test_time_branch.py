"""Test-time branching: sample several times after <explore> and vote (SPARK App. C.5).

The result is one trajectory for each one asked for. Whatever else was sampled is
charged to the ledger and left out of the tree.

action: after an <explore> step, the next decision is sampled B times in the same state.
The action that most responses agree on is executed (ties: the higher mean
log-probability where every response has them, else the earlier sample).

outcome (ours): the trajectory is first followed to its end. As long as that is not a success,
its <explore> states are visited, from the first one on. At each, B - 1 further
continuations are executed in forks and followed to their ends, and the trajectory
continues as the best of the B (success, then score, then the vote over their first
actions). This needs an environment that can be forked and uses outcomes that a deployed
agent would not know, so it is an upper bound on what branching can gain.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from agentcli.exploration.actor import Actor
from agentcli.exploration.nodes import Node, Response
from agentcli.records.grouping import grouped
from agentcli.records.section import Count
from agentcli.records.settings import RolloutSettings
from agentcli.records.siblings import joined
from agentcli.records.types import Outcome, Step, Tree

ENDINGS: dict[Outcome | None, float] = {Outcome.SUCCESS: 1.0, Outcome.ERRORED: -1.0}
"""How an end is ranked; any other outcome is 0."""


class VotingRollout(RolloutSettings, kw_only=True):
    """Settings of test-time-branch."""

    redraws: ClassVar[bool] = False

    branching: Count = 4
    """The number of continuations sampled where the policy says <explore>."""
    vote: Literal["action", "outcome"] = "action"
    """action: the action that most responses agree on is executed. outcome: each
    response is executed in a fork and followed to its end, and the trajectory continues
    as the one that ends best.
    """
    depth: Count | None = None
    """The most votes in one trajectory; unset: a vote at every <explore>."""
    vote_tokens: Count | None = None
    """No vote begins once a trajectory, including its votes, has generated this many
    tokens; unset: no limit.
    """

    @property
    def draws(self) -> int:
        """The most responses that are sampled for one that is executed."""
        return self.branching if self.vote == "action" else 1

    def most(self, steps: int) -> tuple[int, int]:
        """The most leaves and responses that are executed, forks included."""
        leaves, responses = super().most(steps)
        if self.vote == "outcome":
            # The initial state says nothing, so the first vote is one step below it.
            votes = range(1, min(steps, (self.depth or steps) + 1))
            forked = sum(steps - place for place in votes)
            responses += leaves * (self.branching - 1) * forked
        return leaves, responses


async def explore(actor: Actor, settings: VotingRollout) -> Tree:
    """Grows `leaves` independent trajectories, each voting as the settings say."""
    grow = by_outcome if settings.vote == "outcome" else partial(follow, votes=True)
    root = await actor.start()
    indices = range(settings.leaves)
    await asyncio.gather(*(grow(actor, root, n, Polls(settings)) for n in indices))
    return actor.tree("test-time-branch")


@dataclass
class Polls:
    """The votes of one trajectory."""

    limits: VotingRollout
    held: int = 0
    tokens: int = 0
    """Generated for this trajectory so far, all votes included."""

    @property
    def open(self) -> bool:
        """Whether another vote may begin."""
        depth = self.limits.depth
        if depth is not None and self.held >= depth:
            return False
        limit = self.limits.vote_tokens
        return limit is None or self.tokens < limit

    def charge(self, sample: Response) -> None:
        """Counts the tokens of a response."""
        reply = sample.reply
        # A server without token ids reports the number of tokens.
        self.tokens += len(reply.token_ids) or reply.generated_tokens


async def by_outcome(actor: Actor, root: Node, index: int, polls: Polls) -> None:
    """Grows one trajectory; at its <explore> states it continues as the best of B."""
    trajectory = await follow(actor, root, index, polls)
    place = 0
    try:
        while place < len(trajectory) - 1 and polls.open and not succeeded(trajectory):
            node = trajectory[place]
            if node.explores:
                polls.held += 1
                branches = []
                # Child 0 is the trajectory's own, so B - 1 more make B.
                for number in range(1, polls.limits.branching):
                    branches.append(follow(actor, node, number, polls))
                others = await asyncio.gather(*branches)
                winner = best([trajectory[place:], *others])
                trajectory = [*trajectory[:place], *winner]
            place += 1
    finally:
        # Also if the deadline interrupts a vote.
        actor.keep_only(trajectory)


async def follow(
    actor: Actor, node: Node, index: int, polls: Polls, votes: bool = False
) -> list[Node]:
    """Acts from `node` to the end of one trajectory.

    With `votes`, it takes the majority's action after an <explore> step.

    Returns `node` and every node reached after it.
    """
    path = [node]
    while not node.finished:
        width = 1
        if votes and node.explores and polls.open:
            width = polls.limits.branching
            polls.held += 1
        node = await decide(actor, node, index, width, polls)
        path.append(node)
        index = 0
    return path


async def decide(
    actor: Actor,
    node: Node,
    index: int,
    width: int,
    polls: Polls,
) -> Node:
    """Samples `width` responses at `node` and executes the one that wins the vote."""
    indices = range(index, index + width)
    samples = await asyncio.gather(*(actor.sample(node, number) for number in indices))
    answered = []
    for sample in samples:
        polls.charge(sample)
        if sample.error is None:
            answered.append(sample)
    # If the policy failed every time, the step records the error.
    winner = vote(answered or samples[:1])
    return await actor.execute(node, index, winner)


def best(branches: list[list[Node]]) -> list[Node]:
    """The branch that ends best; all branches start at the same node."""
    first_steps = [steps_of(branch)[0] for branch in branches]
    votes = Counter(step.action for step in first_steps)
    comparable = all(step.logprobs for step in first_steps)

    def worth(branch: list[Node]) -> tuple[float, ...]:
        steps = steps_of(branch)
        first = steps[0]
        ending = ENDINGS.get(steps[-1].outcome, 0.0)
        score = sum(step.reward for step in steps)
        # Malformed responses agree on no action.
        agreement = votes[first.action] if first.action else 0
        likelihood = mean_logprob(first.logprobs) if comparable else 0.0
        return ending, score, agreement, likelihood

    # The first of equals is the trajectory as it was.
    return max(branches, key=worth)


def steps_of(branch: list[Node]) -> list[Step]:
    """The steps of a branch after its first node."""
    return [node.step for node in branch[1:] if node.step is not None]


def succeeded(trajectory: list[Node]) -> bool:
    """Whether a trajectory ended with success."""
    step = trajectory[-1].step
    return step is not None and step.outcome is Outcome.SUCCESS


def vote(samples: list[Response]) -> Response:
    """The first sample of the action with the most votes.

    Malformed responses have no vote unless all are malformed.
    """
    readable = [sample for sample in samples if sample.answer.actions] or samples
    comparable = all(sample.reply.logprobs for sample in readable)
    supporters = grouped((joined(one.answer.actions), one) for one in readable)

    def worth(group: list[Response]) -> tuple[int, float]:
        if not comparable:
            return len(group), 0.0
        logprobs = [mean_logprob(sample.reply.logprobs) for sample in group]
        return len(group), sum(logprobs) / len(group)

    # The first of equals: a dict keeps the order in which actions were sampled.
    winners = max(supporters.values(), key=worth)
    return winners[0]


def mean_logprob(logprobs: Sequence[float]) -> float:
    """Mean log-probability per token; at least one token is required."""
    return sum(logprobs) / len(logprobs)
