"""Two ways to lay out prompts in a batch: exact, and fast (policy.batching).

exact. A reply depends on its request and the model alone. On a CPU in float32 with one
thread it is bit-identical whoever shares the batch:

- Prompts are padded on the left to a length that depends on their own length only.
  There is always a token of padding, because transformers attends by another kernel
  where a batch needs no mask.
- Only equal lengths are batched, and rows come in multiples of 16: some
  processors sum up products of fewer rows in another order.

fast. Prompts of any length share a batch, and no row is only there to fill it. Equal
prompts, as siblings have them, are read once. Log-probabilities then differ in the last
bits with the company, and a near tie may fall otherwise. Several threads and GPUs split
their sums by batch size, so they promise no more with `exact`.
"""

from collections.abc import Hashable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from transformers import GenerationConfig

from agentcli.policies.chat_tokens import Prompted

ROWS = 16
"""Rows of an exact batch are padded to a multiple of this."""
PROMPT_BUCKET = 32
"""Prompts are padded to the next multiple of this many tokens, a multiple itself to the
one after it.
"""


class Batch(NamedTuple):
    """What `generate` is given."""

    ids_BT: Tensor
    mask_BT: Tensor
    cache: Any = None
    """Keys and values of all but the last token, where they are known."""


class Layout(Protocol):
    """How prompts come together."""

    def key(self, item: Prompted) -> Hashable:
        """Items of equal keys may share a batch."""
        ...

    def batch(self, model: Any, prompts: list[list[int]], pad: int) -> Batch:
        """The prompts at the right end of rows of one length, on the model's device.

        There may be rows beyond them.
        """
        ...


class ExactLayout:
    """Replies that do not depend on their company."""

    def key(self, item: Prompted) -> Hashable:
        """Padded length, limit, greedy or not, and the number of pictures."""
        greedy = item.temperature == 0
        return _bucket(item.prompt), item.max_tokens, greedy, item.pictures

    def batch(self, model: Any, prompts: list[list[int]], pad: int) -> Batch:
        """Rows are a multiple of ROWS; the first prompt fills them up."""
        filler = prompts[:1] * (-len(prompts) % ROWS)
        return _padded(prompts + filler, _bucket(prompts[0]), pad, model.device)


class FastLayout:
    """Full batches of prompts of any length.

    Where it `shares`, no prompt is read twice.
    """

    def __init__(self, shares: bool = True) -> None:
        self._shares = shares

    def key(self, item: Prompted) -> Hashable:
        """The limit alone."""
        return item.max_tokens

    def batch(self, model: Any, prompts: list[list[int]], pad: int) -> Batch:
        """Rows have the length of the longest prompt; equal prompts share a cache."""
        width = max(map(len, prompts))
        batch = _padded(prompts, width, pad, model.device)
        places = {tuple(prompt): place for place, prompt in enumerate(prompts)}
        if not self._shares or len(places) == len(prompts) or width < 2:
            return batch
        chosen = list(places.values())
        cache = _read(model, batch.ids_BT[chosen], batch.mask_BT[chosen], pad)
        rank = {prompt: row for row, prompt in enumerate(places)}
        rows = [rank[tuple(prompt)] for prompt in prompts]
        cache.batch_select_indices(torch.tensor(rows, device=model.device))
        return batch._replace(cache=cache)


def layout_of(batching: str | None, device: str, shares: bool = True) -> Layout:
    """The layout of policy.batching; None chooses by device.

    `shares`: equal tokens mean equal prompts, as they do without pictures.
    """
    if batching is None:
        batching = "fast" if device.startswith("cuda") else "exact"
    return FastLayout(shares) if batching == "fast" else ExactLayout()


def _bucket(prompt: list[int]) -> int:
    return (len(prompt) // PROMPT_BUCKET + 1) * PROMPT_BUCKET


def _padded(
    prompts: list[list[int]], width: int, pad: int, device: torch.device
) -> Batch:
    ids = []
    mask = []
    for prompt in prompts:
        padding = width - len(prompt)
        ids.append([pad] * padding + prompt)
        mask.append([0] * padding + [1] * len(prompt))
    return Batch(torch.tensor(ids, device=device), torch.tensor(mask, device=device))


def _read(model: Any, ids_UT: Tensor, mask_UT: Tensor, pad: int) -> Any:
    """The cache of all tokens but the last of each prompt.

    `generate` leaves the token that it adds out of the cache.
    """
    configuration = GenerationConfig(
        max_new_tokens=1,
        do_sample=False,
        pad_token_id=pad,
        return_dict_in_generate=True,
    )
    output = model.generate(
        input_ids=ids_UT[:, :-1],
        attention_mask=mask_UT[:, :-1],
        generation_config=configuration,
    )
    return output.past_key_values
