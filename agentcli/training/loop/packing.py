"""Packs rows that begin alike into one sequence, whose common prefix is run only once.

The tokens of a sequence form a forest: a row is a path from a root, and the position of
a token is its depth. Rows are sorted by their tokens, and each appends the tokens that
it does not share with the row before it. `ends[k]` is one past the last descendant of
place k, so the query at place q sees the key at place k if k <= q < ends[k].

The last token of a row predicts nothing and is not run. Log-probabilities and gradients
equal those of separate rows except for rounding. Dropout is drawn once for a shared
prefix.

Shape suffixes: B sequences, T padded length, N response tokens, row after row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agentcli.training.loop.forward import TokenRow, pad_rows

TokenIds = NDArray[np.int64]
LONGEST = 4096
"""Most tokens in a shared sequence: its mask grows with the square of the length."""


class Piece(NamedTuple):
    """A row's part of a sequence."""

    row: int
    shared: int
    """Number of leading tokens that it shares with the piece before it."""


@dataclass(slots=True)
class Bundle:
    """Rows that share one sequence."""

    pieces: list[Piece]
    length: int


@dataclass(frozen=True, slots=True)
class Packing:
    """How rows are arranged in sequences."""

    pair_cost: float
    """The cost of one query-key pair, in tokens."""

    def cost(self, length: int) -> float:
        """The cost of one sequence, in tokens."""
        return length + self.pair_cost * length**2

    def bundles(self, rows: Sequence[TokenIds]) -> list[Bundle]:
        """Groups rows, sorted by their tokens, where sharing a sequence is cheaper."""
        bundles: list[Bundle] = []
        for row, tokens in enumerate(rows):
            shared = shared_length(rows[row - 1], tokens) if row else 0
            apart = Bundle([Piece(row, 0)], len(tokens))
            if shared and self._joins(bundles[-1].length, apart.length, shared):
                bundles[-1].pieces.append(Piece(row, shared))
                bundles[-1].length += apart.length - shared
            else:
                bundles.append(apart)
        return bundles

    def _joins(self, before: int, length: int, shared: int) -> bool:
        """Whether a row costs less when appended to a bundle of length `before`."""
        together = before + length - shared
        added = self.cost(together) - self.cost(before)
        return together <= LONGEST and added < self.cost(length)

    def sequences(self, rows: Sequence[TokenIds]) -> list[Bundle]:
        """Combines bundles into sequences no longer than the longest bundle."""
        by_length = sorted(self.bundles(rows), key=lambda one: one.length, reverse=True)
        room = by_length[0].length
        sequences: list[Bundle] = []
        for bundle in by_length:
            for sequence in sequences:
                if sequence.length + bundle.length <= room:
                    sequence.pieces += bundle.pieces
                    sequence.length += bundle.length
                    break
            else:
                sequences.append(bundle)
        return sequences


def row_tokens(row: TokenRow) -> TokenIds:
    """The tokens of a row that are run."""
    prompt, response = row
    return np.array([*prompt, *response[:-1]], dtype=np.int64)


def sort_key(row: TokenRow) -> bytes:
    """A key that sorts rows by their tokens."""
    return row_tokens(row).astype(">u4").tobytes()


def shared_length(one: TokenIds, other: TokenIds) -> int:
    """Length of the common prefix of two rows."""
    shorter = min(len(one), len(other))
    differing = np.flatnonzero(one[:shorter] != other[:shorter])
    return int(differing[0]) if len(differing) else shorter


def row_batch(
    rows: Sequence[TokenRow], pad: int, packing: Packing | None
) -> dict[str, Tensor]:
    """The input of one forward pass over rows.

    ids_BT and response_BT, or with `packing` the output of `pack_rows` instead;
    targets_N, the response tokens; and run_1, the number of tokens that are run.
    """
    if packing is not None:
        return pack_rows(rows, packing, pad)
    ids_BT, response_BT = pad_rows(rows, pad)
    lengths = [len(prompt) + len(response) for prompt, response in rows]
    return {
        "ids_BT": ids_BT,
        "response_BT": response_BT,
        "targets_N": ids_BT[response_BT],
        "run_1": torch.tensor([sum(lengths)]),
    }


def pack_rows(
    rows: Sequence[TokenRow], packing: Packing, pad: int
) -> dict[str, Tensor]:
    """Packs rows, sorted by their tokens, into sequences.

    ids_BT, positions_BT and ends_BT; for each response token, row after row, places_N,
    the place in ids_BT (flat) whose logits predict it, and targets_N, the token itself;
    and run_1, the number of tokens without padding.
    """
    tokens = [row_tokens(row) for row in rows]
    sequences = packing.sequences(tokens)
    longest = max(sequence.length for sequence in sequences)
    ids_BT = np.full((len(sequences), longest), pad)
    positions_BT = np.zeros_like(ids_BT)
    # A padding position attends to itself: a softmax over nothing gives NaN.
    ends_BT = np.arange(1, longest + 1) + np.zeros_like(ids_BT)
    places: list[TokenIds] = [np.arange(0)] * len(rows)
    for number, sequence in enumerate(sequences):
        path = np.arange(0)
        size = 0
        for row, shared in sequence.pieces:
            end = size + len(tokens[row]) - shared
            ids_BT[number, size:end] = tokens[row][shared:]
            positions_BT[number, size:end] = np.arange(shared, len(tokens[row]))
            path = np.concatenate([path[:shared], np.arange(size, end)])
            ends_BT[number, path] = end
            prompt, _ = rows[row]
            places[row] = number * longest + path[len(prompt) - 1 :]
            size = end
    return {
        "ids_BT": torch.from_numpy(ids_BT),
        "positions_BT": torch.from_numpy(positions_BT),
        "ends_BT": torch.from_numpy(ends_BT),
        "places_N": torch.from_numpy(np.concatenate(places)),
        "targets_N": torch.tensor(
            [token for _, response in rows for token in response]
        ),
        "run_1": torch.tensor([sum(sequence.length for sequence in sequences)]),
    }
