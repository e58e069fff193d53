"""Computes requests that wait together in one batch, in a thread.

Meanwhile the event loop serves environments. Only items with equal keys share
a batch. Trees ask irregularly and in prompts of all lengths, so what waits is spread
over classes: the fullest one goes next, and the others gather more meanwhile. The
batcher knows nothing of models. The work function promises that a result does not
depend on who else was in the batch.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, NamedTuple, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

PATIENCE = 3
"""A request that was passed over by this many batches for every class that waits goes
next.
"""


class Waiter(NamedTuple, Generic[Item, Result]):
    """An item whose result somebody awaits."""

    item: Item
    result: asyncio.Future[Result]
    since: int
    """Batches begun before it came."""


class Batcher(Generic[Item, Result]):
    """Collects items and hands lists of at most `rows` of them to `work`.

    `work` runs in one worker thread and returns one result per item, in order; what it
    raises reaches every waiter of its batch. While no class fills a batch, it waits
    until no item has come for `linger_seconds`. The class with most items goes next,
    but no item starves: see PATIENCE. Use one batcher in one event loop.
    """

    def __init__(
        self,
        work: Callable[[list[Item]], list[Result]],
        key: Callable[[Item], Hashable],
        rows: int,
        linger_seconds: float,
    ) -> None:
        self.batches = 0
        self.items = 0
        """Both: worked on so far."""
        self._work = work
        self._key = key
        self._rows = rows
        self._linger_seconds = linger_seconds
        self._classes: dict[Hashable, deque[Waiter[Item, Result]]] = {}
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "policy")
        self._running: asyncio.Task[None] | None = None

    async def submit(self, item: Item) -> Result:
        """The item's result, once its batch is done."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        queue = self._classes.setdefault(self._key(item), deque())
        queue.append(Waiter(item, future, self.batches))
        self._arrived.set()
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return await future

    def close(self) -> None:
        """Ends the thread once its batch is done; nothing may be submitted afterwards."""
        self._thread.shutdown(wait=True)

    async def _run(self) -> None:
        """Works until no item waits."""
        while self._classes:
            await self._linger()
            batch = self._take()
            if not batch:
                continue
            try:
                await self._answer(batch)
            except BaseException as error:
                # Nobody may wait for ever, whatever ended the batch.
                for waiter in batch:
                    if not waiter.result.done():
                        waiter.result.set_exception(error)
                if not isinstance(error, Exception):
                    raise

    async def _answer(self, batch: list[Waiter[Item, Result]]) -> None:
        """Computes the batch in the thread."""
        items = [waiter.item for waiter in batch]
        self.batches += 1
        self.items += len(items)
        loop = asyncio.get_running_loop()
        results = await loop.run_in_executor(self._thread, self._work, items)
        answered = list(zip(batch, results, strict=True))
        for waiter, result in answered:
            if not waiter.result.done():  # its request may have been cancelled
                waiter.result.set_result(result)

    async def _linger(self) -> None:
        """Waits until some class fills a batch, or nothing comes for a while."""
        while max(map(len, self._classes.values())) < self._rows:
            self._arrived = asyncio.Event()
            try:
                await asyncio.wait_for(self._arrived.wait(), self._linger_seconds)
            except TimeoutError:
                return

    def _take(self) -> list[Waiter[Item, Result]]:
        """Removes the next batch: the oldest of its class, without cancelled requests."""
        for key, queue in list(self._classes.items()):
            alive = deque(waiter for waiter in queue if not waiter.result.done())
            self._classes[key] = alive
            if not alive:
                del self._classes[key]
        if not self._classes:
            return []
        key = self._next_class()
        queue = self._classes[key]
        batch = [queue.popleft() for _ in range(min(self._rows, len(queue)))]
        if not queue:
            del self._classes[key]
        return batch

    def _next_class(self) -> Hashable:
        """The class whose first request was passed over too often, else the fullest.

        Of several that fill a batch it is the one that waits longest.
        """

        def passed_over(key: Hashable) -> int:
            return self.batches - self._classes[key][0].since

        def urgency(key: Hashable) -> tuple[int, int]:
            return min(self._rows, len(self._classes[key])), passed_over(key)

        longest = max(self._classes, key=passed_over)
        if passed_over(longest) >= PATIENCE * len(self._classes):
            return longest
        return max(self._classes, key=urgency)
