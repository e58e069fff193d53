"""The order of an epoch, and microbatches, whose rows may be packed into sequences.

A microbatch is limited by its rows, or by its tokens with padding: rows x the longest
of them. Rows that are sorted by length then fill the device alike, short or long.

Rows that begin alike can share one sequence, whose common prefix is run only once. The
tokens of a sequence form a forest: a row is a path from a root, and the position of a
token is its depth. Rows are sorted by their tokens, and each appends the tokens that it
does not share with the row before it. `ends[k]` is one past the last descendant of
place k, so the query at place q sees the key at place k if k <= q < ends[k].

The last token of a row predicts nothing and is not run. Log-probabilities and gradients
equal those of separate rows except for rounding. Dropout is drawn once for a shared
prefix.

Shape suffixes: B sequences, T padded length, N response tokens, row after row.

`auto` compares the cost of both ways: tokens with padding, and query-key pairs (a mask
costs all pairs of a sequence, a causal row half of them). The comparison counts instead
of measuring time, so that a resumed training makes the same choice.
"""

import os
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agentcli.errors import AgentCliError, UsageError
from agentcli.policies.load import placeholder_ids
from agentcli.records.files import derive_seed
from agentcli.records.grouping import grouped
from agentcli.training.loop.forward import (
    TokenRow,
    pad_rows,
    predicted_logits,
    scoring,
    token_logprobs,
)


def shuffled(count: int, *seed: int | str) -> list[int]:
    """The numbers below `count` in a random order that is determined by the seed."""
    generator = np.random.default_rng(derive_seed(*seed))
    order: list[int] = generator.permutation(count).tolist()
    return order


def shuffled_groups(keys: Sequence[Hashable], *seed: int | str) -> list[int]:
    """The places of all keys; equal keys stay together, and groups are shuffled."""
    groups = grouped((key, place) for place, key in enumerate(keys))
    members = list(groups.values())
    order = []
    for number in shuffled(len(members), *seed):
        order += members[number]
    return order


class RowPath(NamedTuple):
    """Rows that are one sequence: each continues the one before, as steps of a chat do."""

    rows: list[int]
    length: int
    """Tokens of the last row, which has all of them."""


class Limit(NamedTuple):
    """What a microbatch may hold."""

    rows: int
    tokens: int | None = None
    """Most tokens with padding, in the place of `rows`. A longer row is run alone."""

    def cut(self, paths: Iterable["RowPath"]) -> list[list["RowPath"]]:
        """The paths in as few microbatches as possible, each of neighbours.

        A path is never cut: it is one sequence.
        """
        parts: list[list[RowPath]] = []
        longest = held = 0
        for path in paths:
            # All rows are padded to the longest, so that one decides what fits.
            longest = max(longest, path.length)
            held += len(path.rows)
            if parts and self._holds(held, len(parts[-1]) + 1, longest):
                parts[-1].append(path)
            else:
                parts.append([path])
                longest, held = path.length, len(path.rows)
        return parts

    def most(self, updates: Sequence[Sequence["RowPath"]], ranks: int) -> int:
        """How many microbatches a rank needs in the update that needs most."""
        return max((-(-len(self.cut(one)) // ranks) for one in updates), default=1)

    def _holds(self, rows: int, paths: int, longest: int) -> bool:
        if self.tokens is None:
            return rows <= self.rows
        return paths * longest <= self.tokens

    def counts_rows(self, updates: Iterable[Sequence["RowPath"]]) -> bool:
        """Whether a microbatch has a number of rows, whatever they are."""
        alone = all(len(path.rows) == 1 for paths in updates for path in paths)
        return self.tokens is None and alone

    def dealt(
        self, paths: Sequence["RowPath"], count: int, even: bool
    ) -> list[list[int]]:
        """The rows in exactly `count` microbatches; some are empty if rows are fewer.

        If `even`, each holds the same number. Else, where fewer would do, the one with
        most tokens is halved.
        """
        if even:
            rows = np.array([row for path in paths for row in path.rows])
            return [part.tolist() for part in np.array_split(rows, count)]
        halved = _halved(paths, count)
        parts = self.cut(halved)
        # An empty microbatch costs a pass that counts nothing; half of a full one does not.
        while len(parts) < min(count, len(halved)):
            fullest = max((part for part in parts if len(part) > 1), key=_padded)
            half = len(fullest) // 2
            place = parts.index(fullest)
            parts[place : place + 1] = fullest[:half], fullest[half:]
        held = [[row for path in part for row in path.rows] for part in parts]
        return held + [[] for _ in range(count - len(held))]


def _padded(part: Sequence[RowPath]) -> int:
    """The tokens of a microbatch with padding."""
    return len(part) * max(path.length for path in part)


def _halved(paths: Iterable[RowPath], count: int) -> list[RowPath]:
    """At least `count` paths, if there are so many rows: long ones are halved."""
    halved = list(paths)
    while len(halved) < count:
        place = max(range(len(halved)), key=lambda one: len(halved[one].rows))
        rows, length = halved[place]
        if len(rows) == 1:
            break
        half = len(rows) // 2
        parts = RowPath(rows[:half], length), RowPath(rows[half:], length)
        halved[place : place + 1] = parts
    return halved


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
        # A row that continues all before it makes no longer sequence than it is alone.
        allowed = max(LONGEST, before, length)
        return together <= allowed and added < self.cost(length)

    def sequences(self, rows: Sequence[TokenIds]) -> list[Bundle]:
        """Combines bundles into sequences no longer than the longest bundle."""
        by_length = sorted(self.bundles(rows), key=lambda one: one.length, reverse=True)
        room = by_length[0].length
        sequences: list[Bundle] = []
        # First fit, longest first: never more than 11/9 of the fewest sequences, and a
        # constant (Johnson 1973).
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
    # Big-endian, so that bytes sort as the numbers do.
    return row_tokens(row).astype(">u4").tobytes()


def paths_of(
    order: Iterable[int], row: Callable[[int], TokenRow], packed: bool
) -> list[RowPath]:
    """The paths of rows that are sorted by their tokens; if not `packed`, one a row."""
    paths: list[RowPath] = []
    before = np.arange(0)
    for number in order:
        prompt, response = row(number)
        length = len(prompt) + len(response)
        tokens = row_tokens((prompt, response)) if packed else before
        # Its prompt has the response before it: other rows that begin alike are siblings.
        goes_on = 0 < len(before) < len(prompt)
        if goes_on and shared_length(before, tokens) == len(before):
            paths[-1].rows.append(number)
            paths[-1] = paths[-1]._replace(length=length)
        else:
            paths.append(RowPath([number], length))
        before = tokens
    return paths


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

    ids_BT, positions_BT and ends_BT (the latter two are missing where every sequence is
    one path, as the steps of a conversation are: it needs no mask); for each response
    token, row after row, places_N,
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
    are_paths = True
    for number, sequence in enumerate(sequences):
        path = np.arange(0)
        size = 0
        for row, shared in sequence.pieces:
            # `path` holds the place of every token of a row. The first `shared` stay those of
            # the row before, whose descendants now end later.
            end = size + len(tokens[row]) - shared
            ids_BT[number, size:end] = tokens[row][shared:]
            positions_BT[number, size:end] = np.arange(shared, len(tokens[row]))
            path = np.concatenate([path[:shared], np.arange(size, end)])
            ends_BT[number, path] = end
            # The last token of the prompt predicts the first of the response.
            prompt, _ = rows[row]
            places[row] = number * longest + path[len(prompt) - 1 :]
            size = end
        are_paths = are_paths and bool((ends_BT[number, :size] == size).all())
    forest = {"positions_BT": positions_BT, "ends_BT": ends_BT}
    if are_paths:
        forest = {}
    return {
        "ids_BT": torch.from_numpy(ids_BT),
        **{name: torch.from_numpy(values) for name, values in forest.items()},
        "places_N": torch.from_numpy(np.concatenate(places)),
        "targets_N": torch.tensor(
            [token for _, response in rows for token in response]
        ),
        "run_1": torch.tensor([sum(sequence.length for sequence in sequences)]),
    }


LEAST_GAIN = 1.2
"""`auto` packs if separate rows cost at least this many times as much."""
ROWS_COMPARED = 8
TOKENS_COMPARED = 4096
"""Most tokens of the rows that are compared, but for the first two."""
TOLERANCE = 1e-3
"""Allowed difference in nats between packed and separate rows in float32, where rounding
is below 1e-5.
"""
ROUNDINGS = 6
"""Allowed mean difference in a coarser precision, in units of its rounding: 0.05 nats in
bfloat16. There a single token may differ by more without any fault, so the mean decides.
"""

Batches = Iterable[Sequence[TokenRow]]
"""The rows of each microbatch."""


class PackingChoice(NamedTuple):
    """How rows share sequences, or why they do not."""

    packing: Packing | None
    reason: str = ""

    def statistics(self) -> dict[str, Any]:
        """The entries for the manifest."""
        if self.packing is not None:
            return {"packed": True}
        return {"packed": False, "unpacked_because": self.reason}


def choose_packing(
    setting: str, wanted: str, model: Any, apart: Batches, together: Batches
) -> PackingChoice:
    """The choice for `wanted` (auto, on or off), the value of `setting`.

    `apart` are the microbatches of separate rows, `together` those of the same rows
    sorted by their tokens. Raises UsageError for `on` with a model that cannot be
    packed.
    """
    if wanted == "off":
        return PackingChoice(None, f"{setting} is off")
    obstacle = obstacle_of(model)
    if obstacle is not None and wanted == "on":
        raise UsageError(f"{setting}: on, but {obstacle}; set {setting}=auto or off")
    if obstacle is not None:
        return PackingChoice(None, obstacle)
    packing = Packing(pair_cost_of(model))
    if wanted == "on":
        return PackingChoice(packing)
    gain = plain_cost(apart, packing) / packed_cost(together, packing)
    if gain >= LEAST_GAIN:
        return PackingChoice(packing)
    return PackingChoice(
        None,
        f"plain rows cost {gain:.2f} times as much, and auto packs from {LEAST_GAIN}",
    )


def obstacle_of(model: Any) -> str | None:
    """Why this model cannot use a mask that separates rows; None if it can."""
    if placeholder_ids(model.config):
        return "the model sees, and pictures are not packed"
    config = model.config.get_text_config()
    attention = config._attn_implementation
    if attention != "sdpa":
        return f"the model's attention is {attention}, and only sdpa takes such a mask"
    layers = set(getattr(config, "layer_types", None) or ["full_attention"])
    windows = layers - {"full_attention"}
    if windows:
        return f"the model has layers of {', '.join(sorted(windows))}"
    if getattr(config, "sliding_window", None):
        return "the model's attention has a sliding window"
    return None


def pair_cost_of(model: Any) -> float:
    """The cost of one query-key pair, in tokens.

    A layer of width d takes about 24 d^2 operations for a token and 4 d for a pair.
    """
    width: int = model.get_input_embeddings().embedding_dim
    return 1 / (6 * width)


def plain_cost(batches: Batches, packing: Packing) -> float:
    """The cost of the microbatches, in tokens, with separate rows."""
    cost = 0.0
    for rows in filter(None, batches):
        longest = max(len(prompt) + len(response) for prompt, response in rows)
        pairs = packing.pair_cost * longest**2 / 2
        cost += len(rows) * (longest + pairs)
    return cost


def packed_cost(batches: Batches, packing: Packing) -> float:
    """The cost of packed microbatches, in tokens."""
    cost = 0.0
    for rows in filter(None, batches):
        sequences = packing.sequences([row_tokens(row) for row in rows])
        cost += len(sequences) * packing.cost(sequences[0].length)
    return cost


def check_packed(
    setting: str,
    packing: Packing,
    model: Any,
    rows: Sequence[TokenRow],
    pad: int,
    device: torch.device,
) -> None:
    """Raises AgentCliError if packing a model's rows changes their log-probabilities.

    Runs a few of the rows, which are sorted by their tokens, both ways. Besides
    attention, a model may connect tokens in ways that ignore the mask. A model whose
    layers compute in a coarser precision cannot be compared in float32, so the limit
    depends on the precision.
    """
    scores = []
    # Two at least, whatever their length: one row alone shares nothing.
    compared = list(rows[:2])
    for prompt, response in rows[2:ROWS_COMPARED]:
        length = len(prompt) + len(response)
        if (len(compared) + 1) * length > TOKENS_COMPARED:
            break
        compared.append((prompt, response))
    with scoring(model):
        for way in (packing, None):
            batch = row_batch(compared, pad, way)
            batch = {name: value.to(device) for name, value in batch.items()}
            logits_NV = predicted_logits(model, batch)
            scores.append(token_logprobs(logits_NV, batch["targets_N"]))
    refuse_gaps(scores[0] - scores[1], model, device, setting, f"set {setting}=off")


def refuse_gaps(
    gaps_N: Tensor, model: Any, device: torch.device, setting: str, remedy: str
) -> None:
    """Raises AgentCliError for more than rounding between rows together and alone."""
    gaps_N = gaps_N.abs()
    rounding = rounding_of(model, device)
    exact = rounding <= torch.finfo(torch.float32).eps
    gap = (gaps_N.max() if exact else gaps_N.mean()).item()
    if not gap <= (TOLERANCE if exact else ROUNDINGS * rounding):
        raise AgentCliError(
            f"{setting}: this model gives rows in one sequence other log-probabilities "
            f"than alone, by {'up to' if exact else 'a mean of'} {gap:.2g}; {remedy}"
        )


def rounding_of(model: Any, device: torch.device) -> float:
    """The coarsest rounding, relative to 1, with which some layer computes.

    4-bit layers compute in a type of their own (bitsandbytes' compute_dtype). On CUDA,
    TF32 rounds the products of float32 to float16's 10 bits; an NVIDIA image may force
    it.
    """
    kinds = {weight.dtype for weight in model.parameters()}
    kinds |= {getattr(part, "compute_dtype", None) for part in model.modules()}
    forced = os.environ.get("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE") == "1"
    allowed = torch.get_float32_matmul_precision() != "highest"
    if device.type == "cuda" and (forced or allowed):
        kinds.add(torch.float16)
    floating = [kind for kind in kinds if kind is not None and kind.is_floating_point]
    return max(torch.finfo(kind).eps for kind in floating)
