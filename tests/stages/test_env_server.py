"""`env serve`: OpenEnv's own client plays our worlds to the end of an episode, and nobody but this machine does."""

import contextlib
import json
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from agentcli.environments.registry import make_world
from agentcli.records.files import write_json
from agentcli.records.settings import EnvironmentSettings
from agentcli.stages.panels import make_panel
from command_line import agentcli, succeeded
from openenv import GenericEnvClient, SyncEnvClient
from processes import SECONDS
from refusal import refused
from served_worlds import process_of, served
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect


@pytest.fixture(scope="module")
def ezpoints() -> Iterator[str]:
    with served("ezpoints", "--max-steps", "3", "--sessions", "2", "--split", "valid") as url:
        yield url


def test_openenvs_client_plays_an_episode_to_its_end(ezpoints: str) -> None:
    """As a policy in this process would: the task of the seed, its texts, its reward."""
    world = make_world(EnvironmentSettings(name="ezpoints"))
    task = world.tasks("valid")[2]
    engine = world.engine()
    start = engine.start(task)
    with GenericEnvClient(base_url=ezpoints).sync() as client:
        first = client.reset(seed=2, episode_id="mine")
        assert (first.done, first.reward) == (False, 0.0)
        assert first.observation["instruction"] == start.instruction
        assert first.observation["text"] == start.observation.text
        assert tuple(first.observation["actions"]) == start.observation.actions
        action = start.observation.actions[0]
        assert client.step({"action": action}).observation["text"] == engine.step(action).text
        ended = client.step({"action": "="})
        last = engine.step("=")
        assert (ended.done, ended.reward, ended.observation["end"]) == (True, last.reward, last.end)
        assert client.state() == {"step_count": 2, "episode_id": task.id}
        # A seed counts on from the first task after the last one.
        assert client.reset(seed=2 + len(world.tasks("valid"))).observation["text"] == start.observation.text


def test_resets_without_a_seed_go_through_the_tasks(ezpoints: str) -> None:
    def opened(client: SyncEnvClient, **data: int) -> str:
        text: str = client.reset(**data).observation["text"]
        return text

    with GenericEnvClient(base_url=ezpoints).sync() as client:
        asked = [opened(client, seed=seed) for seed in (0, 1, 2, 7, 8)]
    with GenericEnvClient(base_url=ezpoints).sync() as client:
        assert [*(opened(client) for _ in range(3)), opened(client, seed=7), opened(client)] == asked
        assert len(set(asked)) > 1


def test_only_the_tasks_of_the_settings_are_served(empty_folder: Path) -> None:
    panel = make_world(EnvironmentSettings(name="tool_qa")).tasks("test")[3:5]
    write_json(Path("panel.json"), make_panel("few", "tool_qa", panel))
    counts = []
    for setting in ("tasks=3", "where={kind: [math]}", "panel=panel.json"):
        done = succeeded("env", "serve", "tool_qa", "--dry-run", "--json", "--set", f"environment.{setting}")
        counts.append(json.loads(done.stdout)["tasks"])
    few, math, chosen = counts
    assert (few, chosen) == (3, 2)
    assert 3 < math < len(make_world(EnvironmentSettings(name="tool_qa")).tasks("train"))
    nothing = agentcli("env", "serve", "tool_qa", "--dry-run", "--set", "environment.where={kind: [maths]}")
    refused(nothing, names="maths", remedy="math")


def test_the_last_step_of_the_limit_is_done(ezpoints: str) -> None:
    with GenericEnvClient(base_url=ezpoints).sync() as client:
        client.reset()
        steps = [client.step({"action": "nonsense"}) for _ in range(3)]
        assert [step.done for step in steps] == [False, False, True]
        assert [step.observation["end"] for step in steps] == [None, None, "truncated"]
        with pytest.raises(RuntimeError, match="reset"):
            client.step({"action": "nonsense"})
        assert not client.reset().done


def test_an_action_that_a_client_read_as_a_number_is_its_text(ezpoints: str) -> None:
    """verifiers reads what a model writes as JSON where it can."""
    with GenericEnvClient(base_url=ezpoints).sync() as client:
        seen = []
        for action in ("10", 10, "true", True, '["=",2]', ["=", 2]):
            client.reset(seed=1)
            step = client.step({"action": action})
            seen.append((step.observation, step.reward, step.done))
        assert seen[::2] == seen[1::2]
        assert seen[0] != seen[2]


def ask(session: ClientConnection, kind: str, **data: object) -> dict[str, Any]:
    session.send(json.dumps({"type": kind, "data": data}))
    answer: dict[str, Any] = json.loads(session.recv())
    return answer


def address(url: str) -> str:
    return f"{url.replace('http', 'ws')}/ws"


def test_a_false_message_is_answered_and_the_session_goes_on(ezpoints: str) -> None:
    with connect(address(ezpoints)) as session:
        codes = [ask(session, "step", action="1")["data"]["code"], ask(session, "fly")["data"]["code"]]
        assert codes == ["EXECUTION_ERROR", "VALIDATION_ERROR"]
        for text in ("not json", b"bytes", "7"):
            session.send(text)
            assert json.loads(session.recv())["data"]["code"] == "VALIDATION_ERROR"
        assert ask(session, "reset", seed="two")["data"]["code"] == "VALIDATION_ERROR"
        assert ask(session, "reset")["type"] == "observation"
        assert ask(session, "step")["data"]["code"] == "EXECUTION_ERROR"
        session.send(json.dumps({"type": "close"}))
        with pytest.raises(ConnectionClosed):
            session.recv()


def test_there_are_so_many_sessions_and_no_more(ezpoints: str) -> None:
    with connect(address(ezpoints)) as first, connect(address(ezpoints)) as second:
        for session in (first, second):
            assert ask(session, "reset")["type"] == "observation"
        with connect(address(ezpoints)) as third:
            assert json.loads(third.recv())["data"]["code"] == "CAPACITY_REACHED"
        assert ask(first, "state")["data"]["step_count"] == 0


def test_an_engine_that_hangs_is_one_error(ezpoints: str) -> None:
    broken = ("environment.options={fault: hang, fault_tasks: [train/0]}", "environment.deadline_seconds=0.3")
    with served("toy_world:ToyWorld", "--set", broken[0], "--set", broken[1]) as url, connect(address(url)) as session:
        ask(session, "reset")
        assert "0.3 s" in ask(session, "step", action="go west")["data"]["message"]
        assert ask(session, "step", action="look")["type"] == "observation"


def test_a_program_that_reads_the_pipe_gets_the_address_at_once() -> None:
    with process_of("ezpoints", "--json", "--port", "0", PYTHONUNBUFFERED="") as (line, _):
        assert json.loads(line)["url"].startswith("http://127.0.0.1:")


def test_our_own_client_plays_it_as_any_openenv_server(ezpoints: str) -> None:
    options = ("--set", "environment.options={text: text, actions: ['1', '+', '=']}")
    done = succeeded("env", "check", ezpoints, "--tasks", "2", "--json", "-q", *options)
    assert [json.loads(line)["problem"] for line in done.stdout.splitlines()] == [None, None]


def test_a_page_of_a_browser_is_kept_out(ezpoints: str) -> None:
    with pytest.raises(InvalidStatus):
        connect(address(ezpoints), origin="http://somewhere.example")


@pytest.mark.parametrize("path", ["health", "metadata", "schema"])
def test_a_page_whose_name_leads_here_is_kept_out(path: str, ezpoints: str) -> None:
    """DNS rebinding: the browser takes the page's own name for this server, and sends no Origin."""
    port = ezpoints.rpartition(":")[2]
    strangers = ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "[::1", "", "localhost@evil.example")
    for host in strangers:
        assert httpx.get(f"{ezpoints}/{path}", headers={"Host": host}).status_code == 400, host
    for host in ("localhost", f"LOCALHOST:{port}", f"127.0.0.1:{port}"):
        assert httpx.get(f"{ezpoints}/{path}", headers={"Host": host}).status_code == 200, host


def test_a_host_that_is_not_ours_opens_no_session(ezpoints: str) -> None:
    port = int(ezpoints.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as stream, pytest.raises(InvalidStatus):
        connect(f"ws://evil.example:{port}/ws", sock=stream)


def test_a_text_that_is_no_utf8_ends_its_session_without_a_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    with served("ezpoints") as url:
        with connect(address(url)) as session:
            session.send(b"\xff\xfe", text=True)
            with pytest.raises(ConnectionClosed):
                session.recv()
        with connect(address(url)) as session:
            assert ask(session, "state")["type"] == "state"
    log = capfd.readouterr().err
    assert "UTF-8" in log
    assert "Traceback" not in log


def test_a_client_that_is_gone_before_its_answers_leaves_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    with served("ezpoints", "--sessions", "1") as url:
        with connect(address(url)) as session:
            for seed in range(100):
                session.send(json.dumps({"type": "reset", "data": {"seed": seed}}))
            session.socket.shutdown(socket.SHUT_RDWR)
        # Until its session is free again.
        deadline = time.monotonic() + SECONDS
        code = "CAPACITY_REACHED"
        while code and time.monotonic() < deadline:
            with connect(address(url)) as other, contextlib.suppress(ConnectionClosed):
                code = ask(other, "state")["data"].get("code")
        assert code is None
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "remedy"), [(("--port", "70000"), "0 to 65535"), (("--sessions", "0"), "at least 1")]
)
def test_a_bad_server_is_refused(words: tuple[str, ...], remedy: str) -> None:
    refused(agentcli("env", "serve", "ezpoints", *words), names=words[0], remedy=remedy)


def test_a_taken_port_is_refused(ezpoints: str) -> None:
    port = ezpoints.rpartition(":")[2]
    refused(agentcli("env", "serve", "ezpoints", "--port", port, "-q"), names=f"--port {port}", remedy="another")


def test_ctrl_c_ends_a_server_that_has_clients() -> None:
    with process_of("toy_world:ToyWorld", "--port", "0") as (url, server), connect(address(url)):
        server.send_signal(signal.SIGINT)
        assert server.wait(SECONDS) == 0
