"""Requests that wait together are computed together, in a thread, while the event loop
goes on serving environments.

Only items with equal keys share a batch. Trees ask irregularly and in prompts of all
lengths, so what waits is spread over classes: the fullest one goes next, and the others
gather more meanwhile. The batcher knows nothing of models; that a result does not
depend on who else was in the batch is the work function's promise.
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
    """Collects items and hands lists of at most `rows` of them to `work`, one list at a
    time.

    `work` runs in one worker thread and returns one result per item, in order; what it
    raises reaches every waiter of its batch. While no class fills a batch, it waits
    until no item has come for `linger_seconds`. The class with most items goes next,
    but nobody starves: see PATIENCE. Use one batcher in one event loop.
    """

    def __init__(
        self,
        work: Callable[[list[Item]], list[Result]],
        key: Callable[[Item], Hashable],
        rows: int,
        linger_seconds: float,
    ) -> None:
        self.batches = self.items = 0
        """Worked on so far."""
        self._work, self._key, self._rows, self._linger_seconds = (
            work,
            key,
            rows,
            linger_seconds,
        )
        self._classes: dict[Hashable, deque[Waiter[Item, Result]]] = {}
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "policy")
        self._running: asyncio.Task[None] | None = None

    async def submit(self, item: Item) -> Result:
        """The item's result, once its batch is done."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._classes.setdefault(self._key(item), deque()).append(
            Waiter(item, future, self.batches)
        )
        self._arrived.set()
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return await future

    def close(self) -> None:
        """End the thread once its batch is done; nothing may be submitted afterwards."""
        self._thread.shutdown(wait=True)

    async def _run(self) -> None:
        while self._classes:
            await self._linger()
            batch = self._take()
            if not batch:
                continue
            try:
                items = [waiter.item for waiter in batch]
                self.batches, self.items = self.batches + 1, self.items + len(items)
                results = await asyncio.get_running_loop().run_in_executor(
                    self._thread, self._work, items
                )
                answered = list(zip(batch, results, strict=True))
            except BaseException as error:
                for waiter in batch:
                    if not waiter.result.done():
                        waiter.result.set_exception(error)
                if not isinstance(error, Exception):
                    raise
            else:
                for waiter, result in answered:
                    if not waiter.result.done():
                        waiter.result.set_result(result)

    async def _linger(self) -> None:
        while max(map(len, self._classes.values())) < self._rows:
            self._arrived = asyncio.Event()
            try:
                await asyncio.wait_for(self._arrived.wait(), self._linger_seconds)
            except TimeoutError:
                return

    def _take(self) -> list[Waiter[Item, Result]]:
        """Remove and return the next batch, the oldest of its class; requests whose
        waiter is gone are dropped.
        """
        alive = {
            key: deque(w for w in queue if not w.result.done())
            for key, queue in self._classes.items()
        }
        self._classes = {key: queue for key, queue in alive.items() if queue}
        if not self._classes:
            return []
        key = self._next_class()
        queue = self._classes[key]
        batch = [queue.popleft() for _ in range(min(self._rows, len(queue)))]
        if not queue:
            del self._classes[key]
        return batch

    def _next_class(self) -> Hashable:
        """The one with most to fill a batch with, of several the one that waits
        longest; before it the one that waits longest of all, where that is too long.
        """

        def came(key: Hashable) -> int:
            return self._classes[key][0].since

        longest = min(self._classes, key=came)
        if self.batches - came(longest) >= PATIENCE * len(self._classes):
            return longest
        return max(
            self._classes,
            key=lambda key: (min(self._rows, len(self._classes[key])), -came(key)),
        )
