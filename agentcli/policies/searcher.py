"""The world's searching expert, in one or several copies of the environment.

It knows only what the agent has seen. In several copies it demonstrates a parallel
search: until it finds what the task needs, every copy searches a place that no other
copy has searched. The copy that finds it continues alone, knowing what all copies have
seen.
"""

import random
import time
from collections.abc import Callable, Collection, Sequence

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
from agentcli.records.files import derive_seed
from agentcli.records.settings import ExploreTags

INTERVAL = 5
"""Steps that share a chance to be tagged (SPARK Table 9)."""
Advise = Callable[[Context], Advice]
"""The world's expert for one episode."""


class Searcher(ModelFree):
    """The searching expert without bad habits, a pure function of the request.

    Raises UsageError for a world without such an expert.
    """

    def __init__(self, world: World) -> None:
        self._tutor = world_as(world, Tutor, "--policy", "search")
        self._sound = self._tutor.habits()
        self._exploring = world.card.exploring

    async def respond(self, request: Request) -> Reply:
        return self.respond_with(request, self._sound)

    def respond_with(
        self,
        request: Request,
        habits: msgspec.Struct,
        explore: ExploreTags = (1.0,),
    ) -> Reply:
        """The next moves of an expert with these habits.

        `explore` is `demos.explore`: which searches are tagged as such.
        """
        started = time.perf_counter()
        copies = request.moment.copies

        def search(known: Context) -> Advice:
            return self._tutor.next(known, request.episode_seed, habits)

        moves = next_moves(request.moment, search)
        self.seconds += time.perf_counter() - started
        number, first = next(iter(moves.items()))
        actions = {number: move.action for number, move in moves.items()}
        tag = first.tag
        if isinstance(explore, str):
            says = is_refuted(copies[number - 1], first.action, self._exploring)
        else:
            says = tagged(request, explore)
        if tag == "explore" and not says:
            tag = "think"
        answer = Answer(tag, first.sentence, actions)
        text = request.form.write(answer, request.moment)
        mask = None
        if first.sentence == FINISHED:
            # Only the first rest is imitated.
            last_actions = {number: copies[number - 1].actions[-1:] for number in moves}
            if all(actions[number] in last_actions[number] for number in moves):
                mask = "finished"
        return Reply(text=text, mask=mask)


def tagged(request: Request, explore: Sequence[float]) -> bool:
    """Whether a search move at this step says <explore>, drawn by the request's seed."""
    step = max(len(copy.actions) for copy in request.moment.copies)
    chance = explore[min(step // INTERVAL, len(explore) - 1)]
    return random.Random(derive_seed(request.seed, "explore")).random() < chance


def is_refuted(context: Context, action: str, exploring: Collection[str]) -> bool:
    """Whether the last move looked in vain, since this search goes on elsewhere.

    `exploring` are the first words of moves that look somewhere. Opening the box that
    was just walked up to is still the same look.
    """
    last = context.actions[-1] if context.actions else ""
    verb, _, place = last.partition(" ")
    thing = place.removeprefix("to ")
    return verb in exploring and not f" {action}".endswith(f" {thing}")


def next_moves(moment: Moment, search: Advise) -> dict[int, Advice]:
    """The next moves: every copy searches another place, or the leader acts alone."""
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
        # It already continues alone: it has acted more often than any other copy.
        return ahead[0]
    for number in moment.open:
        # It has found something by itself.
        if search(moment.copies[number - 1]).tag != "explore":
            return number
    return None


def _spread(moment: Moment, search: Advise) -> dict[int, Advice]:
    """A new search for each copy, tried by no copy yet; copies without one rest."""
    tried = {action for copy in moment.copies for action in copy.actions}
    moves: dict[int, Advice] = {}
    for number in moment.open:
        pooled = _pooled(moment, number)
        left = tuple(action for action in pooled.admissible if action not in tried)
        move = search(msgspec.structs.replace(pooled, admissible=left))
        # If the moves are not limited to a list (e.g. a search in words), all copies
        # may make them.
        free = bool(left) and move.action not in pooled.admissible
        if free or move.action in left:
            moves[number] = move
            tried.add(move.action)
    return moves


def _at_work(moment: Moment, leader: int, search: Advise) -> set[int]:
    """The other copies that still have something to do at their place."""
    possible = moment.copies[leader - 1].admissible
    busy = set()
    for number in moment.open:
        if number == leader:
            continue
        move = search(moment.copies[number - 1])
        # A move that is also possible at the leader's place does not keep the copy
        # busy.
        if move.action not in possible:
            busy.add(number)
    return busy


def _pooled(moment: Moment, number: int, at_work: Collection[int] = ()) -> Context:
    """The context of one copy, preceded by what the other copies have seen.

    Places are the same in all copies until somebody acts there.
    """
    context = moment.copies[number - 1]
    observations: list[str] = []
    for other, copy in enumerate(moment.copies, 1):
        if other == number:
            continue
        observations += copy.observations
        if other in at_work:
            # A box that was reached but not opened still counts as new.
            observations.pop()
    observations += context.observations
    return msgspec.structs.replace(context, observations=tuple(observations))
