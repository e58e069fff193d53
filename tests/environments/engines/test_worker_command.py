"""`environment.worker`: engine processes of another Python, behind a program in between, and commands that are no workers."""

import asyncio
import os
import select
import shlex
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from agentcli.environments.engines import link
from agentcli.environments.engines.pool import EnginePool, State
from agentcli.errors import EngineError
from agentcli.records.settings import EnvironmentSettings
from command_line import agentcli, succeeded
from pools import grow, tasks_of, toy, with_pool
from processes import as_here, below, wait_until_gone
from refusal import refused
from servant_world import ServantWorld

MODULE = ["-m", "agentcli.environments.engines.worker"]
PACKAGES = f"PYTHONPATH={as_here()['PYTHONPATH']}"


def in_place_of_ssh(folder: Path, *kept: str, session: str = "") -> list[str]:
    """A command that does as ssh does: no variable comes along but those `kept`, no file descriptor above 2, and the words
    are joined for a shell. With `session` the worker is in another session, as on another machine no signal reaches it."""
    script = folder / "ssh"
    given = shlex.join(["env", "-i", PACKAGES, *kept, sys.executable, "-c"])
    closing = "import os, sys; os.closerange(3, 99); os.execvp('sh', ['sh', '-c', ' '.join(sys.argv[1:])])"
    script.write_text(f'#!/bin/sh\nshift\nexec {session} {given} {shlex.quote(closing)} "$@"\n')
    script.chmod(0o755)
    return [str(script), "HOST", sys.executable, *MODULE]


def another_python(folder: Path) -> list[str]:
    """The Python of a virtual environment of its own."""
    venv.create(folder / "venv", symlinks=True)
    return ["env", "-i", PACKAGES, str(folder / "venv/bin/python"), *MODULE]


def seen(states: list[State]) -> list[object]:
    return [(state.actions, state.observation, state.replayed, state.exact) for state in states]


def states(settings: EnvironmentSettings) -> list[object]:
    """A tree of random forks, and a plan from its middle."""

    async def body(pool: EnginePool) -> list[object]:
        grown = await grow(pool, tasks_of(toy())[1], 3, 40)
        plan = await pool.plan(next(state for state in grown if state.observation.end is None))
        return [*seen(grown), plan]

    done: list[object] = with_pool(settings, body, engines_per_worker=2)
    return done


def with_worker(settings: EnvironmentSettings, command: list[str]) -> EnvironmentSettings:
    return msgspec.structs.replace(settings, worker=command)


@pytest.mark.parametrize("snapshots", [True, False])
def test_every_command_plays_as_this_python_does(snapshots: bool, tmp_path: Path) -> None:
    here = toy(snapshots=snapshots)
    expected = states(here)
    shell = ["sh", "-c", f"exec {shlex.quote(sys.executable)} {shlex.join(MODULE)}"]
    assert states(with_worker(here, in_place_of_ssh(tmp_path))) == expected
    assert states(with_worker(here, another_python(tmp_path))) == expected
    assert states(with_worker(here, ["env", PACKAGES, *shell])) == expected


def test_a_rollout_gives_the_same_bytes_and_is_resumed_with_another_worker(empty_folder: Path) -> None:
    worker = ("--set", f"environment.worker={in_place_of_ssh(empty_folder)}")
    words = ("rollout", "--env", "ezpoints", "--policy", "expert", "--method", "spark", "-q", "--seed", "5")
    assert agentcli(*words, "--tasks", "4", "-o", "here").code == 0
    succeeded(*words, "--tasks", "4", *worker, "-o", "there")
    whole = Path("here/trees.jsonl").read_bytes()
    assert Path("there/trees.jsonl").read_bytes() == whole
    lines = whole.splitlines(keepends=True)
    Path("there/trees.jsonl").write_bytes(b"".join(lines[:2]))
    succeeded(*words, "--tasks", "4", "-o", "there", "--resume")
    assert Path("there/trees.jsonl").read_bytes() == whole


def test_hashes_are_the_same_everywhere(tmp_path: Path) -> None:
    """The order of a set is part of what an engine answers."""

    async def body(pool: EnginePool) -> list[bytes]:
        return [Path(f"/proc/{pid}/environ").read_bytes() for pid in below(os.getpid())]

    before = len(below(os.getpid()))
    environs = with_pool(with_worker(toy(), in_place_of_ssh(tmp_path)), body)[before:]
    # The shell in between got no variable.
    assert b"PYTHONHASHSEED" not in environs[0]
    assert b"PYTHONHASHSEED=0" in environs[-1].split(b"\0")


@pytest.fixture
def fifo(tmp_path: Path) -> Iterator[int]:
    """Where engines write the pids of their processes; held open for writing, so that it never ends."""
    os.mkfifo(tmp_path / "pids")
    descriptor = os.open(tmp_path / "pids", os.O_RDWR)
    yield descriptor
    os.close(descriptor)


def announced(fifo: int) -> list[int]:
    """The worker and its servant, of the last line."""
    assert select.select([fifo], [], [], 120)[0], "no engine has started"
    return list(map(int, os.read(fifo, 4096).splitlines()[-1].split()))


@pytest.mark.parametrize("session", ["", "setsid --wait"], ids=["here", "elsewhere"])
def test_an_engine_that_hangs_ends_with_its_connection(session: str, fifo: int, tmp_path: Path) -> None:
    """The process in between is killed at the deadline. Elsewhere its end is all that a worker learns of it."""
    command = in_place_of_ssh(tmp_path, f"SERVANT_FIFO={tmp_path / 'pids'}", session=session)
    options = {"fault": "hang", "fault_tasks": ["train/0"]}
    settings = EnvironmentSettings(
        name="servant_world:ServantWorld", deadline_seconds=0.5, worker=command, options=options
    )
    tasks = ServantWorld(settings).tasks("train")

    async def body(pool: EnginePool) -> None:
        state = await pool.start(tasks[0])
        first = announced(fifo)
        with pytest.raises(EngineError, match="no answer within"):
            await pool.step(state, "go west")
        after = await pool.step(await pool.start(tasks[1]), "look")
        assert after.observation.text
        for pid in first:
            await asyncio.to_thread(wait_until_gone, pid)

    with_pool(settings, body)


OTHER_RELEASE = """
from agentcli import version
version.__version__ = "0.0.1"
from agentcli.environments.engines.worker import main
main()
"""
OTHER_ANSWER = """
import sys
from agentcli.environments.engines import frames
sys.stdin.buffer.read(4)
sys.stdout.buffer.write(frames.encode_frame(frames.Lost()))
sys.stdout.buffer.flush()
sys.stdin.buffer.read()
"""
HOSTILE_ERROR = OTHER_ANSWER.replace("frames.Lost()", "frames.Failed('error_class', 'boo')")
FAILING = ["sh", "-c", "echo ssh: no route to HOST >&2; exit 255"]
GREETING = ["sh", "-c", "echo Welcome to HOST; cat > /dev/null"]
ENDLESS = ["sh", "-c", "yes Welcome to HOST"]


def python(program: str) -> list[str]:
    return ["env", "PYTHONHASHSEED=0", PACKAGES, sys.executable, "-c", program]


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        (["no-such-command", "HOST"], ("no-such-command HOST", "No such file")),
        (FAILING, ("status 255", "no route to HOST")),
        (["true"], ("status 0",)),
        (GREETING, ("Welcome to HOST",)),
        (ENDLESS, ("Welcome to HOST",)),
        (["cat"], ("protocol",)),
        (python(OTHER_RELEASE), ("0.0.1", "install the same release")),
        (python(OTHER_ANSWER), ("Lost",)),
        (python(HOSTILE_ERROR), ("boo",)),
    ],
)
def test_what_is_no_worker_is_refused_in_a_line(command: list[str], parts: tuple[str, ...], tmp_path: Path) -> None:
    words = ("--env", "ezpoints", "--policy", "random", "--tasks", "1", "-q", "-o", str(tmp_path / "x"))
    worker = msgspec.json.encode(command).decode()
    answer = agentcli("rollout", *words, "--set", f"environment.worker={worker}")
    refused(answer, 4, names=("environment.worker", *parts))


def test_a_command_that_says_nothing_or_too_little_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame as long as one may be, of which only the head comes."""
    monkeypatch.setattr(link, "SETUP_SECONDS", 0.3)
    for program in ("cat > /dev/null", r"printf '\001\000\000\000'; cat > /dev/null"):
        settings = with_worker(toy(deadline=0.2), ["sh", "-c", program])
        refused(lambda settings=settings: with_pool(settings, grow), 4, names=("environment.worker", "0.3 s"))
        # A world whose engines are slow to make has as long for the first one as for a step.
        slow = with_worker(toy(deadline=0.6), ["sh", "-c", program])
        refused(lambda slow=slow: with_pool(slow, grow), 4, names="0.6 s", remedy="environment.deadline_seconds")


def test_the_worlds_own_refusal_says_where_it_was_made(tmp_path: Path) -> None:
    settings = with_worker(toy(setup_fault="missing"), in_place_of_ssh(tmp_path))
    refused(lambda: with_pool(settings, grow), 4, names=("environment.worker", "HOST"))
