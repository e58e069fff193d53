"""The batcher: who is computed with whom, and what reaches a waiter."""

import asyncio
import threading

import pytest
from agentcli.policies.batching import PATIENCE, Batcher
from hypothesis import given, settings
from hypothesis import strategies as st


class Work:
    """Doubles numbers and keeps the batches it saw; a negative number breaks its batch."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.started = threading.Event()

    def __call__(self, items: list[int]) -> list[int]:
        self.started.set()
        self.gate.wait(10)
        self.batches.append(items)
        if min(items) < 0:
            raise ValueError("negative")
        return [2 * item for item in items]


def batcher(work: Work, rows: int = 4, linger: float = 0.005) -> Batcher[int, int]:
    return Batcher(work, lambda item: item % 10, rows, linger)


async def late(jobs: Batcher[int, int], item: int) -> int:
    """Submitted when others have been waiting for some turns of the loop."""
    for _ in range(5):
        await asyncio.sleep(0)
    return await jobs.submit(item)


def test_requests_of_one_class_share_batches_of_at_most_rows() -> None:
    work = Work()

    async def run() -> list[int]:
        jobs = batcher(work)
        answers = await asyncio.gather(*(jobs.submit(item) for item in (1, 11, 2, 21, 31, 41, 12)))
        assert jobs.batches == 3
        return answers

    assert asyncio.run(run()) == [2, 22, 4, 42, 62, 82, 24]
    assert work.batches == [[1, 11, 21, 31], [2, 12], [41]]


def test_requests_gather_while_a_batch_is_computed_and_the_loop_goes_on() -> None:
    work = Work()
    work.gate.clear()

    async def run() -> list[int]:
        jobs = batcher(work, linger=0.0)
        first = asyncio.create_task(jobs.submit(1))
        assert await asyncio.to_thread(work.started.wait, 10)
        others = [asyncio.create_task(jobs.submit(item)) for item in (11, 21, 31)]
        await asyncio.sleep(0)
        work.gate.set()
        return await asyncio.gather(first, *others)

    assert asyncio.run(run()) == [2, 22, 42, 62]
    assert work.batches == [[1], [11, 21, 31]]


def test_a_batch_that_is_not_full_waits_for_one_more() -> None:
    work = Work()

    async def run() -> None:
        jobs = batcher(work, rows=3, linger=10.0)

        await asyncio.gather(jobs.submit(1), jobs.submit(11), late(jobs, 21))

    asyncio.run(run())
    assert work.batches == [[1, 11, 21]]


def test_items_of_other_classes_do_not_fill_a_batch() -> None:
    """Three items wait, as many as a batch has rows, but of two classes."""
    work = Work()

    async def run() -> None:
        jobs = batcher(work, rows=3, linger=10.0)

        other = asyncio.create_task(jobs.submit(2))
        await asyncio.gather(jobs.submit(1), jobs.submit(11), late(jobs, 21))
        await asyncio.gather(other, jobs.submit(12), jobs.submit(22))

    asyncio.run(run())
    assert work.batches == [[1, 11, 21], [2, 12, 22]]


def test_the_fullest_class_goes_first_and_the_longest_waiting_of_equals() -> None:
    """Beyond a batch's rows a class is no fuller."""
    work = Work()
    work.gate.clear()

    async def run() -> None:
        jobs = batcher(work, rows=2)
        begun = asyncio.create_task(jobs.submit(9))
        assert await asyncio.to_thread(work.started.wait, 10)
        others = [asyncio.create_task(jobs.submit(item)) for item in (3, 2, 12, 1, 11, 21, 4)]
        await asyncio.sleep(0)
        work.gate.set()
        await asyncio.gather(begun, *others)

    asyncio.run(run())
    assert work.batches == [[9], [2, 12], [1, 11], [3], [21], [4]]


def test_a_lonely_request_is_passed_over_a_few_times_only() -> None:
    """Two classes; one of them always fills a batch."""
    work = Work()

    async def run() -> None:
        jobs = batcher(work, rows=2)
        alone = asyncio.create_task(jobs.submit(2))

        async def busy(item: int) -> None:
            while not alone.done():
                await jobs.submit(item)

        await asyncio.gather(alone, *(busy(item) for item in (1, 11, 21, 31)))

    asyncio.run(run())
    assert work.batches.index([2]) == 2 * PATIENCE


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40), st.integers(1, 5))
def test_whatever_comes_when_it_comes(arrivals: list[tuple[int, int]], rows: int) -> None:
    """(turns of the loop before it comes, class): all are answered, in batches of one class, in each class in order."""
    work = Work()

    async def run() -> list[int]:
        jobs = batcher(work, rows, linger=0.0)

        async def one(place: int, turns: int, kind: int) -> int:
            for _ in range(turns):
                await asyncio.sleep(0)
            return await jobs.submit(10 * place + kind)

        answers = await asyncio.gather(*(one(place, *arrival) for place, arrival in enumerate(arrivals)))
        assert jobs.batches == len(work.batches)
        return answers

    assert asyncio.run(run()) == [2 * (10 * place + kind) for place, (_, kind) in enumerate(arrivals)]
    assert all(len({item % 10 for item in batch}) == 1 and len(batch) <= rows for batch in work.batches)
    for kind in range(4):
        served = [item for batch in work.batches for item in batch if item % 10 == kind]
        came = sorted(served, key=lambda item: (arrivals[item // 10][0], item))
        assert served == came


def test_work_that_answers_too_few_is_an_error_for_all() -> None:
    async def run() -> list[object]:
        jobs: Batcher[int, int] = Batcher(lambda items: items[1:], lambda item: 0, 4, 0.0)
        return await asyncio.wait_for(asyncio.gather(*map(jobs.submit, (1, 2, 3)), return_exceptions=True), 10)

    assert [type(answer) for answer in asyncio.run(run())] == [ValueError] * 3


def test_what_work_raises_reaches_every_waiter_and_the_next_batch_runs() -> None:
    work = Work()

    async def run() -> list[object]:
        jobs = batcher(work)
        broken = await asyncio.gather(jobs.submit(-9), jobs.submit(1), return_exceptions=True)
        return [*broken, await jobs.submit(2)]

    first, second, third = asyncio.run(run())
    assert isinstance(first, ValueError)
    assert isinstance(second, ValueError)
    assert third == 4


def test_a_request_whose_waiter_is_gone_is_not_computed() -> None:
    work = Work()

    async def run() -> int:
        jobs = batcher(work, linger=0.02)
        gone = asyncio.create_task(jobs.submit(1))
        await asyncio.sleep(0)
        gone.cancel()
        return await jobs.submit(11)

    assert asyncio.run(run()) == 22
    assert work.batches == [[11]]


def test_one_batcher_serves_several_event_loops_in_turn() -> None:
    work = Work()
    jobs = batcher(work, linger=0.001)
    assert [asyncio.run(jobs.submit(item)) for item in (1, 2)] == [2, 4]
    jobs.close()
    with pytest.raises(RuntimeError):
        asyncio.run(jobs.submit(3))
