"""Two ways to arrange prompts in a batch: exact and fast (policy.batching).

exact. A reply depends only on its request and the model. On a CPU in float32 with one
thread it is bit-identical whatever else is in the batch:

- Prompts are padded on the left to a length that depends only on their own length.
  There is always at least one padding token, because transformers uses another
  attention kernel for a batch that needs no mask.
- Only prompts of equal padded length are batched, and rows come in multiples of 16:
  some processors sum the products of fewer rows in another order.

fast. Prompts of any length share a batch, and no row is added just to fill it. Equal
prompts, which siblings have, are computed once. Log-probabilities then differ in the
last bits depending on the rest of the batch, and a near tie may be decided differently.
With several threads or on a GPU, sums are split by batch size, so `exact` guarantees no
more than `fast` there.
"""

from collections.abc import Hashable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from transformers import GenerationConfig

from agentcli.policies.chat_tokens import Prompted

ROWS = 16
"""The number of rows in an exact batch is padded to a multiple of this."""
PROMPT_BUCKET = 32
"""Prompts are padded to the next larger multiple of this many tokens, even if their
length is already a multiple.
"""


class Batch(NamedTuple):
    """The input of `generate`."""

    ids_BT: Tensor
    mask_BT: Tensor
    cache: Any = None
    """Keys and values of all tokens but the last, if they are already computed."""


class Layout(Protocol):
    """A way to arrange prompts in batches."""

    def key(self, item: Prompted) -> Hashable:
        """The key of an item; items with equal keys may share a batch."""
        ...

    def batch(self, model: Any, prompts: list[list[int]], pad: int) -> Batch:
        """The prompts, right-aligned in rows of equal length, on the model's device.

        There may be extra rows after them.
        """
        ...


class ExactLayout:
    """A layout in which a reply does not depend on the rest of its batch."""

    def key(self, item: Prompted) -> Hashable:
        """Padded length, limit, greedy or not, and the number of pictures."""
        greedy = item.temperature == 0
        return _bucket(item.prompt), item.max_tokens, greedy, item.pictures

    def batch(self, model: Any, prompts: list[list[int]], pad: int) -> Batch:
        """Copies of the first prompt pad the rows to a multiple of ROWS."""
        # Any prompt will do; this one has the width already.
        filler = prompts[:1] * (-len(prompts) % ROWS)
        return _padded(prompts + filler, _bucket(prompts[0]), pad, model.device)


class FastLayout:
    """A layout with full batches of prompts of any length.

    If it `shares`, equal prompts are computed once.
    """

    def __init__(self, shares: bool = True) -> None:
        self._shares = shares

    def key(self, item: Prompted) -> Hashable:
        """Only the limit."""
        return item.max_tokens

    def batch(self, model: Any, prompts: list[list[int]], pad: int) -> Batch:
        """Pads rows to the longest prompt; equal prompts share a cache."""
        width = max(map(len, prompts))
        batch = _padded(prompts, width, pad, model.device)
        places = {tuple(prompt): place for place, prompt in enumerate(prompts)}
        # The cache holds all tokens but the last, so a prompt of one has none.
        if not self._shares or len(places) == len(prompts) or width < 2:
            return batch
        chosen = list(places.values())
        cache = _read(model, batch.ids_BT[chosen], batch.mask_BT[chosen], pad)
        rank = {prompt: row for row, prompt in enumerate(places)}
        rows = [rank[tuple(prompt)] for prompt in prompts]
        # A row of the cache for every request, copied from that of its prompt.
        cache.batch_select_indices(torch.tensor(rows, device=model.device))
        return batch._replace(cache=cache)


def layout_of(batching: str | None, device: str, shares: bool = True) -> Layout:
    """The layout for policy.batching; None chooses by device.

    `shares`: equal tokens imply equal prompts, which is true without pictures.
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
    """The cache of all but the last token of each prompt.

    `generate` does not cache the token that it appends.
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
