"""A served world is the local one: the same trees byte for byte, the same capabilities, sessions apart from one another."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from agentcli.environments.protocol import Context, Forkable, Guiding, Judging, Solvable, Toolbox, Tutor
from agentcli.environments.registry import make_world
from agentcli.environments.remote.client import Caller
from agentcli.environments.remote.wire import TOKEN_VARIABLE
from agentcli.records.settings import EnvironmentSettings
from command_line import agentcli
from pools import grow, with_pool
from refusal import refused
from served_worlds import served
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

SECRET = "open sesame"
REPLAYING = ("judging_world:JudgingWorld", "--set", "environment.options.snapshots=false")


@pytest.fixture(scope="module")
def ezpoints() -> Iterator[str]:
    with served("ezpoints") as url:
        yield url


@pytest.fixture(scope="module")
def replaying() -> Iterator[str]:
    with served(*REPLAYING, "--sessions", "2", "--idle", "1000") as url:
        yield url


@pytest.fixture(scope="module")
def toys() -> Iterator[str]:
    """A server that asks for a token, and ends a session that says nothing."""
    with served("toy_world:ToyWorld", "--idle", "0.01", **{TOKEN_VARIABLE: SECRET}) as url:
        yield url


def trees(folder: Path, *words: str) -> bytes:
    done = agentcli("rollout", *words, "--seed", "5", "-q", "-o", str(folder))
    assert done.code == 0, done
    return (folder / "trees.jsonl").read_bytes()


@pytest.mark.parametrize("policy", ["expert", "search", "random"])
def test_its_trees_are_the_local_ones(policy: str, ezpoints: str, tmp_path: Path) -> None:
    words = ("--policy", policy, "--method", "spark", "--tasks", "4", "--set", "prompt.style=compact")
    local = trees(tmp_path / "local", "--env", "ezpoints", *words)
    assert trees(tmp_path / "remote", "--env", ezpoints, *words) == local


def test_its_pictures_are_the_local_ones(tmp_path: Path) -> None:
    """The searching expert gets them on the wire, and reads the cards off them."""
    drawn = ("ezpoints", "--set", "environment.options.pictures=true")
    words = ("--policy", "search", "--tasks", "2", "--set", "prompt.style=compact")
    local = trees(tmp_path / "local", "--env", *drawn, *words)
    with served(*drawn) as url:
        assert trees(tmp_path / "remote", "--env", url, *words) == local
    pictures = [sorted((tmp_path / place / "pictures").iterdir()) for place in ("local", "remote")]
    assert [file.read_bytes() for file in pictures[0]] == [file.read_bytes() for file in pictures[1]]
    assert pictures[0]


def test_a_world_without_snapshots_and_few_sessions_gives_the_same_trees(replaying: str, tmp_path: Path) -> None:
    """Two sessions for eight leaves of two tasks: engines are taken over, and their actions replayed."""
    words = ("--policy", "random", "--method", "carl", "--criterion", "random", "--leaves", "8", "--tasks", "2")
    local = trees(tmp_path / "local", "--env", *REPLAYING, *words)
    assert trees(tmp_path / "remote", "--env", replaying, *words) == local
    assert b'"replayed_steps":0' not in local


def test_env_check_passes_and_env_list_shows_it(ezpoints: str) -> None:
    checked = agentcli("env", "check", ezpoints, "--tasks", "2", "--json", "-q")
    assert checked.code == 0, checked
    listed = agentcli("env", "list", ezpoints, "--json")
    assert [row["tasks"] for row in map(json.loads, listed.stdout.splitlines())] == [2000, 100, 200]


def test_it_has_what_the_world_has(ezpoints: str, replaying: str) -> None:
    world = make_world(EnvironmentSettings(name=ezpoints))
    local = make_world(EnvironmentSettings(name="ezpoints"))
    engine = world.engine()
    assert isinstance(engine, Forkable)
    assert isinstance(engine, Solvable)
    assert isinstance(world, Tutor)
    assert isinstance(local, Tutor)
    assert not isinstance(world, Guiding | Toolbox)
    assert (world.card, world.vocabulary()) == (local.card, local.vocabulary())
    task = world.tasks("valid")[3]
    start = engine.start(task)
    engine.close()
    context = Context(task=task, instruction=start.instruction, observations=(start.observation.text,))
    assert world.compact(context) == local.compact(context)
    assert world.next(context, 7, world.habits()) == local.next(context, 7, local.habits())

    judging = make_world(EnvironmentSettings(name=replaying))
    assert isinstance(judging, Toolbox)
    assert list(judging.tools) == ["lamp", "map"]
    engine = judging.engine()
    assert isinstance(engine, Judging)
    engine.start(judging.tasks("train")[0])
    assert engine.judge("abc").scores["map"] == 3.0
    engine.close()


def test_sessions_share_nothing(ezpoints: str) -> None:
    world = make_world(EnvironmentSettings(name=ezpoints))
    task = world.tasks("train")[0]
    one, other = world.engine(), world.engine()
    one.start(task)
    untouched = other.start(task).observation
    after = one.step("3")
    assert after.text != untouched.text
    assert other.step("3") == after
    one.close()
    other.close()


def test_forks_of_a_pool_are_exact(ezpoints: str) -> None:
    """The same random tree, grown at the server and here."""
    here, there = EnvironmentSettings(name="ezpoints"), EnvironmentSettings(name=ezpoints)
    task = make_world(here).tasks("train")[1]

    async def grown(pool):  # type: ignore[no-untyped-def]
        states = await grow(pool, task, 3, 40, ())
        return [(state.actions, state.observation, state.exact) for state in states]

    assert with_pool(there, grown) == with_pool(here, grown)


def test_a_stranger_plays_with_reset_step_and_state(ezpoints: str) -> None:
    """The messages of OpenEnv's own client."""

    def ask(kind: str, **data: object) -> dict[str, dict[str, object]]:
        socket.send(json.dumps({"type": kind, "data": data}))
        answer: dict[str, dict[str, object]] = json.loads(socket.recv())
        return answer

    with connect(f"{ezpoints.replace('http', 'ws')}/ws") as socket:
        first = ask("reset", seed=2, episode_id="mine")
        assert first["type"] == "observation"
        assert (first["data"]["reward"], first["data"]["done"]) == (0.0, False)
        ended = ask("step", action="=", metadata={})
        assert (ended["data"]["reward"], ended["data"]["done"]) == (-1.0, True)
        assert ask("state")["data"]["step_count"] == 1
        for fault in (ask("step", action="1"), ask("step"), ask("fly"), ask("step", action="1", at=9)):
            assert fault["type"] == "error"
        socket.send("not json")
        assert json.loads(socket.recv())["data"]["code"] == "VALIDATION_ERROR"
        assert ask("reset", task="nowhere")["type"] == "error"
        assert ask("reset", split="valid")["type"] == "observation"


def test_a_silent_session_ends(toys: str) -> None:
    secret = {"Authorization": f"Bearer {SECRET}"}
    address = f"{toys.replace('http', 'ws')}/ws"
    with connect(address, additional_headers=secret) as socket, pytest.raises(ConnectionClosed) as ended:
        socket.recv()
    assert ended.value.rcvd is not None
    assert "0.01 seconds" in ended.value.rcvd.reason


def test_only_who_knows_the_token_plays(toys: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    settings = EnvironmentSettings(name=toys)
    refused(lambda: make_world(settings), code=4, names=toys, remedy=TOKEN_VARIABLE)
    with pytest.raises(InvalidStatus):
        connect(f"{toys.replace('http', 'ws')}/ws")
    monkeypatch.setenv(TOKEN_VARIABLE, SECRET)
    world = make_world(settings)
    assert len(world.tasks("train")) == 8


def test_a_page_of_a_browser_is_kept_out(ezpoints: str) -> None:
    with pytest.raises(InvalidStatus):
        connect(f"{ezpoints.replace('http', 'ws')}/ws", origin="http://somewhere.example")


@pytest.mark.parametrize("path", ["world", "tasks", "health"])
def test_a_page_whose_name_leads_here_is_kept_out(path: str, ezpoints: str) -> None:
    """DNS rebinding: the browser takes the page's own name for this server, and sends no Origin."""
    port = ezpoints.rpartition(":")[2]
    for host in (
        "evil.example",
        f"evil.example:{port}",
        "127.0.0.1.evil.example",
        "[::1",
        "",
        "localhost@evil.example",
    ):
        assert httpx.get(f"{ezpoints}/{path}", headers={"Host": host}).status_code in (400, 403), host
    for host in ("localhost", f"LOCALHOST:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
        assert httpx.get(f"{ezpoints}/{path}", headers={"Host": host}).status_code == 200, host


def test_a_host_that_is_not_ours_opens_no_session(ezpoints: str) -> None:
    port = int(ezpoints.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as stream, pytest.raises(InvalidStatus):
        connect(f"ws://evil.example:{port}/ws", sock=stream)


def test_who_knows_the_token_may_call_the_server_anything(toys: str) -> None:
    headers = {"Authorization": f"Bearer {SECRET}", "Host": "worlds.example"}
    assert httpx.get(f"{toys}/world", headers=headers).status_code == 200


def test_a_text_that_is_no_utf8_ends_its_session_without_a_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    with served("ezpoints") as url:
        address = f"{url.replace('http', 'ws')}/ws"
        with connect(address) as session:
            session.send(b"\xff\xfe", text=True)
            with pytest.raises(ConnectionClosed):
                session.recv()
        with connect(address) as session:
            session.send(json.dumps({"type": "state"}))
            assert json.loads(session.recv())["type"] == "state"
    log = capfd.readouterr().err
    assert "UTF-8" in log
    assert "Traceback" not in log


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (("--host", "0.0.0.0"), TOKEN_VARIABLE),
        (("--port", "70000"), "0 to 65535"),
        (("--sessions", "0"), "at least one"),
        (("--idle", "0"), "above 0"),
    ],
)
def test_a_bad_server_is_refused(words: tuple[str, ...], remedy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    refused(agentcli("env", "serve", "ezpoints", *words), names=words[0], remedy=remedy)


def test_a_taken_port_is_refused(ezpoints: str) -> None:
    port = ezpoints.rpartition(":")[2]
    refused(agentcli("env", "serve", "ezpoints", "--port", port, "-q"), names=port, remedy="--port N")


def test_what_openenv_asks_of_any_server_is_there(ezpoints: str) -> None:
    caller = Caller(ezpoints)
    schema = caller.get("/schema", dict[str, dict[str, object]])
    assert schema is not None
    assert schema["action"]["required"] == ["action"]
    assert set(schema) == {"action", "observation", "state"}
    assert caller.get("/health", dict[str, str]) == {"status": "healthy"}
    about = caller.get("/metadata", dict[str, str])
    assert about is not None
    assert about["name"] == "ezpoints"
    assert caller.get("/nothing", dict[str, str]) is None
