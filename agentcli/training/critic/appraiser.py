"""The critic of a rollout: it gives V(s) of every step, in batches.

A value depends on the prompt and the critic alone, so it is asked when a tree is
finished: what is sampled is the same with a critic and without. As in the policy, only
prompts of one padded length share a batch, and rows come in multiples of eight: on a
CPU in float32 with one thread a value is bit-identical whoever shares the batch.
"""

import asyncio
import math
import time
from functools import lru_cache, partial
from typing import Any

import torch

from agentcli.errors import DataError
from agentcli.policies.batching import Batcher
from agentcli.policies.chat import prompt_ids
from agentcli.policies.hf import PROMPT_BUCKET, PROMPTS_REMEMBERED, ROWS
from agentcli.policies.load import load_tokenizer
from agentcli.records.settings import PolicySettings
from agentcli.records.types import LARGEST_REWARD, StopReason, Tree
from agentcli.training.critic.model import load_critic, state_values

DECIMALS = 6
"""Values are rounded as log-probabilities are."""


class Appraiser:
    """Appraises the steps of trees with the critic of a directory.

    `settings` gives device, dtype and the shape of a batch: those of the policy. Raises
    what `load_critic` and `load_tokenizer` raise.
    """

    def __init__(self, source: str, settings: PolicySettings) -> None:
        self.seconds = 0.0
        """Time spent computing values so far."""
        self._source = source
        self._critic: Any = load_critic(
            source, device=settings.device, dtype=settings.dtype
        )
        tokenizer = load_tokenizer(source)
        self._pad: int = tokenizer.pad_token_id
        self._prompt_ids = lru_cache(PROMPTS_REMEMBERED)(partial(prompt_ids, tokenizer))
        self._batcher: Batcher[list[int], float] = Batcher(
            work=self._values,
            key=_width,
            rows=settings.batch_rows,
            linger_seconds=settings.linger_ms / 1000,
        )

    async def appraise(self, tree: Tree) -> None:
        """Fills in Step.value of every step whose prompt the policy was asked.

        Raises DataError for a value that is no finite number.
        """
        asked = [
            step
            for step in tree.steps
            if step.prompt and step.stop is not StopReason.OVERLONG
        ]
        prompts = list(dict.fromkeys(step.prompt for step in asked))
        waiting = [self._batcher.submit(self._prompt_ids(text)) for text in prompts]
        values = dict(zip(prompts, await asyncio.gather(*waiting), strict=True))
        for step in asked:
            step.value = values[step.prompt]

    async def close(self) -> None:
        """Lets go of the worker thread and the critic."""
        self._batcher.close()
        self._critic = None

    def _values(self, prompts: list[list[int]]) -> list[float]:
        """V of one batch of prompts of equal width, in the worker thread."""
        started = time.perf_counter()
        rows = prompts + prompts[:1] * (-len(prompts) % ROWS)
        width = _width(prompts[0])
        ids_BT = torch.tensor([row + [self._pad] * (width - len(row)) for row in rows])
        last_B = torch.tensor([len(row) - 1 for row in rows])
        device = self._critic.device
        with torch.inference_mode():
            values_B = state_values(self._critic, ids_BT.to(device), last_B.to(device))
        values = values_B[: len(prompts)].tolist()
        for value in values:
            if not (math.isfinite(value) and abs(value) <= LARGEST_REWARD):
                raise DataError(
                    f"rollout.critic {self._source}: gives a value of {value}; lower "
                    "train.options.critic_learning_rate and train it again"
                )
        self.seconds += time.perf_counter() - started
        return [round(value, DECIMALS) for value in values]


def _width(prompt: list[int]) -> int:
    """The padded length of a prompt: prompts of one width may share a batch."""
    return (len(prompt) // PROMPT_BUCKET + 1) * PROMPT_BUCKET
