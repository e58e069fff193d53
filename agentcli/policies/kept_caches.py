"""Keys and values of conversations, kept from one step to the next.

The prompt of a step in a growing conversation begins with what was computed for the step
before, whose forks share it. Only the last sampled token was never run. What is kept
is limited in bytes; what was not used for longest goes first, and is computed again if
it is asked for.

Shape suffixes: B rows, H heads, T tokens of a row, W padded width, D width of a head.
"""

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

BYTES_KEPT = 2**30
"""About 23,000 tokens of SmolLM2-135M in float32."""


class KeptLayer(NamedTuple):
    """One layer's keys and values of a conversation."""

    keys_HTD: Tensor
    values_HTD: Tensor


class KeptCaches:
    """Keys and values by the tokens that they belong to."""

    def __init__(self, most_bytes: int = BYTES_KEPT) -> None:
        self._most_bytes = most_bytes
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
        kinds = {type(layer) for layer in getattr(cache, "layers", ())}
        if kinds != {DynamicLayer}:
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
        while self._bytes > self._most_bytes:
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


def _name(tokens: Sequence[int]) -> bytes:
    return blake2b(np.array(tokens, dtype=np.int32).tobytes(), digest_size=16).digest()


def _size(layers: Sequence[KeptLayer]) -> int:
    return sum(each.nbytes for layer in layers for each in layer)
