"""The engine pool with real worker processes on the toy world: what it answers, and failures that stay where they happen."""

import asyncio
import os
import select
import signal
import threading

import pytest
from agentcli.environments.engines.pool import EnginePool, State
from agentcli.errors import EngineError
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from pools import direct, play, tasks_of, toy, with_pool
from processes import workers
from refusal import refusal, refused


def test_plans_win_from_the_state_they_are_made_for() -> None:
    settings = toy()

    async def body(pool: EnginePool) -> None:
        for task in tasks_of(settings):
            root = await pool.start(task)
            ahead = await play(pool, root, "go east", "look")
            for state in (root, ahead, root):
                end = await play(pool, state, *await pool.plan(state))
                assert end.observation.end == "success"
                assert end.observation.reward == 1.0
            with refusal(4, (f"task {task.id}:", "plan at step")):
                await pool.plan(end)
            assert (await pool.step(ahead, "go west")).observation.state == "room=0 key=0 ended=0"

    with_pool(settings, body)


def test_seconds_and_end_of_episode() -> None:
    settings = toy()

    async def body(pool: EnginePool) -> None:
        root = await pool.start(tasks_of(settings)[0])
        opened = pool.seconds
        fallen = await play(pool, root, "go east", "jump")
        assert 0.0 < opened < pool.seconds < 5.0
        assert fallen.observation.end == "failure"
        with refusal(2, "jump"):
            await pool.step(fallen, "look")

    with_pool(settings, body)


def test_release_gives_engines_back_and_released_states_are_replayed() -> None:
    settings = toy(tasks=2)

    async def body(pool: EnginePool) -> None:
        first, second = tasks_of(settings)
        root = await pool.start(first)
        ahead = await play(pool, root, "go east", "look")
        again = await pool.start(first)
        await pool.release(first.id)
        await pool.step(ahead, "look")
        assert pool.replayed_steps == 0, "one of two starts is still there"
        await pool.release(first.id)
        other = await play(pool, await pool.start(second), "go east")
        assert (await pool.step(ahead, "go west")).observation.state == "room=0 key=0 ended=0"
        assert pool.replayed_steps == 2
        assert (await pool.step(again, "look")).observation.text.split(". ") == ["You look", "This is room 0."]
        assert (await pool.step(other, "look")).observation.text.split(". ") == ["You look", "This is room 1."]
        assert pool.replayed_steps == 2
        assert set(pool._tasks) == {second.id}, "a step after the release holds no engine"
        await pool.release("no such task")

    with_pool(settings, body, engines_per_worker=3)


@pytest.mark.parametrize(("fault", "named"), [("raise", "the lamp broke"), ("leave", "SystemExit: 3")])
def test_an_engine_that_raises_fails_that_call_only(fault: str, named: str) -> None:
    settings = toy(fault=fault, fault_tasks=["train/2"])

    async def body(pool: EnginePool) -> None:
        broken, sound = await pool.start(tasks_of(settings)[2]), await pool.start(tasks_of(settings)[0])
        ahead = await play(pool, broken, "go east", "go east")
        with refusal(4, ("task train/2:", "step 3 'go west'", named)):
            await pool.step(ahead, "go west")
        assert (await pool.step(ahead, "go east")).observation.state == "room=3 key=0 ended=0"
        assert pool.replayed_steps == 2, "its snapshots went with the engine"
        await pool.step(sound, "go east")
        assert pool.replayed_steps == 2

    with_pool(settings, body)


@pytest.mark.parametrize(
    ("fault", "names"),
    [
        ("exit", ["7", "out of lamp oil"]),
        ("abort", ["SIGABRT", "_fault"]),
        ("hang", ["1.5 s"]),
        pytest.param(
            "stuck",
            ["1.5 s"],
            marks=pytest.mark.slow,
        ),
        ("greed", ["SIGKILL", "MemoryError"]),
        ("bad", ["state"]),
    ],
)
def test_a_call_that_breaks_its_process_leaves_the_other_tasks_unharmed(fault: str, names: list[str]) -> None:
    settings = toy(fault=fault, fault_tasks=["train/1"], deadline=1.5, tasks=24, length=6)

    async def body(pool: EnginePool) -> None:
        async def explore(task: Task) -> State:
            state = await pool.start(task)
            for action in ("go east", "go west", "look", "go east", "go east"):
                state = await pool.step(state, action)
            return state

        ends = await asyncio.gather(*map(explore, tasks_of(settings)), return_exceptions=True)
        for task, end in zip(tasks_of(settings), ends, strict=True):
            if task.id == "train/1":
                assert isinstance(end, EngineError)
                with refusal(4, ("task train/1:", "step 2 'go west'", *names)):
                    raise end
            else:
                assert isinstance(end, State), end
                assert end.observation == direct(settings, task, end.actions)
                assert end.replayed == 0
        assert (pool.replayed_steps > 0) == (fault != "bad")
        assert pool.retries == (fault != "bad"), "it was tried once more, and no more"

    with_pool(settings, body)


@pytest.mark.parametrize(
    ("fault", "faulty", "deadline"),
    [
        ("slow", 6, 1.0),
        pytest.param("hang", 2, 1.5, marks=pytest.mark.slow),
        pytest.param("stuck", 2, 1.5, marks=pytest.mark.slow),
    ],
)
def test_waiting_behind_others_does_not_count_towards_the_deadline(fault: str, faulty: int, deadline: float) -> None:
    """Six slow calls, or two hangs that are tried twice, together take longer than the deadline of those behind them."""
    settings = toy(fault=fault, fault_tasks=[f"train/{index}" for index in range(faulty)], deadline=deadline)
    errored = 0 if fault == "slow" else faulty

    async def body(pool: EnginePool) -> None:
        roots = [await pool.start(task) for task in tasks_of(settings)]
        ends = await asyncio.gather(*(pool.step(root, "go west") for root in roots), return_exceptions=True)
        assert [isinstance(end, EngineError) for end in ends] == [True] * errored + [False] * (8 - errored)
        assert pool.seconds >= (4 * deadline if errored else 6 * 0.2)

    with_pool(settings, body)


def test_a_busy_event_loop_is_no_hang() -> None:
    settings = toy(deadline=0.8)

    async def body(pool: EnginePool) -> None:
        roots = [await pool.start(task) for task in tasks_of(settings)]
        steps = [asyncio.create_task(pool.step(root, "go east")) for root in roots]
        for _ in range(3):
            threading.Event().wait(1.0)
            await asyncio.wait(steps, timeout=0)
        assert [state.observation.end for state in await asyncio.gather(*steps)] == [None] * 8
        steps = [asyncio.create_task(pool.step(root, "go east")) for root in roots]
        await asyncio.wait(steps, timeout=0)
        threading.Event().wait(1.0)
        await asyncio.gather(*steps)
        assert pool.replayed_steps == 0, "no process was replaced"

    with_pool(settings, body)


def test_a_worker_killed_from_outside_is_replaced() -> None:
    settings = toy()

    async def body(pool: EnginePool) -> None:
        state = await play(pool, await pool.start(tasks_of(settings)[0]), "go east", "go east")
        (worker,) = workers()
        process = os.pidfd_open(worker)
        os.kill(worker, signal.SIGKILL)
        select.select([process], [], [])
        os.close(process)
        assert (await pool.step(state, "go east")).observation.state == "room=3 key=0 ended=1"
        assert (pool.retries, pool.replayed_steps) == (1, 2)

    with_pool(settings, body)


def test_a_world_without_room_for_its_files_is_nobodys_errored_leaf() -> None:
    settings = toy(fault="full", fault_tasks=["train/0"])

    async def body(pool: EnginePool) -> None:
        root = await pool.start(tasks_of(settings)[0])
        with refusal(1, ("task train/0:", "step 1 'go west'", "/games", "No space left")):
            await pool.step(root, "go west")

    with_pool(settings, body)


def test_messages_may_be_longer_than_a_pipe_holds() -> None:
    settings = toy(fault="long", fault_tasks=["train/0"], snapshots=False)

    async def body(pool: EnginePool) -> None:
        first, second = [await pool.start(task) for task in tasks_of(settings)[:2]]
        ahead = await play(pool, first, "go east", "go west", "sing" * 100_000)
        assert ahead.observations[2] == f"You go west.{' and so on' * 100_000} This is room 0."
        forks = [pool.step(ahead, "go east"), pool.step(ahead, "look"), pool.step(second, "go east")]
        keys = [state.observation.state for state in await asyncio.gather(*forks)]
        assert keys == ["room=1 key=0 ended=0", "room=0 key=0 ended=0", "room=1 key=0 ended=0"]
        assert pool.replayed_steps == 3

    with_pool(settings, body)


def test_an_engine_may_print() -> None:
    settings = toy(fault="print", fault_tasks=["train/0"], deadline=2.0)

    async def body(pool: EnginePool) -> State:
        return await play(pool, await pool.start(tasks_of(settings)[0]), "go west", "go east")

    assert with_pool(settings, body).observation.state == "room=1 key=0 ended=0"


@pytest.mark.parametrize(
    ("settings", "code", "names"),
    [
        (toy(setup_fault="missing"), 4, ["corridors", "install corridors"]),
        (toy(setup_fault="exit"), 4, ["status 3"]),
        (EnvironmentSettings(name="nowhere"), 2, ["nowhere"]),
    ],
)
def test_a_world_that_cannot_be_set_up_says_so_when_the_pool_opens(
    settings: EnvironmentSettings, code: int, names: list[str]
) -> None:
    async def body(pool: EnginePool) -> None:
        raise AssertionError("the pool opened")

    with refusal(code, names):
        with_pool(settings, body)
    assert workers() == []


def test_closing_fails_what_is_unanswered_and_leaves_no_process() -> None:
    settings = toy(fault="hang", fault_tasks=["train/0"], processes=2)

    async def main() -> None:
        async with EnginePool(settings) as pool:
            roots = [await pool.start(task) for task in tasks_of(settings)]
            assert len(workers()) == 2
            waiting = asyncio.create_task(pool.step(roots[0], "go west"))
            await pool.step(roots[1], "look")
        with refusal(4):
            await waiting
        with refusal(2):
            await pool.step(roots[1], "look")

    asyncio.run(main())
    assert workers() == []


def test_a_pool_that_is_not_open_says_how_to_open_it() -> None:
    refused(
        lambda: asyncio.run(EnginePool(toy()).start(Task(id="train/0", world="toy", split="train", kind="open"))),
        remedy="async with",
    )
