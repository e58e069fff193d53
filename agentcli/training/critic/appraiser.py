"""The models that appraise a rollout: V(s) or a score of every step, in batches.

A number depends on the texts of its step and on the model alone, so it is asked when a
tree is finished: what is sampled is the same with such a model and without. As in the
policy, only texts of one padded length share a batch, and rows come in multiples of
eight: on a CPU in float32 with one thread a number is bit-identical whoever shares the
batch.
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
"""Numbers are rounded as log-probabilities are."""


class Appraiser:
    """Appraises the steps of trees by a reader.

    `settings` gives the shape of a batch: that of the policy.
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
        """Fills in the number of every step whose prompt the policy was asked.

        Raises DataError for one that is not finite.
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
        """Lets go of the worker thread."""
        self._batcher.close()

    def _texts(self, step: Step) -> tuple[str, ...]:
        """What is read of a step."""
        if self._reader.field == "value":
            return (step.prompt,)
        return (step.prompt, step.response)

    def _numbers(self, batch: list[list[int]]) -> list[float]:
        """The numbers of one batch of token ids of equal width, in the worker thread."""
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
    """The padded length of token ids: those of one width may share a batch."""
    return (len(ids) // PROMPT_BUCKET + 1) * PROMPT_BUCKET
