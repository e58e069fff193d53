"""The world's searching expert, in one copy of the environment or in several at once.

It knows what the agent has seen, and no more. In several copies it demonstrates a
parallel search: until what the task needs is found, every copy searches a place
that no other has searched. The copy that finds it continues alone, knowing what all
have seen.
"""

import time
from collections.abc import Callable, Collection

import msgspec

from agentcli.environments.protocol import (
    FINISHED,
    Advice,
    Context,
    Tutor,
    World,
    world_as,
)
from agentcli.policies.model_free import ModelFree
from agentcli.policies.protocol import Reply, Request
from agentcli.prompts.protocol import Answer, Moment

Advise = Callable[[Context], Advice]
"""The world's expert, for one episode."""


class Searcher(ModelFree):
    """The searching expert without bad habits, a pure function of the request.

    Raises UsageError for a world without one.
    """

    def __init__(self, world: World) -> None:
        self._tutor = world_as(world, Tutor, "--policy", "search")
        self._sound = self._tutor.habits()

    async def respond(self, request: Request) -> Reply:
        return self.respond_with(request, self._sound)

    def respond_with(self, request: Request, habits: msgspec.Struct) -> Reply:
        """The next moves of an expert with these habits."""
        started = time.perf_counter()
        copies = request.moment.copies

        def search(known: Context) -> Advice:
            return self._tutor.next(known, request.episode_seed, habits)

        moves = next_moves(request.moment, search)
        self.seconds += time.perf_counter() - started
        first = next(iter(moves.values()))
        actions = {number: move.action for number, move in moves.items()}
        text = request.form.write(Answer(first.tag, first.sentence, actions))
        mask = None
        if first.sentence == FINISHED:
            # The first rest is imitated, further ones are not.
            last_actions = {number: copies[number - 1].actions[-1:] for number in moves}
            if all(actions[number] in last_actions[number] for number in moves):
                mask = "finished"
        return Reply(text=text, mask=mask)


def next_moves(moment: Moment, search: Advise) -> dict[int, Advice]:
    """The moves of the copies: each searches another place, or the leader acts alone."""
    leader = _leader(moment, search)
    if leader is None:
        moves = _spread(moment, search)
        if moves:
            return moves
        leader = moment.open[0]
    busy = _at_work(moment, leader, search)
    return {leader: search(_pooled(moment, leader, busy))}


def _leader(moment: Moment, search: Advise) -> int | None:
    """The copy that continues alone, if there is one."""
    lengths = {number: len(moment.copies[number - 1].actions) for number in moment.open}
    longest = max(lengths.values())
    ahead = [number for number, length in lengths.items() if length == longest]
    if len(ahead) == 1:
        # It already continues alone: it has acted more often than any other.
        return ahead[0]
    for number in moment.open:
        # It has found something by itself.
        if search(moment.copies[number - 1]).tag != "explore":
            return number
    return None


def _spread(moment: Moment, search: Advise) -> dict[int, Advice]:
    """A search that no copy has made for each copy; those without one left rest."""
    tried = {action for copy in moment.copies for action in copy.actions}
    moves: dict[int, Advice] = {}
    for number in moment.open:
        pooled = _pooled(moment, number)
        left = tuple(action for action in pooled.admissible if action not in tried)
        move = search(msgspec.structs.replace(pooled, admissible=left))
        # Where a list cannot hold the move, as a search in words, all copies make it.
        free = bool(left) and move.action not in pooled.admissible
        if free or move.action in left:
            moves[number] = move
            tried.add(move.action)
    return moves


def _at_work(moment: Moment, leader: int, search: Advise) -> set[int]:
    """The other copies that have something left to do where they stand."""
    possible = moment.copies[leader - 1].admissible
    busy = set()
    for number in moment.open:
        if number == leader:
            continue
        move = search(moment.copies[number - 1])
        # What is possible where the leader is does not tie the copy to its place.
        if move.action not in possible:
            busy.add(number)
    return busy


def _pooled(moment: Moment, number: int, at_work: Collection[int] = ()) -> Context:
    """The context of one copy, with what was seen in the others before its own past.

    Places do not differ until somebody acts there.
    """
    context = moment.copies[number - 1]
    observations: list[str] = []
    for other, copy in enumerate(moment.copies, 1):
        if other == number:
            continue
        observations += copy.observations
        if other in at_work:
            # A box that was reached and not opened is still a new one.
            observations.pop()
    observations += context.observations
    return msgspec.structs.replace(context, observations=tuple(observations))
