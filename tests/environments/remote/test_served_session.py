"""What one session may hold at the server: a client that never resets gets an error, and not the server's memory."""

import json

import pytest
from agentcli.environments.engines.pool import EnginePool
from agentcli.environments.remote import session as module
from agentcli.environments.remote.session import TaskIndex, WorldSession
from pools import tasks_of, toy, with_pool

RESET = json.dumps({"type": "reset"})


def step(action: str) -> str:
    """From the first state, so that nothing is ever left behind."""
    return json.dumps({"type": "step", "data": {"action": action, "at": 0}})


def answered(*messages: str) -> list[str]:
    """The types of the answers of one session."""

    async def converse(pool: EnginePool) -> list[str]:
        session = WorldSession(pool, TaskIndex({"train": tasks_of(toy())}, "train"))
        kinds = []
        for message in messages:
            answer = json.loads(await session.answer(message) or "{}")
            kinds.append(answer["type"])
            if answer["type"] == "error":
                assert "reset" in answer["data"]["message"]
                assert answer["data"]["kind"] == "EngineError"
        return kinds

    kinds: list[str] = with_pool(toy(), converse)
    return kinds


def test_the_states_of_a_session_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_STATES", 3)
    kinds = answered(RESET, step("look"), step("look"), step("look"), RESET, step("look"))
    assert kinds == ["observation"] * 3 + ["error"] + ["observation"] * 2


def test_their_bytes_are_bounded() -> None:
    """Actions of 900 KB, as large as a message may be."""
    long = step("x" * 900_000)
    kinds = answered(RESET, *[long] * 90, RESET, long)
    kept = kinds.index("error")
    assert 60 <= kept * 0.9 <= 70, "about 64 MB"
    assert kinds[kept:] == ["error"] * (91 - kept) + ["observation"] * 2
