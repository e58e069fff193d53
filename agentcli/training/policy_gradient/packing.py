"""Whether the rows of a plan share sequences (train.packing), and that they may.

`auto` compares what both ways cost: tokens with their padding, and pairs of query and
key, where a mask costs all pairs of a sequence and a causal row half of them. The
comparison counts and does not time anything, so that a resumed training chooses alike.
"""

from typing import Any

import torch

from agentcli.errors import AgentCliError, UsageError
from agentcli.records.training_settings import TrainSettings
from agentcli.training.loop.forward import predicted_logits, scoring, token_logprobs
from agentcli.training.loop.packing import Packing, row_tokens
from agentcli.training.policy_gradient.batches import UpdatePlan

LEAST_GAIN = 1.2
"""`auto` packs where the plain way costs this many times as much."""
ROWS_COMPARED = 8
TOLERANCE = 1e-3
"""Nats between a log-probability in company and by itself; rounding is below 1e-5."""


def packed_as_set(plan: UpdatePlan, settings: TrainSettings, model: Any) -> UpdatePlan:
    """The plan, packed where train.packing says so.

    Raises UsageError for `on` with a model that cannot be packed.
    """
    if settings.packing == "off" or not plan.updates:
        return plan
    obstacle = obstacle_of(model)
    if obstacle is not None and settings.packing == "on":
        raise UsageError(
            f"train.packing: on, but {obstacle}; set train.packing=auto or off"
        )
    if obstacle is not None:
        return plan
    packing = Packing(pair_cost_of(model))
    packed = plan.packed(packing)
    if settings.packing == "on":
        return packed
    gain = plain_cost(plan, packing) / packed_cost(packed, packing)
    return packed if gain >= LEAST_GAIN else plan


def obstacle_of(model: Any) -> str | None:
    """Why this model cannot take a mask that keeps rows apart; None: it can."""
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
    """What a pair of query and key costs, in tokens.

    A layer of width d takes about 24 d^2 operations for a token and 4 d for a pair.
    """
    width: int = model.get_input_embeddings().embedding_dim
    return 1 / (6 * width)


def plain_cost(plan: UpdatePlan, packing: Packing) -> float:
    """What all microbatches cost, in tokens, with every row by itself."""
    cost = 0.0
    for update in plan.updates:
        for rows in filter(None, update.microbatches):
            longest = max(map(plan.tokens.length, rows))
            pairs = packing.pair_cost * longest**2 / 2
            cost += len(rows) * (longest + pairs)
    return cost


def packed_cost(plan: UpdatePlan, packing: Packing) -> float:
    """What all microbatches of a packed plan cost, in tokens."""
    cost = 0.0
    for update in plan.updates:
        for rows in filter(None, update.microbatches):
            tokens = [row_tokens(plan.tokens.row(row)) for row in rows]
            sequences = packing.sequences(tokens)
            cost += len(sequences) * packing.cost(sequences[0].length)
    return cost


def check_packed(plan: UpdatePlan, model: Any, pad: int, device: torch.device) -> None:
    """Raises AgentCliError where rows in one sequence are not what they are alone.

    A few rows are run both ways. A model may have more than attention between its
    tokens, and ignore the mask there.
    """
    if plan.packing is None:
        return
    rows = plan.updates[0].microbatches[0][:ROWS_COMPARED]
    scores = []
    with scoring(model):
        for packing in (plan.packing, None):
            batch = plan.tokens.batch(rows, pad, packing)
            batch = {name: value.to(device) for name, value in batch.items()}
            logits_NV = predicted_logits(model, batch)
            scores.append(token_logprobs(logits_NV, batch["targets_N"]))
    gap = (scores[0] - scores[1]).abs().max().item()
    if not gap <= TOLERANCE:
        raise AgentCliError(
            f"train.packing: this model gives rows in one sequence other "
            f"log-probabilities than alone, by up to {gap:.2g}; set train.packing=off"
        )
