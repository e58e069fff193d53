"""No process is left behind: neither a worker nor what its engine runs, whatever ends the worker, the pool or the program."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from agentcli.environments.engines import link
from agentcli.environments.engines.pool import EnginePool
from agentcli.errors import EngineError
from agentcli.records.settings import EnvironmentSettings
from processes import as_here
from servant_world import ServantWorld

SECONDS = 120.0
"""Nothing here takes nearly as long."""


@pytest.fixture
def fifo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Where engines that start a task write their pids; held open for writing, so that it never ends."""
    path = tmp_path / "pids"
    os.mkfifo(path)
    monkeypatch.setenv("SERVANT_FIFO", str(path))
    descriptor = os.open(path, os.O_RDWR)
    yield descriptor
    os.close(descriptor)


def announced(fifo: int, lines: int = 1) -> list[int]:
    """Handles of the workers and servants that so many lines have announced, each process once, in that order."""
    text = b""
    while text.count(b"\n") < lines:
        assert select.select([fifo], [], [], SECONDS)[0], "no engine has started"
        text += os.read(fifo, 4096)
    return [os.pidfd_open(int(pid)) for pid in dict.fromkeys(text.split())]


def is_gone(handle: int) -> bool:
    """Whether this process ends, waiting for it."""
    return bool(select.select([handle], [], [], SECONDS)[0])


def are_gone(handles: list[int]) -> bool:
    """Whether all of these processes end; the handles are closed."""
    ended = all(map(is_gone, handles))
    for handle in handles:
        os.close(handle)
    return ended


def children() -> set[int]:
    """Children of this process, ended ones that nobody has waited for included."""
    return {int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


def servants(fault: str | None = None, deadline: float = 60.0, **options: Any) -> EnvironmentSettings:
    options |= {"fault": fault, "fault_tasks": ["train/0"]}
    return EnvironmentSettings(name="servant_world:ServantWorld", deadline_seconds=deadline, options=options)


@pytest.mark.parametrize("fault", ["exit", "abort", "hang", "stuck", "killed"])
def test_a_worker_that_breaks_takes_its_servant_along(fault: str, fifo: int) -> None:
    settings = servants() if fault == "killed" else servants(fault, 1.0 if fault in ("hang", "stuck") else 60.0)
    before = children()

    async def work() -> None:
        async with EnginePool(settings) as pool:
            first, second = ServantWorld(settings).tasks("train")[:2]
            state = await pool.start(first)
            broken = announced(fifo)
            if fault == "killed":
                signal.pidfd_send_signal(broken[0], signal.SIGKILL)
                assert is_gone(broken[0])
            if fault == "killed":
                await pool.step(state, "go west")
                replacement = announced(fifo)
            else:
                with pytest.raises(EngineError):
                    await pool.step(state, "go west")
                assert os.read(fifo, 4096).count(b"\n") == 3, "two faults, and the process between them"
                await pool.start(second)
                replacement = announced(fifo)
            assert are_gone(broken)
            assert len(children() - before) == 1
        assert are_gone(replacement)

    asyncio.run(work())
    assert children() == before


def test_without_memory_to_read_an_answer_every_call_fails_at_once(fifo: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """asyncio would call the reader again, for ever."""
    settings, before = servants(), children()
    available = link._available
    fails = iter([True])

    def starved(pipe: IO[bytes]) -> bytes | None:
        if next(fails, False):
            raise MemoryError
        return available(pipe)

    async def work() -> None:
        async with EnginePool(settings) as pool:
            first, second = ServantWorld(settings).tasks("train")[:2]
            state = await pool.start(first)
            processes = announced(fifo)
            monkeypatch.setattr(link, "_available", starved)
            calls = (pool.step(state, "go west"), pool.start(second))
            ends = await asyncio.gather(*calls, return_exceptions=True)
            assert list(map(type, ends)) == [MemoryError] * 2
            assert are_gone(processes)

    asyncio.run(work())
    assert children() == before


def test_what_leaves_the_process_group_holds_nothing_up(fifo: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even by the pipes that it inherited."""
    monkeypatch.setenv("SERVANT_LEAVES", "1")
    settings, before = servants(), children()

    async def work() -> list[int]:
        async with EnginePool(settings) as pool:
            state = await pool.start(ServantWorld(settings).tasks("train")[0])
            worker, servant = announced(fifo)
            asyncio.get_running_loop().call_later(SECONDS, signal.pidfd_send_signal, servant, signal.SIGKILL)
            signal.pidfd_send_signal(worker, signal.SIGKILL)
            await pool.step(state, "look")
            assert pool.retries == 1
            assert are_gone([worker])
            _, second = announced(fifo)
        return [servant, second]

    servants_left = asyncio.run(work())
    for servant in servants_left:
        assert not select.select([servant], [], [], 0)[0], "it was waited for"
        signal.pidfd_send_signal(servant, signal.SIGKILL)
    assert are_gone(servants_left)
    assert children() == before


@pytest.mark.parametrize("processes", [1, 4])
def test_a_closed_pool_leaves_nothing(processes: int, fifo: int) -> None:
    settings, before = servants(), children()
    settings.processes = processes

    async def work() -> list[int]:
        async with EnginePool(settings) as pool:
            await asyncio.gather(*(pool.start(task) for task in ServantWorld(settings).tasks("train")))
            assert len(children() - before) == processes
            return announced(fifo, 8)

    assert are_gone(asyncio.run(work()))
    assert children() == before


@contextmanager
def rollout(out: Path, fault: str | None, *words: str) -> Iterator["subprocess.Popen[str]"]:
    """The program growing endless trees in a process of its own, with two workers; one or both run into the fault, if any."""
    world = ("--env", "servant_world:ServantWorld", "--set", "environment.options.length=500", "--max-steps", "100000")
    faults = ("environment.options.fault_tasks=[train/0, train/1]", "environment.options.fault_action=go east")
    chosen = () if fault is None else (f"environment.options.fault={fault}", *faults)
    pairs = ("environment.processes=2", "prompt.style=compact", *chosen)
    given = [word for pair in pairs for word in ("--set", pair)]
    with subprocess.Popen(
        [sys.executable, "-m", "agentcli", "rollout", "--policy", "random", *world, *given, "-o", str(out), *words],
        stderr=subprocess.PIPE,
        env=as_here(),
        text=True,
    ) as process:
        yield process


@pytest.mark.parametrize(
    ("state", "number"),
    [
        ("hang", signal.SIGINT),
        ("hang", signal.SIGKILL),
        ("stuck", signal.SIGINT),
        ("stuck", signal.SIGKILL),
        ("stopped", signal.SIGINT),
        ("stopped", signal.SIGTERM),
        ("idle", signal.SIGINT),
        ("idle", signal.SIGKILL),
    ],
    ids=lambda value: value.name if isinstance(value, signal.Signals) else value,
)
def test_a_program_that_is_ended_leaves_nothing(state: str, number: signal.Signals, fifo: int, tmp_path: Path) -> None:
    """All eight tasks have started. Then a worker hangs in a call, is stuck in C code, or all are stopped, or idle because the
    program was stopped first."""
    fault = state if state in ("hang", "stuck") else None
    with rollout(tmp_path / "x", fault) as process:
        handles = announced(fifo, 9 if fault else 8)
        if state == "stopped":
            for handle in handles:
                signal.pidfd_send_signal(handle, signal.SIGSTOP)
        if state == "idle":
            process.send_signal(signal.SIGSTOP)
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        assert are_gone(handles)
        _, told = process.communicate(timeout=SECONDS)
    assert process.returncode == {signal.SIGINT: 130}.get(number, -number)
    if number == signal.SIGINT:
        assert told.splitlines()[-1].startswith("error: interrupted; go on ")


def test_a_world_without_room_for_its_files_ends_the_program(fifo: int, tmp_path: Path) -> None:
    with rollout(tmp_path / "x", "full", "-q") as process:
        handles = announced(fifo)
        _, told = process.communicate(timeout=SECONDS)
        assert are_gone(handles)
    assert process.returncode == 1
    assert all(part in told for part in ("go east': /games: ", "(No space left on", "make room there"))
    assert len(told.splitlines()) == 1


STRUCK = """
import asyncio, signal, sys
from itertools import count
from agentcli.environments.engines.pool import EnginePool
from agentcli.records.settings import EnvironmentSettings

started = count()

def strike(event, given):
    if event == "subprocess.Popen" and next(started) == 1:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

async def main():
    async with EnginePool(EnvironmentSettings(name="toy_world:ToyWorld", processes=3)):
        print("opened")

sys.addaudithook(strike)
asyncio.run(main())
"""


def test_two_interruptions_while_a_process_is_started_end_the_program() -> None:
    with subprocess.Popen([sys.executable, "-c", STRUCK], stdout=subprocess.PIPE, env=as_here()) as process:
        try:
            assert process.communicate(timeout=SECONDS)[0] == b""
        finally:
            process.kill()
    assert process.returncode == -signal.SIGINT


def test_a_worker_whose_parent_has_ended_before_it_began_ends_too() -> None:
    theirs, ours = os.pipe()
    os.close(ours)
    command = [sys.executable, "-m", "agentcli.environments.engines.worker", str(theirs)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[theirs], start_new_session=True) as worker:
        os.close(theirs)
        try:
            assert worker.wait(SECONDS) == 1
        finally:
            worker.kill()
