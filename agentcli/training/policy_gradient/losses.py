"""The policy-gradient loss as pure functions of tensors, read without a trainer.

Every aggregation is a weight per token: the loss of an update is sum(weight * token
loss). The weights of an update are normalised together, before any row is run: over all
microbatches, all ranks, and the rows that cannot have a gradient. Accumulation
therefore changes nothing but the order of a float sum.

Probabilities are those of the sampled distribution: the ratio of 002 eq. 10 is taken to
the behaviour policy, which at temperature T is softmax(logits / T). Entropy and KL are
of the same distribution.

Shape suffixes: N response tokens of a microbatch, R rows of an update, V vocabulary.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from agentcli.records.training_settings import Aggregate
from agentcli.training.loop.forward import tempered


class TokenLosses(NamedTuple):
    """The terms of the loss, per token; all (N,)."""

    loss_N: Tensor
    """-surrogate + beta * kl."""
    surrogate_N: Tensor
    """min(ratio * A, clip(ratio) * A)."""
    kl_N: Tensor
    """k3 estimate against the reference; zeros without one."""
    ratio_N: Tensor
    """pi / pi_old at the sampled token."""
    clipped_N: Tensor
    """bool: clipping takes the policy gradient of this token away."""


@torch.no_grad()
def token_entropies(logits_NV: Tensor, temperatures_N: Tensor | None = None) -> Tensor:
    """Entropies (N,) of softmax(logits / T) in nats, in float32, without a gradient.

    Without temperatures, T is 1.
    """
    logprobs_NV = torch.log_softmax(tempered(logits_NV, temperatures_N), dim=-1)
    return -(logprobs_NV.exp() * logprobs_NV).sum(-1)


def k3(logprobs_N: Tensor, reference_N: Tensor) -> Tensor:
    """Estimate of KL(pi || ref) per token from samples of pi, unbiased and never below 0.

    r - 1 - log r, with r = ref / pi.
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
    """The clipped surrogate and the KL penalty of each token (002 eq. 10 and 11).

    `old_N` are the stored log-probabilities of sampling. `reference_N` may be None only
    if beta is 0.
    """
    ratio_N = torch.exp(logprobs_N - old_N)
    clamped_N = ratio_N.clamp(1 - clip, 1 + clip)
    surrogate_N = torch.minimum(ratio_N * advantages_N, clamped_N * advantages_N)
    risen_N = (advantages_N > 0) & (ratio_N > 1 + clip)
    fallen_N = (advantages_N < 0) & (ratio_N < 1 - clip)
    kl_N = torch.zeros_like(logprobs_N)
    if reference_N is not None:
        kl_N = k3(logprobs_N, reference_N)
    loss_N = -surrogate_N
    if beta != 0:
        loss_N = loss_N + beta * kl_N
    return TokenLosses(loss_N, surrogate_N, kl_N, ratio_N, risen_N | fallen_N)


def token_weights(
    aggregate: Aggregate,
    lengths_R: Tensor,
    weights_R: Tensor,
    shares_R: Tensor,
) -> Tensor:
    """Weight of each token of a row in its update, float64 (R,).

    Weight * length sums to 1 over the update. All are 0 when nothing in it has weight.
    """
    lengths_R = lengths_R.double()
    token_weights_R = weights_R.double()
    if aggregate == "step":
        # 002 eq. 11: mean over trajectories of mean over steps of mean over tokens. The
        # share is what a step counts for in its trajectories (`rows.py`).
        token_weights_R = token_weights_R * shares_R.double() / lengths_R
    elif aggregate == "sequence":
        # Mean over rows of mean over tokens.
        token_weights_R = token_weights_R / lengths_R
    # Else token, 003 eq. 2: mean over all tokens.
    total = (token_weights_R * lengths_R).sum()
    if total == 0:
        return torch.zeros_like(token_weights_R)
    return token_weights_R / total


def logprob_gap(trainer_N: Tensor, sampler_N: Tensor) -> dict[str, float]:
    """Distance of the trainer's log-probabilities from the sampler's before training.

    mean, p99 and max of |difference| in nats, and k3, the estimate of KL(sampler ||
    trainer).
    """
    trainer_N = trainer_N.double()
    sampler_N = sampler_N.double()
    distances_N = (trainer_N - sampler_N).abs()
    tokens = distances_N.numel()
    rank = min(tokens - 1, int(0.99 * tokens))
    return {
        "mean": distances_N.mean().item(),
        "p99": distances_N.sort().values[rank].item(),
        "max": distances_N.max().item(),
        "k3": k3(sampler_N, trainer_N).mean().item(),
        "tokens": tokens,
    }
