"""Collects waiting requests and computes them in batches, in a thread.

Meanwhile the event loop serves environments. Only items with equal keys share a batch.
Trees send requests irregularly and with prompts of all lengths, so waiting requests
belong to several classes: the fullest one runs next, while the others collect more. The
batcher knows nothing about models. The work function guarantees that a result does not
depend on the rest of its batch.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, NamedTuple, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

PATIENCE = 3
"""A request runs next once it was passed over by this many batches for every waiting
class.
"""


class Waiter(NamedTuple, Generic[Item, Result]):
    """An item whose result is awaited."""

    item: Item
    result: asyncio.Future[Result]
    since: int
    """Number of batches begun before it arrived."""


class Batcher(Generic[Item, Result]):
    """Collects items and passes lists of at most `rows` of them to `work`.

    `work` runs in one worker thread and returns one result per item, in order; an
    exception reaches every waiter of its batch. While no class fills a batch, the
    batcher waits until no item has arrived for `linger_seconds`. The class with the
    most items runs next, but no item starves: see PATIENCE. Use a batcher in only one
    event loop.
    """

    def __init__(
        self,
        work: Callable[[list[Item]], list[Result]],
        key: Callable[[Item], Hashable],
        rows: int,
        linger_seconds: float,
    ) -> None:
        self.batches = 0
        """The number of batches begun so far."""
        self._work = work
        self._key = key
        self._rows = rows
        self._linger_seconds = linger_seconds
        self._classes: dict[Hashable, deque[Waiter[Item, Result]]] = {}
        self._arrived = asyncio.Event()
        # One thread: a model computes one batch at a time, and torch has threads
        # of its own.
        self._thread = ThreadPoolExecutor(1, "policy")
        self._running: asyncio.Task[None] | None = None

    async def submit(self, item: Item) -> Result:
        """Returns the item's result, once its batch is done."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        queue = self._classes.setdefault(self._key(item), deque())
        queue.append(Waiter(item, future, self.batches))
        self._arrived.set()
        # The task ends when nobody waits, so that no loop is left with one pending.
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return await future

    def close(self) -> None:
        """Ends the thread after its current batch; submit nothing afterwards."""
        self._thread.shutdown(wait=True)

    async def _run(self) -> None:
        """Runs batches until no item is waiting."""
        while self._classes:
            await self._linger()
            batch = self._take()
            if not batch:
                continue
            try:
                await self._answer(batch)
            except BaseException as error:
                # No waiter may wait forever, whatever ended the batch.
                for waiter in batch:
                    if not waiter.result.done():
                        waiter.result.set_exception(error)
                if not isinstance(error, Exception):
                    raise

    async def _answer(self, batch: list[Waiter[Item, Result]]) -> None:
        """Computes one batch in the thread."""
        items = [waiter.item for waiter in batch]
        self.batches += 1
        loop = asyncio.get_running_loop()
        results = await loop.run_in_executor(self._thread, self._work, items)
        answered = list(zip(batch, results, strict=True))
        for waiter, result in answered:
            if not waiter.result.done():  # its request may have been cancelled
                waiter.result.set_result(result)

    async def _linger(self) -> None:
        """Waits until some class fills a batch, or no item has arrived for a while."""
        while max(map(len, self._classes.values())) < self._rows:
            self._arrived = asyncio.Event()
            try:
                await asyncio.wait_for(self._arrived.wait(), self._linger_seconds)
            except TimeoutError:
                return

    def _take(self) -> list[Waiter[Item, Result]]:
        """Removes the next batch: the oldest requests of a class, no cancelled ones."""
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

        If several classes fill a batch, it is the one that has waited longest.
        """

        def passed_over(key: Hashable) -> int:
            return self.batches - self._classes[key][0].since

        def urgency(key: Hashable) -> tuple[int, int]:
            # Beyond a full batch, more items do not make a class more urgent.
            return min(self._rows, len(self._classes[key])), passed_over(key)

        longest = max(self._classes, key=passed_over)
        if passed_over(longest) >= PATIENCE * len(self._classes):
            return longest
        return max(self._classes, key=urgency)
