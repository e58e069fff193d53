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
A conversation that grows keeps its keys and values, so that only what was added is run.
With several threads or on a GPU, sums are split by batch size, so `exact` guarantees no
more than `fast` there.

Shape suffixes: B rows, H heads, T tokens of a row, W padded width, D width of a head.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, GenerationConfig
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from agentcli.policies.chat_tokens import Prompted

ROWS = 16
"""The number of rows in an exact batch is padded to a multiple of this."""
PROMPT_BUCKET = 32
"""Prompts are padded to the next larger multiple of this many tokens, even if their
length is already a multiple.
"""
BYTES_KEPT = 2**30
"""About 23,000 tokens of SmolLM2-135M in float32."""


class KeptLayer(NamedTuple):
    """One layer's keys and values of a conversation."""

    keys_HTD: Tensor
    values_HTD: Tensor


class KeptCaches:
    """Keys and values of conversations by their tokens, kept from one step to the next.

    The prompt of a step in a growing conversation begins with what was computed for the
    step before, whose forks share it. Only the last sampled token was never run. What is
    kept is limited in bytes; what was not used for longest goes first, and is computed
    again if it is asked for.
    """

    def __init__(self) -> None:
        self._bytes = 0
        self._kept: OrderedDict[bytes, list[KeptLayer]] = OrderedDict()

    def get(self, tokens: Sequence[int]) -> list[KeptLayer] | None:
        """What was kept for exactly these tokens; None if nothing was."""
        key = _name(tokens)
        layers = self._kept.get(key)
        if layers is not None:
            self._kept.move_to_end(key)
        return layers

    def keep(
        self, tokens: Sequence[int], cache: Any, row: int, columns: Tensor
    ) -> None:
        """Keeps these columns of a row of a model's cache, which belong to `tokens`."""
        # A sliding window or a state forgets, so it cannot go on from a prefix.
        if _kinds(cache) != {DynamicLayer}:
            return
        layers = []
        for layer in cache.layers:
            keys_HTD = layer.keys[row].index_select(1, columns)
            layers.append(
                KeptLayer(keys_HTD, layer.values[row].index_select(1, columns))
            )
        key = _name(tokens)
        self._drop(key)
        self._kept[key] = layers
        self._bytes += _size(layers)
        while self._bytes > BYTES_KEPT:
            self._drop(next(iter(self._kept)))

    def clear(self) -> None:
        """Forgets everything, because the weights are others."""
        self._kept.clear()
        self._bytes = 0

    def _drop(self, key: bytes) -> None:
        self._bytes -= _size(self._kept.pop(key, []))


def joined(rows: Sequence[list[KeptLayer] | None], width: int) -> DynamicCache:
    """A cache of all rows, each on the right of `width` places; at least one row is kept.

    The places of a row that has nothing are zeros, which the mask must hide.
    """
    example = next(layers for layers in rows if layers is not None)
    cache = DynamicCache()
    for number, layer in enumerate(example):
        heads, _, size = layer.keys_HTD.shape
        keys_BHWD = layer.keys_HTD.new_zeros(len(rows), heads, width, size)
        values_BHWD = torch.zeros_like(keys_BHWD)
        for row, layers in enumerate(rows):
            if layers is not None:
                start = width - layers[number].keys_HTD.shape[1]
                keys_BHWD[row, :, start:] = layers[number].keys_HTD
                values_BHWD[row, :, start:] = layers[number].values_HTD
        cache.update(keys_BHWD, values_BHWD, number)
    return cache


def _kinds(cache: Any) -> set[type]:
    """The classes of a cache's layers; that of the cache, if it has no layers."""
    return {type(layer) for layer in getattr(cache, "layers", [cache])}


def _name(tokens: Sequence[int]) -> bytes:
    return blake2b(np.array(tokens, dtype=np.int32).tobytes(), digest_size=16).digest()


def _size(layers: Sequence[KeptLayer]) -> int:
    return sum(each.nbytes for layer in layers for each in layer)


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

    def batch(self, model: Any, items: Sequence[Prompted], pad: int) -> Batch:
        """The prompts in rows of equal length, on the model's device.

        There may be extra rows after them.
        """
        ...

    def keep(
        self,
        items: Sequence[Prompted],
        batch: Batch,
        responses: Sequence[list[int]],
        cache: Any,
    ) -> None:
        """May keep what the model's cache holds of conversations that may go on."""
        return None

    def forget(self) -> None:
        """Forgets what was kept: the weights are others."""
        return None


class ExactLayout(Layout):
    """A layout in which a reply does not depend on the rest of its batch.

    Nor may it depend on what was asked before, so nothing is kept.
    """

    def key(self, item: Prompted) -> Hashable:
        """Padded length, limit, greedy or not, and the number of pictures."""
        greedy = item.temperature == 0
        return bucket(item.prompt), item.max_tokens, greedy, item.pictures

    def batch(self, model: Any, items: Sequence[Prompted], pad: int) -> Batch:
        """Copies of the first prompt pad the rows to a multiple of ROWS."""
        prompts = [item.prompt for item in items]
        # Any prompt will do; this one has the width already.
        filler = prompts[:1] * (-len(prompts) % ROWS)
        return _padded(prompts + filler, bucket(prompts[0]), pad, model.device)


class FastLayout(Layout):
    """A layout with full batches of prompts of any length.

    If it `shares`, equal prompts are computed once, unless the model's layers have a state.
    """

    def __init__(self, shares: bool = True) -> None:
        self._shares = shares
        self._kept = KeptCaches()

    def key(self, item: Prompted) -> Hashable:
        """The limit, and whether a part of the prompt was run before."""
        return item.max_tokens, item.run_before > 0

    def batch(self, model: Any, items: Sequence[Prompted], pad: int) -> Batch:
        """Pads rows to the longest prompt; equal prompts share a cache.

        Of a conversation, only what was added since the step before is run.
        """
        kept = [self._kept.get(item.prompt[: item.run_before]) for item in items]
        prompts = [item.prompt for item in items]
        if any(kept):
            return _continued(prompts, kept, pad, model.device)
        width = max(map(len, prompts))
        batch = _padded(prompts, width, pad, model.device)
        places = {tuple(prompt): place for place, prompt in enumerate(prompts)}
        # The cache holds all tokens but the last, so a prompt of one has none.
        if not self._shares or len(places) == len(prompts) or width < 2:
            return batch
        chosen = list(places.values())
        cache = _read(model, batch.ids_BT[chosen], batch.mask_BT[chosen], pad)
        # A layer with a state has no rows to copy, or copies its keys and values alone.
        self._shares = _kinds(cache) <= {DynamicLayer, DynamicSlidingWindowLayer}
        if not self._shares:
            return batch
        rank = {prompt: row for row, prompt in enumerate(places)}
        rows = [rank[tuple(prompt)] for prompt in prompts]
        # A row of the cache for every request, copied from that of its prompt.
        cache.batch_select_indices(torch.tensor(rows, device=model.device))
        return batch._replace(cache=cache)

    def keep(
        self,
        items: Sequence[Prompted],
        batch: Batch,
        responses: Sequence[list[int]],
        cache: Any,
    ) -> None:
        """Keeps the keys and values of the items that grow."""
        width = batch.ids_BT.shape[1]
        for row, (item, response) in enumerate(zip(items, responses, strict=True)):
            if item.grows:
                read = batch.mask_BT[row].nonzero()[:, 0]
                said = torch.arange(width, width + len(response) - 1)
                columns = torch.cat([read, said.to(read.device)])
                self._kept.keep([*item.prompt, *response[:-1]], cache, row, columns)

    def forget(self) -> None:
        self._kept.clear()


def layout_of(batching: str | None, device: str, shares: bool = True) -> Layout:
    """The layout for policy.batching; None chooses by device.

    `shares`: equal tokens imply equal prompts, which is true without pictures.
    """
    if batching is None:
        batching = "fast" if device.startswith("cuda") else "exact"
    return FastLayout(shares) if batching == "fast" else ExactLayout()


def bucket(prompt: list[int]) -> int:
    """The padded length of a prompt; only those with the same length share a batch."""
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


def _continued(
    prompts: list[list[int]],
    kept: Sequence[list[KeptLayer] | None],
    pad: int,
    device: torch.device,
) -> Batch:
    """The prompts, of which the beginnings with something `kept` are not run again.

    Both parts of a row are right-aligned: what was run, then what was added.
    """
    begun = [0 if one is None else one[0].keys_HTD.shape[1] for one in kept]
    width = max(begun)
    parts = zip(prompts, begun, strict=True)
    before = _padded([prompt[:length] for prompt, length in parts], width, pad, device)
    parts = zip(prompts, begun, strict=True)
    added = [prompt[length:] for prompt, length in parts]
    after = _padded(added, max(map(len, added)), pad, device)
    return Batch(
        torch.cat([before.ids_BT, after.ids_BT], dim=1),
        torch.cat([before.mask_BT, after.mask_BT], dim=1),
        joined(kept, width),
    )


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
