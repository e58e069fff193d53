"""Policies without a model: a plan from the true state, a uniform draw, a judge.

They answer in the form that the request asks for, so that stages treat them like a
model. Token ids stay empty.
"""

import random
from collections.abc import Collection

import msgspec

from agentcli.environments.engines.pool import EnginePool
from agentcli.environments.protocol import Forejudging, Verdict
from agentcli.errors import EngineError, PolicyError, UsageError
from agentcli.policies.protocol import Reply, Request
from agentcli.prompts.protocol import Answer
from agentcli.records.files import derive_seed

QUERY = "Query: "
"""The beginning of the line with the query, a JSON string, in a judge's message."""
JUDGES = "tool-judge or plausible"
"""The kinds of judges that read this line."""


class ModelFree:
    """A policy without a model or other resources."""

    seconds = 0.0

    async def close(self) -> None:
        """Does nothing."""


class Expert(ModelFree):
    """Follows a plan computed from the true state, and wins if the world has a planner.

    With several copies, one of them, drawn by the episode's seed, follows the plan.
    While the plan explores, every other copy explores too, with actions that no copy
    has tried. `exploring` lists the first words of such actions.
    """

    def __init__(self, pool: EnginePool, exploring: Collection[str] = ()) -> None:
        self._pool = pool
        self._exploring = exploring

    async def respond(self, request: Request) -> Reply:
        """Follows the plan. Raises EngineError if there is no plan."""
        leader = _leader(request)
        context = request.moment.copies[leader - 1]
        plan = await self._pool.plan(request.states[leader - 1])
        if not plan:
            raise EngineError(
                f"task {context.task.id}: the planner knows nothing left to do"
            )
        others = self._search(request, leader, plan[0])
        answer = Answer("think", "next step of the plan", {leader: plan[0]})
        if others:
            answer = Answer(
                "explore", "search in parallel", {leader: plan[0], **others}
            )
        return Reply(text=request.form.write(answer, request.moment))

    def _search(self, request: Request, leader: int, action: str) -> dict[int, str]:
        """Untried actions for the other copies while the plan explores."""
        if _verb(action) not in self._exploring:
            return {}
        copies = request.moment.copies
        tried = {action, *(past for copy in copies for past in copy.actions)}
        moves = {}
        for number in request.moment.open:
            if number == leader:
                continue
            left = []
            for possible in copies[number - 1].admissible:
                if _verb(possible) in self._exploring and possible not in tried:
                    left.append(possible)
            if left:
                rng = random.Random(derive_seed(request.seed, number))
                moves[number] = rng.choice(left)
                # Two copies must not search the same place in one step either.
                tried.add(moves[number])
        return moves


def _verb(action: str) -> str:
    """The first word of an action."""
    return action.partition(" ")[0]


def _leader(request: Request) -> int:
    """The copy that follows the plan."""
    moment = request.moment
    # By the episode: with a new leader in every step no copy would finish the plan.
    drawn = 1 + derive_seed("leader", request.episode_seed) % len(moment.copies)
    return drawn if drawn in moment.open else moment.open[0]


class Uniform(ModelFree):
    """Draws one admissible action in every open copy, by the request's seed."""

    async def respond(self, request: Request) -> Reply:
        """Draws an action. Raises UsageError if the world lists no admissible ones."""
        moment = request.moment
        actions = {}
        for number in moment.open:
            context = moment.copies[number - 1]
            # Without the number in it all copies would draw alike.
            seed = (
                derive_seed(request.seed, number) if moment.numbered else request.seed
            )
            if not context.admissible:
                raise UsageError(
                    f"policy.kind random: {context.task.world} lists no admissible "
                    "actions; choose another --policy"
                )
            actions[number] = random.Random(seed).choice(context.admissible)
        answer = Answer("explore", "try anything", actions)
        return Reply(text=request.form.write(answer, request.moment))


class ToolJudge(ModelFree):
    """A judge: the engine runs every tool and scores the results.

    It answers the question of `rollout --method rare-tool` as a judge model would
    (Rare-tool section 4.1): JSON with a score for each tool and for `cot`, and with
    `process_ok`.
    """

    def __init__(self, pool: EnginePool) -> None:
        self._pool = pool

    async def respond(self, request: Request) -> Reply:
        """The verdict as JSON.

        Raises PolicyError for a message without a query, EngineError if the engine
        failed, UsageError if the engine cannot judge.
        """
        argument = query_of(request.message.text)
        return _written(await self._pool.judge(request.states[0], argument))


class KindJudge(ModelFree):
    """A judge: the world scores every tool by its kind, and none is run.

    It answers the question that ToolJudge answers, from what the agent knows too.
    """

    def __init__(self, world: Forejudging) -> None:
        self._world = world

    async def respond(self, request: Request) -> Reply:
        """The verdict as JSON.

        Raises PolicyError for a message without a query, UsageError for a task that the
        world cannot forejudge.
        """
        argument = query_of(request.message.text)
        return _written(self._world.forejudge(request.moment.copies[0], argument))


def _written(verdict: Verdict) -> Reply:
    return Reply(text=msgspec.json.encode(verdict).decode())


def query_of(message: str) -> str:
    """The query in the last line of a message that begins with `Query: `.

    Raises PolicyError if there is none, or if it is not a JSON string.
    """
    # From the end: a thought or a result before it may hold such a line, too.
    for line in reversed(message.splitlines()):
        if not line.startswith(QUERY):
            continue
        try:
            return msgspec.json.decode(line.removeprefix(QUERY), type=str)
        except msgspec.DecodeError as error:
            raise PolicyError(f"policy.kind {JUDGES}: the query: {error}") from error
    raise PolicyError(
        f"policy.kind {JUDGES}: the message has no line that begins with {QUERY!r}; "
        "use it as rollout.judge.kind of --method rare-tool"
    )
