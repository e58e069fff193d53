"""Runs a critic or a process reward model over a rollout: V(s) or a score per step.

The number depends only on the step's texts and on the model, so it is computed when a
tree is finished; sampling does not change. As in the policy, only texts with the same
padded length share a batch, and rows come in multiples of eight: on a CPU in float32
with one thread a number is bit-identical whatever else is in the batch.
"""

import asyncio
import math
import time
from functools import lru_cache

import torch

from agentcli.errors import DataError
from agentcli.policies.batching import Batcher
from agentcli.policies.chat_tokens import PROMPTS_REMEMBERED
from agentcli.policies.layouts import PROMPT_BUCKET, ROWS
from agentcli.records.settings import PolicySettings
from agentcli.records.types import LARGEST_REWARD, Step, StopReason, Tree
from agentcli.training.critic.step_readers import StepReader
from agentcli.training.loop.pictures import refuse_pictures

DECIMALS = 6
"""Decimals that numbers are rounded to, as log-probabilities are."""


class Appraiser:
    """Computes the value or score of every step of a tree.

    `settings` are the policy's; they give the size of a batch.
    """

    def __init__(self, reader: StepReader, settings: PolicySettings) -> None:
        self.seconds = 0.0
        """Time spent computing so far."""
        self._reader = reader
        self._ids = lru_cache(PROMPTS_REMEMBERED)(reader.ids)
        self._batcher: Batcher[list[int], float] = Batcher(
            work=self._numbers,
            key=_width,
            rows=settings.batch_rows,
            linger_seconds=settings.linger_ms / 1000,
        )

    async def appraise(self, tree: Tree) -> None:
        """Sets the value or score of every step at which the policy was asked.

        Raises DataError if a number is not finite.
        """
        asked = [
            step
            for step in tree.steps
            if step.prompt and step.stop is not StopReason.OVERLONG
        ]
        for step in asked:
            refuse_pictures(
                step.pictures,
                f"task {tree.task.id}: steps[{step.id}]",
                self._reader.place,
            )
        texts = list(dict.fromkeys(map(self._texts, asked)))
        waiting = [self._batcher.submit(self._ids(*each)) for each in texts]
        numbers = dict(zip(texts, await asyncio.gather(*waiting), strict=True))
        for step in asked:
            setattr(step, self._reader.field, numbers[self._texts(step)])

    async def close(self) -> None:
        """Stops the worker thread."""
        self._batcher.close()

    def _texts(self, step: Step) -> tuple[str, ...]:
        """The texts of a step that the model reads."""
        if self._reader.field == "value":
            return (step.prompt,)
        return (step.prompt, step.response)

    def _numbers(self, batch: list[list[int]]) -> list[float]:
        """The numbers for token ids of equal width; runs in the worker thread."""
        started = time.perf_counter()
        reader = self._reader
        rows = batch + batch[:1] * (-len(batch) % ROWS)
        width = _width(batch[0])
        ids_BT = torch.tensor([row + [reader.pad] * (width - len(row)) for row in rows])
        last_B = torch.tensor([len(row) - 1 for row in rows])
        device = reader.network.device
        with torch.inference_mode():
            numbers_B = reader.values(
                reader.network, ids_BT.to(device), last_B.to(device)
            )
        numbers: list[float] = numbers_B[: len(batch)].tolist()
        for number in numbers:
            if not (math.isfinite(number) and abs(number) <= LARGEST_REWARD):
                raise DataError(
                    f"{reader.place}: gives a {reader.field} of {number}; train it "
                    "again at a lower learning rate"
                )
        self.seconds += time.perf_counter() - started
        return [round(number, DECIMALS) for number in numbers]


def _width(ids: list[int]) -> int:
    """The padded length of token ids; only those with the same length share a batch."""
    return (len(ids) // PROMPT_BUCKET + 1) * PROMPT_BUCKET
