"""The world's searching expert, in one copy of the environment or in several at once.

It knows what the agent has seen, and no more. In several copies it demonstrates a
parallel search: while nobody has found what the task needs, every copy searches a place
that no other has searched. The copy that finds it goes on alone, knowing what all have
seen.
"""

import time
from collections.abc import Callable, Collection

import msgspec

from agentcli.environments.protocol import FINISHED, Advice, Context, World, tutor_of
from agentcli.policies.protocol import Reply, Request
from agentcli.prompts.protocol import Answer, Moment

Advise = Callable[[Context], Advice]
"""The world's expert, for one episode."""


class Searcher:
    """The searching expert without bad habits; a pure function of the request. Raises
    UsageError for a world without one.
    """

    def __init__(self, world: World) -> None:
        self.seconds = 0.0
        self._tutor = tutor_of(world, "--policy", "search")
        self._sound = self._tutor.habits()

    async def respond(self, request: Request) -> Reply:
        """The next moves."""
        return self.respond_with(request, self._sound)

    def respond_with(self, request: Request, habits: msgspec.Struct) -> Reply:
        """The same with `habits`."""
        started = time.perf_counter()
        moment = request.moment

        def search(known: Context) -> Advice:
            return self._tutor.next(known, request.episode_seed, habits)

        moves = next_moves(moment, search)
        self.seconds += time.perf_counter() - started
        first = next(iter(moves.values()))
        actions = {number: move.action for number, move in moves.items()}
        repeats = all(
            action in moment.copies[number - 1].actions[-1:]
            for number, action in actions.items()
        )
        text = request.form.write(Answer(first.tag, first.sentence, actions))
        return Reply(
            text=text,
            mask="finished" if first.sentence == FINISHED and repeats else None,
        )

    async def close(self) -> None:
        """There is nothing to let go of."""


def next_moves(moment: Moment, search: Advise) -> dict[int, Advice]:
    """The moves of the copies that act: a search of different places, or what the
    leader does alone.
    """
    leader = _leader(moment, search)
    if leader is None:
        moves = _spread(moment, search)
        if moves:
            return moves
        leader = moment.open[0]
    return {leader: search(_pooled(moment, leader, _at_work(moment, leader, search)))}


def _leader(moment: Moment, search: Advise) -> int | None:
    """The copy that goes on alone: the one that already does (it has acted more often
    than any other), or the first that has found something by itself.
    """
    lengths = {number: len(moment.copies[number - 1].actions) for number in moment.open}
    longest = max(lengths.values())
    ahead = [number for number in moment.open if lengths[number] == longest]
    if len(ahead) == 1:
        return ahead[0]
    for number in moment.open:
        if search(moment.copies[number - 1]).tag != "explore":
            return number
    return None


def _spread(moment: Moment, search: Advise) -> dict[int, Advice]:
    """For every copy a search that no copy has made; a copy for which none is left
    rests.
    """
    tried = {action for copy in moment.copies for action in copy.actions}
    moves: dict[int, Advice] = {}
    for number in moment.open:
        pooled = _pooled(moment, number)
        left = tuple(action for action in pooled.admissible if action not in tried)
        move = search(msgspec.structs.replace(pooled, admissible=left))
        if move.action in left:
            moves[number] = move
            tried.add(move.action)
    return moves


def _at_work(moment: Moment, leader: int, search: Advise) -> set[int]:
    """The other copies that have something left to do where they stand: their next move
    is not possible where the leader is.
    """
    possible = moment.copies[leader - 1].admissible
    busy = set()
    for number in moment.open:
        if (
            number != leader
            and search(moment.copies[number - 1]).action not in possible
        ):
            busy.add(number)
    return busy


def _pooled(moment: Moment, number: int, at_work: Collection[int] = ()) -> Context:
    """What is known in one copy, and before it what was seen in the others: places do
    not differ until somebody acts there.

    The last thing a copy `at_work` saw is left out: a box that was reached and not
    opened is still a new one.
    """
    context = moment.copies[number - 1]
    elsewhere: list[str] = []
    for place, copy in enumerate(moment.copies, 1):
        if place != number:
            shown = len(copy.observations) - (place in at_work)
            elsewhere += copy.observations[:shown]
    return msgspec.structs.replace(
        context, observations=(*elsewhere, *context.observations)
    )
