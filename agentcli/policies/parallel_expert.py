"""Policies without a model that act in several copies of the environment at once (dpepo).

`ParallelSearch` demonstrates: while nobody has found what the task needs, every copy searches a place that no other has searched;
the copy that finds it goes on alone, knowing what all have seen. `EachCopy` asks another policy once for every copy, so
that a uniform draw or a plan can be had in parallel too. Both answer in the format that models are asked for.
"""

import time
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from agentcli.environments.protocol import FINISHED, Advice, Context, World
from agentcli.policies.model_free import Search
from agentcli.policies.protocol import Policy, Reply, Request
from agentcli.prompts.parallel import ParallelContext, format_parallel
from agentcli.prompts.parse import parse
from agentcli.records.files import derive_seed

Searcher = Callable[[Context], Advice]


def in_parallel(policy: Policy, world: World) -> Policy:
    """`policy`, which has no model, for requests that carry a ParallelContext."""
    return ParallelSearch(world) if isinstance(policy, Search) else EachCopy(policy)


class EachCopy:
    """Asks `inner` once for every copy that may act, and acts in all of them."""

    def __init__(self, inner: Policy) -> None:
        self.seconds = 0.0
        self._inner = inner

    async def respond(self, request: Request) -> Reply:
        """What `inner` raises is passed on."""
        context = _parallel(request)
        sentence, actions = "", {}
        for number in context.open:
            own: dict[str, Any] = {
                "context": context.copies[number - 1],
                "state": request.state[number - 1],
                "seed": derive_seed(request.seed, number),
            }
            parsed = parse((await self._inner.respond(msgspec.structs.replace(request, **own))).text)
            sentence = sentence or parsed.reasoning or ""
            if parsed.action is not None:
                actions[number] = parsed.action
        self.seconds = self._inner.seconds
        return Reply(text=format_parallel(sentence, actions))

    async def close(self) -> None:
        """Close the policy that is asked."""
        await self._inner.close()


class ParallelSearch(Search):
    """The world's searching expert in several copies; a pure function of the request and the habits."""

    def respond_with(self, request: Request, habits: msgspec.Struct) -> Reply:
        """Raises UsageError where the world has no searching expert."""
        started = time.perf_counter()
        context = _parallel(request)

        def search(known: Context) -> Advice:
            return self._tutor.next(known, request.episode_seed, habits)

        leader = _leader(context, search)
        moves = _spread(context, search) if leader is None else {}
        if not moves:
            leader = leader or context.open[0]
            moves = {leader: search(_pooled(context, leader, _at_work(context, leader, search)))}
        self.seconds += time.perf_counter() - started
        sentence = next(iter(moves.values()))[1]
        actions = {number: action for number, (_, _, action) in moves.items()}
        idle = sentence == FINISHED and all(actions[n] in context.copies[n - 1].actions[-1:] for n in actions)
        return Reply(text=format_parallel(sentence, actions), mask="finished" if idle else None)


def _leader(context: ParallelContext, search: Searcher) -> int | None:
    """The copy that goes on alone: the one that already does (it has acted more often than any other), or the first that has
    found something by itself."""
    lengths = {number: len(context.copies[number - 1].actions) for number in context.open}
    longest = max(lengths.values())
    ahead = [number for number in context.open if lengths[number] == longest]
    if len(ahead) == 1:
        return ahead[0]
    return next((number for number in context.open if search(context.copies[number - 1])[0] != "explore"), None)


def _spread(context: ParallelContext, search: Searcher) -> dict[int, Advice]:
    """For every copy a search that no copy has made; a copy for which none is left rests."""
    tried = {action for copy in context.copies for action in copy.actions}
    moves: dict[int, Advice] = {}
    for number in context.open:
        pooled = _pooled(context, number)
        left = tuple(action for action in pooled.admissible if action not in tried)
        move = search(msgspec.structs.replace(pooled, admissible=left))
        if move[2] in left:
            moves[number] = move
            tried.add(move[2])
    return moves


def _at_work(context: ParallelContext, leader: int, search: Searcher) -> set[int]:
    """The other copies that have something left to do where they stand: their next move is not possible where the leader is."""
    possible = context.copies[leader - 1].admissible
    others = [number for number in context.open if number != leader]
    return {number for number in others if search(context.copies[number - 1])[2] not in possible}


def _pooled(context: ParallelContext, number: int, at_work: Collection[int] = ()) -> Context:
    """What is known in one copy, and before it what was seen in the others: places do not differ until somebody acts there. The
    last thing a copy `at_work` saw is left out: a box that was reached and not opened is still a new one."""
    own = context.copies[number - 1]
    seen: list[str] = []
    for place, copy in enumerate(context.copies, 1):
        if place != number:
            seen += copy.observations[: len(copy.observations) - (place in at_work)]
    return msgspec.structs.replace(own, observations=(*seen, *own.observations))


def _parallel(request: Request) -> ParallelContext:
    """Raises TypeError for a request that is not about several copies: a fault of the caller."""
    if not isinstance(request.context, ParallelContext):
        raise TypeError("a policy for several copies was asked about one; wire it with rollout.method dpepo only")
    return request.context
