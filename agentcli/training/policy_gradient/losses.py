"""The policy-gradient loss as pure functions of tensors, without a trainer.

Every aggregation is a weight per token: the loss of an update is sum(weight * token
loss). The weights of an update are normalised together before any row is run: over all
microbatches, all ranks, and the rows that cannot have a gradient. Gradient accumulation
therefore changes only the order of a floating-point sum.

Probabilities are those of the sampling distribution: the ratio of RewardFlow eq. 10 is
relative to the behaviour policy, which at temperature T is softmax(logits / T). Entropy
and KL use the same distribution.

Shape suffixes: N response tokens of a microbatch, B its rows, R rows of an update, V
vocabulary.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from agentcli.records.training_settings import Aggregate, TrainSettings
from agentcli.training.loop.forward import Look, part_of, tempered

LARGEST = 80.0
"""Of a log-ratio that is clipped: float32 holds exp(88) at most."""


class TokenLosses(NamedTuple):
    """The terms of the loss, per token; all (N,)."""

    loss_N: Tensor
    """-surrogate + beta * kl."""
    surrogate_N: Tensor
    """min(ratio * A, clip(ratio) * A), with the bounds and weights of the settings."""
    kl_N: Tensor
    """k3 estimate of the KL to the reference; zeros without a reference."""
    ratio_N: Tensor
    """pi / pi_old at the sampled token, or of its response (train.ratio)."""
    clipped_N: Tensor
    """bool: clipping removes the policy gradient of this token."""


@torch.no_grad()
def token_entropies(logits_NV: Tensor, temperatures_N: Tensor | None = None) -> Tensor:
    """Entropies (N,) of softmax(logits / T) in nats, in float32, without a gradient.

    Without temperatures, T is 1.
    """
    logprobs_NV = torch.log_softmax(tempered(logits_NV, temperatures_N), dim=-1)
    return -(logprobs_NV.exp() * logprobs_NV).sum(-1)


def entropies_look(temperatures_N: Tensor | None) -> Look:
    """A look of `target_scores` at the entropies of the tokens."""

    def look(logits_nV: Tensor, part: slice) -> Tensor:
        return token_entropies(logits_nV, part_of(temperatures_N, part))

    return look


def k3(logprobs_N: Tensor, reference_N: Tensor) -> Tensor:
    """Unbiased, non-negative estimate of KL(pi || ref) per token from samples of pi.

    r - 1 - log r, with r = ref / pi.
    """
    # k3 of Schulman 2020 ("Approximating KL Divergence"). Near 0, where policy and
    # reference agree, exp(x) - 1 would lose all digits; expm1 does not.
    difference_N = reference_N - logprobs_N
    return torch.expm1(difference_N) - difference_N


def measured_k3(logprobs_N: Tensor, reference_N: Tensor) -> Tensor:
    """k3 for a report, at most 1e30 a token: JSON has no infinity."""
    return k3(logprobs_N, reference_N).clamp(max=1e30)


def row_sums(values_N: Tensor, lengths_B: Tensor) -> Tensor:
    """Sums (B,) over the response tokens of each row, which has `lengths_B` of them."""
    rows_N = torch.arange(len(lengths_B), device=lengths_B.device)
    rows_N = rows_N.repeat_interleave(lengths_B)
    sums_B = torch.zeros(len(lengths_B), dtype=values_N.dtype, device=values_N.device)
    return sums_B.index_add(0, rows_N, values_N)


def token_losses(
    logprobs_N: Tensor,
    batch: Mapping[str, Tensor],
    settings: TrainSettings,
) -> TokenLosses:
    """The clipped surrogate and the KL penalty of each token (RewardFlow eq. 10 and 11).

    The batch has old_N, the denominator of the ratio, and advantages_N; reference_N if
    beta is not 0; lengths_B, the tokens of each row, for a ratio of sequences; and
    sampled_N, the sampler's log-probabilities, for importance weights.
    """
    old_N = batch["old_N"]
    advantages_N = batch["advantages_N"]
    ratio_N = _ratios(logprobs_N - old_N, batch, settings)
    low = 1 - settings.clip
    # DAPO eq. 10: a bound of its own, since an unlikely token needs room to grow.
    high = 1 + (settings.clip_high or settings.clip)
    clamped_N = ratio_N.clamp(low, high)
    # The lower bound of Schulman et al. 2017, eq. 7.
    surrogate_N = torch.minimum(ratio_N * advantages_N, clamped_N * advantages_N)
    # Elsewhere the minimum is the unclipped term, which keeps its gradient.
    risen_N = (advantages_N > 0) & (ratio_N > high)
    fallen_N = (advantages_N < 0) & (ratio_N < low)
    clipped_N = risen_N | fallen_N
    if settings.dual_clip is not None:
        # Dual clip of Ye et al. 2020: max(min(r A, clip(r) A), c A) where A < 0.
        floor_N = settings.dual_clip * advantages_N
        bounded_N = (advantages_N < 0) & (surrogate_N < floor_N)
        surrogate_N = torch.where(bounded_N, floor_N, surrogate_N)
        clipped_N = clipped_N | bounded_N
    if settings.importance_cap is not None:
        # Not the ratio of this update: it has no gradient, and is clipped only above.
        weights_N = torch.exp(old_N - batch["sampled_N"])
        surrogate_N = surrogate_N * weights_N.clamp(max=settings.importance_cap)
    kl_N = torch.zeros_like(logprobs_N)
    if "reference_N" in batch:
        kl_N = k3(logprobs_N, batch["reference_N"])
    loss_N = -surrogate_N
    if settings.beta != 0:
        loss_N = loss_N + settings.beta * kl_N
    return TokenLosses(loss_N, surrogate_N, kl_N, ratio_N, clipped_N)


def _ratios(
    differences_N: Tensor, batch: Mapping[str, Tensor], settings: TrainSettings
) -> Tensor:
    """pi / pi_old (N,) from log pi - log pi_old, by token or by response (GSPO eq. 7)."""
    advantages_N = batch["advantages_N"]
    bounded = settings.dual_clip is not None
    if settings.ratio == "token":
        return bounded_ratios(differences_N, advantages_N, bounded)
    lengths_B = batch["lengths_B"]
    # The mean and not the sum, or long responses would leave the clip range by
    # their length alone.
    means_B = row_sums(differences_N, lengths_B) / lengths_B
    # A response has one advantage, on each of its tokens.
    advantages_B = advantages_N[lengths_B.cumsum(0) - lengths_B]
    return bounded_ratios(means_B, advantages_B, bounded).repeat_interleave(lengths_B)


def bounded_ratios(
    differences: Tensor, advantages: Tensor, bounded: bool = False
) -> Tensor:
    """pi / pi_old from log pi - log pi_old.

    Far above the clip range the surrogate is constant, if the advantage is not negative
    or a dual clip bounds it. There the ratio is at most exp(LARGEST) and has no gradient:
    an infinite ratio would turn that gradient of 0 into NaN.
    """
    constant = differences > LARGEST
    if not bounded:
        constant &= advantages >= 0
    limits = differences.detach().clamp(max=LARGEST)
    return torch.where(constant, limits, differences).exp()


def token_weights(
    aggregate: Aggregate,
    lengths_R: Tensor,
    weights_R: Tensor,
    shares_R: Tensor,
) -> Tensor:
    """Weight of each token of a row in its update, float64 (R,).

    The sum of weight * length over the update is 1. If no row has weight, all are 0.
    """
    lengths_R = lengths_R.double()
    token_weights_R = weights_R.double()
    if aggregate == "step":
        # RewardFlow eq. 11: mean over trajectories of mean over steps of mean over
        # tokens. The share is the weight of a step in its trajectories (`steps.py`).
        token_weights_R = token_weights_R * shares_R.double() / lengths_R
    elif aggregate == "sequence":
        # Mean over rows of mean over tokens.
        token_weights_R = token_weights_R / lengths_R
    # Otherwise token, CARL eq. 2: mean over all tokens.
    total = (token_weights_R * lengths_R).sum()
    if total == 0:
        return torch.zeros_like(token_weights_R)
    return token_weights_R / total


def logprob_gap(trainer_N: Tensor, sampler_N: Tensor) -> dict[str, float]:
    """Compares the trainer's log-probabilities with the sampler's before training.

    mean, p99 and max of |difference| in nats, and k3, the estimate of KL(sampler ||
    trainer).
    """
    trainer_N = trainer_N.double()
    sampler_N = sampler_N.double()
    distances_N = (trainer_N - sampler_N).abs()
    tokens = distances_N.numel()
    # torch.quantile refuses more than 2^24 values.
    rank = min(tokens - 1, int(0.99 * tokens))
    return {
        "mean": distances_N.mean().item(),
        "p99": distances_N.sort().values[rank].item(),
        "max": distances_N.max().item(),
        "k3": measured_k3(sampler_N, trainer_N).mean().item(),
        "tokens": tokens,
    }
