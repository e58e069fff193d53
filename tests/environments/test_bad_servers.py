"""A server that is down, forgets, is late, answers nonsense or too much: one line, or an errored leaf."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from agentcli.environments.protocol import Closable, Engine, LostEngineError
from agentcli.environments.registry import TOKEN_VARIABLE, make_world
from agentcli.records.files import read_records
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Outcome, Tree
from command_line import Answer, agentcli
from refusal import refused
from served_worlds import Script, scripted, seen

NOWHERE = "http://127.0.0.1:9"
ACTIONS = "environment.options.actions=[go]"


def playing(message: dict[str, Any], count: int) -> Any:
    """A sound session: rooms that are numbered by the steps taken since the reset."""
    if message["type"] == "state":
        return {"type": "state", "data": {}}
    return seen() if message["type"] == "reset" else seen(f"Room after {message['data']['move']}.")


def rollout(url: str, folder: Path, *words: str) -> Answer:
    out = ("--set", ACTIONS, "--max-steps", "3", "--leaves", "2", "--tasks", "1", "-q", "-o", str(folder / "run"))
    return agentcli("rollout", "--env", url, "--policy", "random", *out, *words)


def errors(folder: Path) -> list[str]:
    """The faults of the errored leaves."""
    trees = read_records(folder / "run" / "trees.jsonl", Tree)
    leaves = [step for tree in trees for step in tree.steps if step.outcome is not None]
    return [leaf.error or "" for leaf in leaves if leaf.outcome is Outcome.ERRORED]


def test_a_sound_session_has_no_errored_leaf(tmp_path: Path) -> None:
    with scripted(playing) as url:
        assert rollout(url, tmp_path).code == 0
    assert errors(tmp_path) == []


def answering(reply: str | None) -> Script:
    """A session that gives this reply to every step, and is sound before."""
    return lambda message, count: reply if message["type"] == "step" else playing(message, count)


@contextmanager
def begun(script: Script) -> Iterator[Engine]:
    """An engine of a scripted server, its task open."""
    with scripted(script) as url:
        world = make_world(EnvironmentSettings(name=url))
        engine = world.engine()
        engine.start(world.tasks("train")[0])
        yield engine
        assert isinstance(engine, Closable)
        engine.close()


@pytest.mark.parametrize(
    ("reply", "part"),
    [
        ("{nonsense", "protocol"),
        (json.dumps({"type": "observation", "data": {"observation": 7}}), "protocol"),
        (json.dumps({"type": "weather", "data": {}}), "weather"),
        (json.dumps({"type": "error", "data": {"message": "the roof\nfell in"}}), "the roof"),
        (json.dumps({"type": "error", "data": 7}), "protocol"),
        ("x" * (16 * 2**20 + 1), "longer than"),
    ],
)
def test_a_bad_answer_is_the_fault_of_one_call(reply: str, part: str) -> None:
    with begun(answering(reply)) as engine:
        refused(lambda: engine.step("go"), 4, names=part)


@pytest.mark.parametrize(
    "reply", [None, json.dumps({"type": "error", "data": {"message": "?", "code": "SESSION_ERROR"}})]
)
def test_a_lost_session_ends_the_engine_process(reply: str | None) -> None:
    with begun(answering(reply)) as engine, pytest.raises(LostEngineError):
        engine.step("go")


def test_a_session_that_is_always_lost_is_an_errored_leaf(tmp_path: Path) -> None:
    with scripted(answering(None)) as url:
        rollout(url, tmp_path, "--leaves", "1")
    (fault,) = errors(tmp_path)
    assert "session is gone" in fault
    assert not any(word in fault for word in ("\n", "Traceback", "File ", "raise "))


def test_a_long_observation_is_an_errored_leaf_and_is_not_stored(tmp_path: Path) -> None:
    with scripted(answering(json.dumps(seen("x" * 2 * 10**6)))) as url:
        rollout(url, tmp_path, "--leaves", "1")
    (fault,) = errors(tmp_path)
    assert "environment.most_text_bytes" in fault
    assert (tmp_path / "run" / "trees.jsonl").stat().st_size < 10_000


def second_step(change: Script) -> tuple[Script, list[str]]:
    """A server that answers as `change` does to the second step after the first reset; and the messages that it got."""
    got: list[str] = []

    def answer(message: dict[str, Any], count: int) -> Any:
        got.append(message["type"])
        if got.count("step") == 2 and got.count("reset") == 1 and message["type"] == "step":
            return change(message, count)
        return playing(message, count)

    return answer, got


def test_a_forgotten_session_is_replayed(tmp_path: Path) -> None:
    """The server hangs up once, at the second step; what was played is played again in a new session."""
    answer, got = second_step(lambda message, count: None)
    with scripted(answer) as url:
        assert rollout(url, tmp_path, "--leaves", "1").code == 0
    assert got.count("reset") == 2
    assert errors(tmp_path) == []


def test_another_answer_on_replay_is_an_errored_leaf(tmp_path: Path) -> None:
    resets: list[int] = []

    def answer(message: dict[str, Any], count: int) -> Any:
        if message["type"] == "reset":
            resets.append(count)
        if message["type"] == "step":
            return seen(f"Room of visit {len(resets)}.") if count == 2 else None
        return playing(message, count)

    with scripted(answer) as url:
        rollout(url, tmp_path, "--leaves", "1")
    (fault,) = errors(tmp_path)
    assert "visit 1" in fault
    assert "visit 2" in fault


def test_a_late_answer_is_an_errored_leaf(tmp_path: Path) -> None:
    over = threading.Event()

    def answer(message: dict[str, Any], count: int) -> Any:
        if message["type"] == "step":
            over.wait(60)
        return playing(message, count)

    with scripted(answer) as url:
        rollout(url, tmp_path, "--leaves", "1", "--set", "environment.deadline_seconds=0.2")
        over.set()
    (fault,) = errors(tmp_path)
    assert "0.2 s" in fault


@pytest.mark.parametrize(
    ("pages", "code", "parts"),
    [
        ({"schema": b"<html>"}, 4, ("/schema", "protocol")),
        ({"schema": {"action": {}}}, 4, ("/schema", "observation")),
        ({"schema": {"action": {}, "observation": {}}}, 2, ("environment.options.action",)),
        ({"schema": None}, 4, ("no world", "agentcli env serve")),
        ({"metadata": b"[" * 9}, 4, ("/metadata", "protocol")),
    ],
)
def test_a_bad_page_is_refused(pages: dict[str, Any], code: int, parts: tuple[str, ...], tmp_path: Path) -> None:
    with scripted(playing, **pages) as url:
        line = refused(rollout(url, tmp_path), code, names=parts)
    assert not (tmp_path / "run").exists(), line


def test_nobody_answers(tmp_path: Path) -> None:
    refused(rollout(NOWHERE, tmp_path), 4, names=NOWHERE, remedy="agentcli env serve NAME")
    refused(agentcli("env", "check", NOWHERE), 4, names=NOWHERE, remedy="agentcli env serve NAME")


@pytest.mark.parametrize(
    "url", ["http://", "http://host:port", "http://me:pass@host:1", "https://host/?a=1", "http://[::1"]
)
def test_a_bad_address_is_refused(url: str) -> None:
    refused(lambda: make_world(EnvironmentSettings(name=url)), names="environment.name")


def test_another_world_than_the_panels_is_refused(tmp_path: Path) -> None:
    panel = tmp_path / "panel.json"
    assert agentcli("env", "panel", "ezpoints", "--tasks", "2", "-o", str(panel)).code == 0
    with scripted(playing) as url:
        refused(rollout(url, tmp_path, "--panel", str(panel)), 3, names=(str(panel), "ezpoints", "rooms"))


def test_a_secret_of_the_server_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "open sesame")
    with scripted(playing, secret="Bearer open sesame") as url:
        make_world(EnvironmentSettings(name=url)).engine().close()  # type: ignore[attr-defined]
        monkeypatch.delenv(TOKEN_VARIABLE)
        refused(lambda: make_world(EnvironmentSettings(name=url)), 4, names=url, remedy=TOKEN_VARIABLE)
