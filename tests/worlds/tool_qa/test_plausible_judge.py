"""The judge that scores tools by their kind: what could hold a value, before any tool is run."""

import asyncio
import json
from itertools import product
from typing import Any

import msgspec
import playing
import pytest
from agentcli.environments.protocol import Context, Forejudging, Verdict
from agentcli.environments.registry import make_world
from agentcli.errors import UsageError
from agentcli.policies.model_free import KindJudge
from agentcli.policies.registry import make_policy
from agentcli.prompts.protocol import Message
from agentcli.records.calls import read_call
from agentcli.records.settings import EnvironmentSettings, PolicySettings, Settings
from agentcli.worlds.tool_qa.judge import has_habit
from agentcli.worlds.tool_qa.knowledge import PLACES
from agentcli.worlds.tool_qa.world import ToolQaWorld, insight_of
from hypothesis import given
from hypothesis import strategies as st
from policy_requests import make_request
from refusal import refusal
from toy_world import ToyWorld

LOOKUP, COMPUTED = "melting", "digit sum"
MOST_PLACES = 12


@pytest.fixture(scope="module")
def world() -> ToolQaWorld:
    made = make_world(EnvironmentSettings(name="tool_qa"))
    assert isinstance(made, ToolQaWorld)
    return made


def opened(world: ToolQaWorld, template: str, place: int = 0) -> Context:
    tasks = [task for task in world.tasks("train") if task.attributes["template"] == template]
    assert len(tasks) > MOST_PLACES
    return playing.opened(world.engine(), tasks[place])


def after(context: Context, action: str, text: str) -> Context:
    texts = (*context.observations, text)
    return msgspec.structs.replace(context, observations=texts, actions=(*context.actions, action))


def fact_of(context: Context) -> str:
    reading = insight_of(context).reading
    assert reading is not None
    return f"{reading.template.lookups[0]} of {reading.slots['s']}"


def fitting(verdict: Verdict) -> set[str]:
    for name, score in verdict.scores.items():
        assert 6 <= score <= 9 or score < 5 or (name, score) == ("cot", 10.0)
    return {name for name, score in verdict.scores.items() if 6 <= score <= 9}


def test_every_source_could_hold_a_fact_whichever_does(world: ToolQaWorld) -> None:
    context = opened(world, LOOKUP)
    verdict = world.forejudge(context, fact_of(context))
    assert fitting(verdict) == set(PLACES)
    assert list(verdict.scores) == [*world.tools, "cot"]
    assert verdict.process_ok


@given(place=st.integers(0, MOST_PLACES), query=st.text(max_size=20))
def test_what_asks_for_nothing_needed_fits_no_tool(world: ToolQaWorld, place: int, query: str) -> None:
    verdict = world.forejudge(opened(world, LOOKUP, place), query)
    assert fitting(verdict) == set()
    assert not verdict.process_ok


@given(place=st.integers(0, MOST_PLACES))
def test_scores_are_of_the_question_and_the_tool(world: ToolQaWorld, place: int) -> None:
    """The same for ever, until a tool was asked in vain."""
    context = opened(world, LOOKUP, place)
    fact = fact_of(context)
    scores = world.forejudge(context, fact).scores
    assert scores == world.forejudge(context, fact).scores
    tried = after(context, f"facts[{fact}]", "facts: error: nothing is known")
    left = world.forejudge(tried, fact)
    # What has been asked in vain holds nothing; the others are as before.
    assert fitting(left) == set(PLACES) - {"facts"}
    assert {name: left.scores[name] for name in fitting(left)} == {name: scores[name] for name in fitting(left)}


def test_the_judge_has_no_favourite(world: ToolQaWorld) -> None:
    best = set()
    for place, template in product(range(MOST_PLACES + 1), (LOOKUP, "currency")):
        context = opened(world, template, place)
        scores = world.forejudge(context, fact_of(context)).scores
        best.add(max(scores, key=scores.__getitem__))
    assert best == set(PLACES)


def habitual(share: float) -> ToolQaWorld:
    made = make_world(EnvironmentSettings(name="tool_qa", options={"habit": share}))
    assert isinstance(made, ToolQaWorld)
    return made


def test_a_habit_prefers_search_even_where_it_has_failed(world: ToolQaWorld) -> None:
    """The other tools score as they do without it."""
    fond = habitual(1.0)
    context = opened(fond, LOOKUP)
    fact = fact_of(context)
    tried = after(context, f"search[{fact}]", "search: error: nothing is known")
    plain = world.forejudge(tried, fact).scores
    assert plain["search"] < 6
    assert fond.forejudge(tried, fact).scores == plain | {"search": 9.5}
    # It is a habit of looking up: nothing that search could not hold.
    assert fond.forejudge(context, "nothing").scores["search"] < 6
    computed = opened(fond, COMPUTED)
    call = read_call(fond.next(computed, 0, fond.habits(wander=0.0)).action)
    assert call is not None
    assert fond.forejudge(computed, call.argument) == world.forejudge(computed, call.argument)


def test_a_habit_is_of_a_share_of_the_questions() -> None:
    habits = sum(has_habit(f"0-10-all/train/{number}", 0.25) for number in range(400))
    # 400 draws at a quarter: 100 with a standard deviation of 8.7.
    assert 74 <= habits <= 126


def test_a_found_answer_leaves_nothing_to_tools(world: ToolQaWorld) -> None:
    context = opened(world, LOOKUP)
    fact = fact_of(context)
    options = insight_of(context).options
    found = after(context, f"facts[{fact}]", f"facts: The {fact} is {options[0]}.")
    verdict = world.forejudge(found, fact)
    assert verdict.scores["cot"] == 10.0
    assert fitting(verdict) == set()


def test_a_program_is_for_the_tool_whose_form_it_has(world: ToolQaWorld) -> None:
    context = opened(world, COMPUTED)
    call = read_call(world.next(context, 0, world.habits(wander=0.0)).action)
    assert call is not None
    for written in (call.argument, call.argument.replace(" ", "")):
        verdict = world.forejudge(context, written)
        assert fitting(verdict) == {call.name} == {"python"}
        assert verdict.scores["cot"] == 4.0


def test_it_is_a_policy_that_answers_a_judge_s_question(world: ToolQaWorld) -> None:
    context = opened(world, LOOKUP)
    fact = fact_of(context)
    settings = Settings(policy=PolicySettings(kind="plausible"))
    judge: Any = make_policy(settings, world, None, None)
    assert isinstance(judge, KindJudge)
    message = Message((f"Query: {json.dumps(fact)}",))
    asked = make_request(message=message, context=context)
    reply = asyncio.run(judge.respond(asked))
    assert json.loads(reply.text) == msgspec.to_builtins(world.forejudge(context, fact))


def test_other_worlds_and_rows_of_a_file_are_refused(world: ToolQaWorld) -> None:
    assert isinstance(world, Forejudging)
    toy = ToyWorld(EnvironmentSettings(name="toy_world:ToyWorld"))
    with refusal(2, "policy.kind", "plausible"):
        make_policy(Settings(policy=PolicySettings(kind="plausible")), toy, None, None)
    row = msgspec.structs.replace(opened(world, LOOKUP), instruction="What is it?\nA: one\nB: two")
    with pytest.raises(UsageError, match="tool-judge"):
        world.forejudge(row, "it")
