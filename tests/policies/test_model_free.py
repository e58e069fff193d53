"""Policies without a model."""

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest
from agentcli.environments.protocol import FINISHED, Advice, Context
from agentcli.errors import EngineError
from agentcli.policies.model_free import Expert, Uniform
from agentcli.policies.searcher import Searcher
from agentcli.prompts.tagged import read_tagged
from policy_requests import TASK, make_request
from refusal import refused
from small_world import SmallHabits, SmallWorld

ADMISSIBLE = ("open fridge 1", "go to cabinet 1", "look")
CONTEXT = Context(task=TASK, instruction="open it", observations=("A kitchen.",), admissible=ADMISSIBLE)


class Plans:
    """A pool that knows plans by state."""

    async def plan(self, state: Any) -> list[str]:
        """The actions stored as the state."""
        return list(state)


def test_the_expert_takes_the_first_action_of_the_plan() -> None:
    reply = asyncio.run(Expert(Plans()).respond(make_request(states=(("go to cabinet 1", "look"),))))
    parsed = read_tagged(reply.text)
    assert (parsed.tag, parsed.actions[1]) == ("think", "go to cabinet 1")
    assert (reply.token_ids, reply.mask) == ((), None)
    with pytest.raises(EngineError, match="task t: the planner"):
        asyncio.run(Expert(Plans()).respond(make_request(states=((),))))


def test_search_asks_the_world_with_the_episode_seed_and_no_bad_habits() -> None:
    policy = Searcher(SmallWorld())
    parsed = read_tagged(asyncio.run(policy.respond(make_request(seed=1, episode_seed=42))).text)
    assert (parsed.tag, parsed.reasoning, parsed.actions[1]) == ("explore", "42 0.0 0.0", "open fridge 1")
    assert policy.seconds > 0


def test_that_a_finished_expert_rests_is_imitated_once() -> None:
    class Rested(SmallWorld):
        def next(self, context: Context, seed: int, habits: SmallHabits) -> Advice:
            return Advice("think", FINISHED, "look")

    def mask(*actions: str) -> str | None:
        context = msgspec.structs.replace(CONTEXT, actions=actions, observations=("A kitchen.",) * (len(actions) + 1))
        return asyncio.run(Searcher(Rested()).respond(make_request(context=context))).mask

    assert [mask(), mask("open fridge 1"), mask("look"), mask("look", "look")] == [None, None, "finished", "finished"]


def test_random_is_uniform_over_what_is_admissible_and_follows_the_seed() -> None:
    policy = Uniform()

    def action(seed: int) -> str:
        return read_tagged(asyncio.run(policy.respond(make_request(seed=seed, context=CONTEXT))).text).actions[1]

    drawn = Counter(action(seed) for seed in range(600))
    assert set(drawn) == set(ADMISSIBLE)
    assert min(drawn.values()) > 150
    assert [action(seed) for seed in range(20)] == [action(seed) for seed in range(20)]
    refused(
        lambda: asyncio.run(policy.respond(make_request(context=msgspec.structs.replace(CONTEXT, admissible=())))),
        names="admissible",
    )
