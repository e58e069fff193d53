"""Decides whether rows share sequences, and checks that the model supports it.

`auto` compares the cost of both ways: tokens with padding, and query-key pairs (a mask
costs all pairs of a sequence, a causal row half of them). The comparison counts instead
of measuring time, so that a resumed training makes the same choice.
"""

import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch

from agentcli.errors import AgentCliError, UsageError
from agentcli.policies.placeholders import placeholder_ids
from agentcli.training.loop.forward import (
    TokenRow,
    predicted_logits,
    scoring,
    token_logprobs,
)
from agentcli.training.loop.packing import Packing, row_batch, row_tokens

LEAST_GAIN = 1.2
"""`auto` packs if separate rows cost at least this many times as much."""
ROWS_COMPARED = 8
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
    with scoring(model):
        for way in (packing, None):
            batch = row_batch(rows[:ROWS_COMPARED], pad, way)
            batch = {name: value.to(device) for name, value in batch.items()}
            logits_NV = predicted_logits(model, batch)
            scores.append(token_logprobs(logits_NV, batch["targets_N"]))
    gaps_N = (scores[0] - scores[1]).abs()
    rounding = rounding_of(model, device)
    exact = rounding <= torch.finfo(torch.float32).eps
    gap = (gaps_N.max() if exact else gaps_N.mean()).item()
    if not gap <= (TOLERANCE if exact else ROUNDINGS * rounding):
        raise AgentCliError(
            f"{setting}: this model gives rows in one sequence other log-probabilities "
            f"than alone, by {'up to' if exact else 'a mean of'} {gap:.2g}; set "
            f"{setting}=off"
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
