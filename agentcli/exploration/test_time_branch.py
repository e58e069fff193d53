"""Test-time branching: where the policy emits <explore>, ask it several times and go on
as the vote says (000 appendix C.5).

One trajectory results for each sample asked for; what else was sampled is charged to
the ledger and left out of the tree.

action: after an <explore> step the next decision is sampled B times at the same state;
the action most responses agree on is executed (ties: the higher mean log-probability
where every response has them, else the earlier sample).

outcome: the trajectory is first followed to its end. As long as that is no success, its
<explore> states are gone through from the first on: at each, B - 1 further
continuations are executed in forks and followed to their ends, and the trajectory goes
on as the best of the B (success, then score, then the vote over their first actions).
It needs an environment that can be forked, and knows outcomes that an agent in the
field would not: it is an upper bound of what branching there can bring.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from agentcli.exploration.actor import Actor
from agentcli.exploration.nodes import Node, Response
from agentcli.records.settings import Count, RolloutSettings
from agentcli.records.siblings import joined
from agentcli.records.types import Outcome, Tree


class VotingRollout(RolloutSettings, kw_only=True):
    """Settings of test-time-branch."""

    redraws: ClassVar[bool] = False

    branching: Count = 4
    """Continuations sampled where the policy says <explore>."""
    vote: Literal["action", "outcome"] = "action"
    """action: the action most responses agree on is executed. outcome: each response is
    executed in a fork and followed to its end, and the trajectory goes on as the one
    that ends best.
    """
    depth: Count | None = None
    """Most votes in one trajectory; None: at every <explore>."""
    vote_tokens: Count | None = None
    """No vote begins once a trajectory, its votes included, has generated so many
    tokens.
    """


async def explore(actor: Actor, settings: VotingRollout) -> Tree:
    """`leaves` independent trajectories, each voting as the settings say."""
    vote_by = VOTES[settings.vote]
    root = await actor.start()
    samples = range(settings.leaves)
    await asyncio.gather(
        *(vote_by(actor, root, index, Polls(settings)) for index in samples)
    )
    return actor.tree("test-time-branch")


@dataclass
class Polls:
    """What one trajectory may still spend on votes."""

    limits: VotingRollout
    held: int = 0
    tokens: int = 0
    """Generated for this trajectory so far, all votes included."""

    @property
    def open(self) -> bool:
        """Another vote may begin."""
        depth, tokens = self.limits.depth, self.limits.vote_tokens
        return (depth is None or self.held < depth) and (
            tokens is None or self.tokens < tokens
        )

    def charge(self, sample: Response) -> None:
        """A response was generated."""
        self.tokens += len(sample.reply.token_ids) or sample.reply.generated_tokens


async def by_action(actor: Actor, node: Node, index: int, polls: Polls) -> None:
    """One trajectory from `node` to its end; after an <explore> step the majority
    action is executed.
    """
    while not node.finished:
        voting = node.explores and polls.open
        width = polls.limits.branching if voting else 1
        polls.held += voting
        samples = await asyncio.gather(
            *(actor.sample(node, index + number) for number in range(width))
        )
        for sample in samples:
            polls.charge(sample)
        usable = [sample for sample in samples if sample.error is None] or samples[:1]
        node, index = await actor.execute(node, index, vote(usable)), 0


async def by_outcome(actor: Actor, root: Node, index: int, polls: Polls) -> None:
    """One trajectory from `root` to its end; from its <explore> states on, the best of
    B ends.
    """
    trajectory, place = await follow(actor, root, index, polls), 1
    try:
        while not succeeded(trajectory) and polls.open:
            places = range(place, len(trajectory) - 1)
            at = next(
                (number for number in places if trajectory[number].explores), None
            )
            if at is None:
                return
            node, polls.held, place = trajectory[at], polls.held + 1, at + 1
            others = await asyncio.gather(
                *(
                    follow(actor, node, number, polls)
                    for number in range(1, polls.limits.branching)
                )
            )
            trajectory = trajectory[:at] + best([trajectory[at:], *others])
    finally:
        actor.keep_only(trajectory)  # also where the deadline ends a vote


async def follow(actor: Actor, node: Node, index: int, polls: Polls) -> list[Node]:
    """Act from `node` to the end of one trajectory without a vote: `node` and every
    node reached after it.
    """
    path = [node]
    while not path[-1].finished:
        sample = await actor.sample(path[-1], index)
        polls.charge(sample)
        path.append(await actor.execute(path[-1], index, sample))
        index = 0
    return path


def best(branches: list[list[Node]]) -> list[Node]:
    """The branch that ends best; all leave the same node."""
    steps = [
        [node.step for node in branch[1:] if node.step is not None]
        for branch in branches
    ]
    actions = Counter(own[0].action for own in steps)
    comparable = all(own[0].logprobs for own in steps)

    def worth(number: int) -> tuple[float, ...]:
        own = steps[number]
        first, end = own[0], own[-1]
        likely = sum(first.logprobs) / len(first.logprobs) if comparable else 0.0
        score = sum(step.reward for step in own)
        ended = {Outcome.SUCCESS: 1.0, Outcome.ERRORED: -1.0}.get(
            end.outcome or Outcome.ERRORED, 0.0
        )
        return ended, score, actions[first.action] if first.action else 0, likely

    return branches[max(range(len(branches)), key=worth)]


def succeeded(trajectory: list[Node]) -> bool:
    """It ended with success."""
    step = trajectory[-1].step
    return step is not None and step.outcome is Outcome.SUCCESS


def vote(samples: list[Response]) -> Response:
    """The first sample of the action with most votes; malformed responses have none
    unless all are malformed.
    """
    readable = [sample for sample in samples if sample.answer.actions] or samples
    votes = Counter(joined(sample.answer.actions) for sample in readable)
    comparable = all(sample.reply.logprobs for sample in readable)

    def confidence(action: str) -> float:
        logprobs = [
            mean_logprob(sample)
            for sample in readable
            if joined(sample.answer.actions) == action
        ]
        return sum(logprobs) / len(logprobs)

    winner = max(
        votes,
        key=lambda action: (votes[action], confidence(action) if comparable else 0.0),
    )
    return next(
        sample for sample in readable if joined(sample.answer.actions) == winner
    )


def mean_logprob(sample: Response) -> float:
    """Mean log-probability per token; the sample has them."""
    values = sample.reply.logprobs
    return sum(values) / len(values)


VOTES: dict[str, Callable[[Actor, Node, int, Polls], Awaitable[None]]] = {
    "action": by_action,
    "outcome": by_outcome,
}
