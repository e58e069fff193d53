"""Policies without a model."""

import asyncio
from collections import Counter
from typing import Any

import msgspec
from agentcli.environments.protocol import FINISHED, Advice, Context
from agentcli.policies.model_free import Expert, Uniform, _leader
from agentcli.policies.searcher import Searcher
from agentcli.prompts.parallel import Parallel
from agentcli.prompts.protocol import Moment
from agentcli.prompts.tagged import read_tagged
from agentcli.records.files import derive_seed
from policy_requests import TASK, make_request
from refusal import refusal, refused
from small_world import SmallHabits, SmallWorld

ADMISSIBLE = ("open fridge 1", "go to cabinet 1", "look")
CONTEXT = Context(task=TASK, instruction="open it", observations=("A kitchen.",), admissible=ADMISSIBLE)

FIRST_LEADS = next(seed for seed in range(1000) if derive_seed("leader", seed) % 12 == 0)
"""Of an episode in which the first of two, three or four copies follows the plan."""


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
    with refusal(4, "task t:"):
        asyncio.run(Expert(Plans()).respond(make_request(states=((),))))


def copies_of_the_expert(plan: str, *pasts: tuple[str, ...]) -> dict[int, str]:
    """What it does in copies with these pasts, by copy, in an episode where the first follows the plan."""
    ways = ("go to cabinet 1", "go to fridge 1", "go to desk 1", "look")
    context = msgspec.structs.replace(CONTEXT, admissible=ways)
    contexts = [
        msgspec.structs.replace(context, actions=past, observations=("A kitchen.",) * (len(past) + 1)) for past in pasts
    ]
    request = make_request(
        moment=Moment(copies=tuple(contexts), numbered=True),
        states=((plan,),) * len(contexts),
        form=Parallel(),
        episode_seed=FIRST_LEADS,
    )
    text = asyncio.run(Expert(Plans(), ("go",)).respond(request)).text
    return dict(request.form.read(text, request.moment).actions)


def test_while_the_plan_explores_each_copy_of_the_expert_goes_another_way() -> None:
    moves = copies_of_the_expert("go to cabinet 1", (), (), (), ())
    assert moves[1] == "go to cabinet 1"
    # For the fourth no way is left that no other takes.
    assert sorted(moves) == [1, 2, 3]
    assert {moves[2], moves[3]} == {"go to fridge 1", "go to desk 1"}
    moves = copies_of_the_expert("go to cabinet 1", (), ("go to desk 1",))
    assert moves == {1: "go to cabinet 1", 2: "go to fridge 1"}


def test_what_a_plan_does_then_is_done_in_its_own_copy_alone() -> None:
    assert copies_of_the_expert("open fridge 1", (), (), ()) == {1: "open fridge 1"}


def test_which_copy_follows_the_plan_differs_from_episode_to_episode() -> None:
    leaders = Counter(
        _leader(make_request(moment=Moment(copies=(CONTEXT,) * 4, numbered=True), episode_seed=seed))
        for seed in range(200)
    )
    assert sorted(leaders) == [1, 2, 3, 4]
    assert min(leaders.values()) > 25


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
