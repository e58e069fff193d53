"""The demonstrator's faults: their rates, their masks, their seeds."""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from agentcli.environments.protocol import Context
from agentcli.policies.demonstrator import Demonstrator, stray_action
from agentcli.policies.model_free import Uniform
from agentcli.policies.protocol import Reply
from agentcli.policies.searcher import Searcher
from agentcli.prompts.parallel import Parallel, read_parallel
from agentcli.prompts.protocol import Moment
from agentcli.prompts.tagged import read_tagged
from agentcli.records.settings import DemosSettings
from policy_requests import TASK, make_request
from refusal import refused
from small_world import SmallWorld

WORLD = SmallWorld()
CONTEXT = Context(
    task=TASK,
    instruction="open it",
    observations=("A kitchen.", "A kitchen with a cabinet 1.", "You arrive at fridge 1.", "The fridge 1 is open."),
    actions=("look", "go to fridge 1", "open fridge 1"),
    admissible=("close fridge 1", "go to cabinet 1", "look"),
)
STRAYS = {"go to fridge 1", "open fridge 1"}


def replies(count: int = 1500, **settings: Any) -> list[Reply]:
    """Replies to requests that differ in their seeds only."""
    demonstrator = Demonstrator(Searcher(WORLD), WORLD, DemosSettings(**settings))
    requests = [make_request(seed=seed, episode_seed=seed // 10, context=CONTEXT) for seed in range(count)]
    return [asyncio.run(demonstrator.respond(request)) for request in requests]


def test_without_faults_it_is_the_policy_itself() -> None:
    search = Searcher(WORLD)
    alone = [
        asyncio.run(search.respond(make_request(seed=seed, episode_seed=seed // 10, context=CONTEXT)))
        for seed in range(50)
    ]
    assert replies(50) == alone


def test_noise_and_stray_come_at_their_rates_with_masks() -> None:
    made = replies(noise=0.2, stray=0.1)
    masks = Counter(reply.mask for reply in made)
    assert masks["noise"] / 1500 == pytest.approx(0.2, abs=0.04)
    assert masks["stray"] / 1500 == pytest.approx(0.1, abs=0.03)
    actions = {mask: {read_tagged(reply.text).actions[1] for reply in made if reply.mask == mask} for mask in masks}
    assert actions[None] == {"open fridge 1"}
    assert actions["noise"] == set(CONTEXT.admissible)
    assert actions["stray"] > STRAYS
    assert made == replies(noise=0.2, stray=0.1)


def test_a_stray_action_is_never_admissible_and_names_a_strange_thing_or_the_past() -> None:
    rng = random.Random(0)
    strays = {stray_action(CONTEXT, WORLD.vocabulary(), rng) for _ in range(300)}
    assert not strays & set(CONTEXT.admissible)
    foreign = {"close bathtub 1", "close towel", "go to bathtub 1", "go to towel"}
    assert strays == STRAYS | foreign


def test_where_nothing_is_stray_the_policy_acts() -> None:
    fresh = Context(
        task=TASK, instruction="", observations=("bathtub 1 cabinet 1 fridge 1 towel",), admissible=("look",)
    )
    assert stray_action(fresh, WORLD.vocabulary(), random.Random(0)) is None
    demonstrator = Demonstrator(Searcher(WORLD), WORLD, DemosSettings(stray=1.0))
    reply = asyncio.run(demonstrator.respond(make_request(context=fresh)))
    assert (reply.mask, read_tagged(reply.text).actions[1]) == (None, "open fridge 1")


def test_the_tutor_is_given_the_habits_that_demos_sets() -> None:
    habits = {tuple(read_tagged(reply.text).reasoning.split()[1:]) for reply in replies(forget=0.7, overlook=0.25)}
    assert habits == {("0.7", "0.25")}


def test_a_habit_that_the_tutor_does_not_have_is_refused() -> None:
    refused(lambda: Demonstrator(Searcher(WORLD), WORLD, DemosSettings(wander=0.5)), names="demos.wander")


@pytest.mark.parametrize("habit", ["forget", "overlook"])
def test_habits_that_cannot_take_effect_are_refused(habit: str) -> None:
    settings = DemosSettings(policy="random", **{habit: 0.5})
    refused(lambda: Demonstrator(Uniform(), WORLD, settings), names=("random", habit), remedy=f"demos.{habit}=0")


def test_only_the_searching_expert_tags_fewer_searches() -> None:
    settings = DemosSettings(policy="random", explore=[0.5])
    refused(lambda: Demonstrator(Uniform(), WORLD, settings), names="demos.explore", remedy="--policy search")


def test_seconds_are_those_of_the_wrapped_policy() -> None:
    demonstrator = Demonstrator(Searcher(WORLD), WORLD, DemosSettings())
    asyncio.run(demonstrator.respond(make_request(context=CONTEXT)))
    assert demonstrator.seconds > 0
    asyncio.run(demonstrator.close())


def test_in_several_copies_a_fault_happens_in_one_of_those_that_act() -> None:
    """Copy 2 has not opened the fridge yet, copy 3 is over; a fault leaves every other copy's action as it was."""
    earlier = Context(
        task=TASK,
        instruction="open it",
        observations=("A kitchen.", "You arrive at fridge 1. The fridge 1 is closed."),
        actions=("go to fridge 1",),
        admissible=("open fridge 1", "go to cabinet 1"),
    )
    moment = Moment(copies=(CONTEXT, earlier, CONTEXT), numbered=True, ended=frozenset({3}))
    own = {1: CONTEXT, 2: earlier}
    faults = DemosSettings(policy="random", stray=0.4, noise=0.3)
    inner = Uniform()
    sound, made = Demonstrator(inner, WORLD, DemosSettings(policy="random")), Demonstrator(inner, WORLD, faults)
    masks, changed = Counter[str | None](), set()
    for seed in range(400):
        request = make_request(seed=seed, episode_seed=0, moment=moment, states=(None, None, None), form=Parallel())
        plain, reply = (
            read_parallel(asyncio.run(policy.respond(request)).text, moment.open, 3).actions for policy in (sound, made)
        )
        mask = asyncio.run(made.respond(request)).mask
        masks[mask] += 1
        assert set(plain) == set(reply) == {1, 2}
        other = [copy for copy in own if plain[copy] != reply[copy]]
        assert len(other) <= (mask is not None)
        changed |= set(other)
        if mask == "stray":
            assert sum(reply[copy] not in own[copy].admissible for copy in own) == 1
    assert masks["stray"] / 400 == pytest.approx(0.4, abs=0.08)
    assert masks["noise"] / 400 == pytest.approx(0.3, abs=0.08)
    assert changed == {1, 2}
