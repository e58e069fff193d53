"""The policy-gradient loss as pure functions of tensors, so that it can be read, tested
and compared without a trainer.

Every aggregation is a weight per token: the loss of an update is sum(weight * token
loss) and the weights of an update (all microbatches, all ranks, rows that are skipped
because they cannot have a gradient included) are normalised together, before any of
them is run. Accumulation therefore changes nothing but the order of a float sum.

Probabilities are those of the sampled distribution: the ratio of 002 eq. 10 is taken to
the behaviour policy, which at temperature T is softmax(logits / T). Entropy and KL are
of the same distribution.

Shape suffixes: N response tokens of a microbatch, R rows of an update, V vocabulary.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from agentcli.records.settings import Aggregate
from agentcli.training.loop.forward import tempered


class TokenLosses(NamedTuple):
    """What the loss is made of, per token; all (N,)."""

    loss_N: Tensor
    """-surrogate + beta * kl."""
    surrogate_N: Tensor
    """min(ratio * A, clip(ratio) * A)."""
    kl_N: Tensor
    """k3 estimate against the reference; zeros without one."""
    ratio_N: Tensor
    """pi / pi_old at the sampled token."""
    clipped_N: Tensor
    """bool: clipping took this token's policy gradient away."""


@torch.no_grad()
def token_entropies(logits_NV: Tensor, temperatures_N: Tensor | None = None) -> Tensor:
    """Entropies (N,) of softmax(logits / temperature) in nats, in float32, without a
    gradient. None: at temperature 1.
    """
    logprobs_NV = torch.log_softmax(tempered(logits_NV, temperatures_N), dim=-1)
    return -(logprobs_NV.exp() * logprobs_NV).sum(-1)


def k3(logprobs_N: Tensor, reference_N: Tensor) -> Tensor:
    """Per-token estimate of KL(pi || ref) from samples of pi: r - 1 - log r with r =
    ref / pi. Never negative, unbiased.
    """
    difference_N = reference_N - logprobs_N
    return torch.expm1(difference_N) - difference_N


def token_losses(
    logprobs_N: Tensor,
    old_N: Tensor,
    advantages_N: Tensor,
    clip: float,
    reference_N: Tensor | None,
    beta: float,
) -> TokenLosses:
    """The clipped surrogate with the ratio per token against the stored sampling
    log-probabilities, and the KL penalty.

    `reference_N` may be None only if beta is 0.
    """
    ratio_N = torch.exp(logprobs_N - old_N)
    surrogate_N = torch.minimum(
        ratio_N * advantages_N, ratio_N.clamp(1 - clip, 1 + clip) * advantages_N
    )
    clipped_N = ((advantages_N > 0) & (ratio_N > 1 + clip)) | (
        (advantages_N < 0) & (ratio_N < 1 - clip)
    )
    kl_N = (
        torch.zeros_like(logprobs_N)
        if reference_N is None
        else k3(logprobs_N, reference_N)
    )
    loss_N = -surrogate_N if beta == 0 else -surrogate_N + beta * kl_N
    return TokenLosses(loss_N, surrogate_N, kl_N, ratio_N, clipped_N)


def token_weights(
    aggregate: Aggregate, lengths_R: Tensor, weights_R: Tensor, shares_R: Tensor
) -> Tensor:
    """The weight that each token of a row has in its update, float64 (R,); weight *
    length sums to 1 over the update.

    step: proportional to weight * share / length, where a row's share is what its step
    counts for in the trajectories it belongs to (`rows.py`): mean over trajectories of
    mean over steps of mean over tokens (RewardFlow, eq. 11). token: proportional to
    weight: mean over all tokens. sequence: proportional to weight / length: mean over
    rows of mean over tokens. All zeros when nothing in the update has weight.
    """
    lengths_R, weights_R = lengths_R.double(), weights_R.double()
    if aggregate == "step":
        tokens_R = weights_R * shares_R.double() / lengths_R
    elif aggregate == "sequence":
        tokens_R = weights_R / lengths_R
    else:
        tokens_R = weights_R
    total = (tokens_R * lengths_R).sum()
    return tokens_R / total if total > 0 else torch.zeros_like(tokens_R)


def logprob_gap(trainer_N: Tensor, sampler_N: Tensor) -> dict[str, float]:
    """How far the trainer's log-probabilities lie from the sampler's, before anything
    was trained.

    mean, p99 and max of |difference| in nats, and k3, the estimate of KL(sampler ||
    trainer).
    """
    difference_N = trainer_N.double() - sampler_N.double()
    absolute_N = difference_N.abs()
    rank = min(absolute_N.numel() - 1, int(0.99 * absolute_N.numel()))
    return {
        "mean": absolute_N.mean().item(),
        "p99": absolute_N.sort().values[rank].item(),
        "max": absolute_N.max().item(),
        "k3": (torch.expm1(difference_N) - difference_N).mean().item(),
        "tokens": absolute_N.numel(),
    }
