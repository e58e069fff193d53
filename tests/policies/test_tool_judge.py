"""The judge without a model: the engine's verdict as JSON, from the state that it was asked about."""

import json
from typing import Any

import pytest
from agentcli.environments.engines.pool import EnginePool, State
from agentcli.environments.protocol import Judging, Toolbox
from agentcli.errors import PolicyError
from agentcli.policies.model_free import ToolJudge, query_of
from agentcli.prompts.protocol import Message
from agentcli.records.settings import EnvironmentSettings
from judging_world import JudgingEngine, JudgingWorld
from policy_requests import make_request
from pools import play, tasks_of, toy, with_pool
from refusal import refusal, refused
from toy_world import ToyEngine, ToyWorld

WORLD = EnvironmentSettings(name="judging_world:JudgingWorld")


def test_capabilities_are_seen_by_type() -> None:
    world = JudgingWorld(WORLD)
    assert isinstance(world, Toolbox)
    assert not isinstance(ToyWorld(toy()), Toolbox)
    assert isinstance(JudgingEngine(world), Judging)
    assert not isinstance(ToyEngine(ToyWorld(toy())), Judging)


def test_a_verdict_is_of_the_state_that_was_asked_about() -> None:
    async def asked(pool: EnginePool, state: State, argument: str) -> Any:
        message = Message((f'Query: "old"\nQuery: {json.dumps(argument)}\nAnswer in JSON.',))
        reply = await ToolJudge(pool).respond(make_request(message=message, states=(state,)))
        return json.loads(reply.text)

    async def body(pool: EnginePool) -> None:
        root = await pool.start(tasks_of(WORLD)[0])
        ahead = await play(pool, root, "go east", "go east")
        scores = {"lamp": 0.0, "map": 6.0, "cot": 1.0}
        for state, room in ((ahead, 2.0), (root, 0.0), (ahead, 2.0)):
            assert await asked(pool, state, 'a "b"\n') == {"scores": {**scores, "lamp": room}, "process_ok": True}
        await pool.release(root.task.id)
        assert (await asked(pool, ahead, ""))["scores"]["lamp"] == 2.0
        assert pool.replayed_steps == 2, "the state was lost, and played again"

    with_pool(WORLD, body)


def test_a_world_without_a_judge_is_refused_with_what_to_set() -> None:
    async def body(pool: EnginePool) -> None:
        state = await pool.start(tasks_of(toy())[0])
        with refusal(2, remedy="--set rollout.judge.kind="):
            await pool.judge(state, "x")

    with_pool(toy(), body)


@pytest.mark.parametrize("text", ["What now?", "Query: no string", "Query: 3", 'Query: "a', ' Query: "a"'])
def test_a_message_without_a_query_is_refused(text: str) -> None:
    with pytest.raises(PolicyError):
        query_of(text)
    refused(lambda: query_of(text), code=1, names="tool-judge")
