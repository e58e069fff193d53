"""Sampling whose result depends on the request, not on the batch.

argmax(logits / T + Gumbel noise) is an exact sample from softmax(logits / T). The noise
is a hash of (request seed, position, token id), so it needs no generator state, is the
same on every device and costs a few vector operations per step. It is used in
`generate` as a logits processor under greedy decoding.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import LogitsProcessor

SMALLEST_TEMPERATURE = 1e-30
"""Replaces any smaller temperature. The quotients stay finite, and either way only the
largest logit can be drawn.
"""
GOLDEN_RATIO = 0x9E3779B97F4A7C15
POSITION_STRIDE = 0xD1342543DE82EF95
"""Odd 64-bit constants that separate token ids from positions."""


def gumbel(seeds_B: Tensor, position: int, vocabulary: int) -> Tensor:
    """Standard Gumbel noise, float32 (B, V), at one position of the response.

    `seeds_B` are int64. Each 64-bit hash gives two columns of 31 bits; small uniform
    numbers, which become large values, keep full precision.
    """
    # Counted from 1: seed 0 at position 0 would be 0, which `_mix` leaves at 0.
    state_B = _mix(seeds_B + _signed((position + 1) * POSITION_STRIDE))
    pairs = (vocabulary + 1) // 2
    pair_P = torch.arange(pairs, device=seeds_B.device) * _signed(GOLDEN_RATIO)
    hash_BP = _mix(state_B[:, None] + pair_P)
    bits_BV = hash_BP.view(torch.int32).bitwise_and_(2**31 - 1)
    # The half keeps u above 0, the bound below 1 where float32 rounds: both logarithms
    # are finite.
    uniform_BV = bits_BV.to(torch.float32).add_(0.5).mul_(2.0**-31)
    uniform_BV.clamp_(max=1 - 2.0**-24)
    # -log(-log(1 - u)), in place, because the vocabulary is large.
    exponential_BV = uniform_BV.neg_().log1p_().neg_()
    noise_BV = exponential_BV.log_().neg_()
    return noise_BV[:, :vocabulary]


def _mix(value: Tensor) -> Tensor:
    """The finaliser of splitmix64, elementwise on int64 with overflow."""
    value = value ^ _shift(value, 30)
    value *= _signed(0xBF58476D1CE4E5B9)
    value ^= _shift(value, 27)
    value *= _signed(0x94D049BB133111EB)
    value ^= _shift(value, 31)
    return value


def _shift(value: Tensor, by: int) -> Tensor:
    """Logical right shift of int64."""
    return (value >> by).bitwise_and_((1 << (64 - by)) - 1)


def _signed(value: int) -> int:
    """The int64 with the same 64-bit pattern."""
    return (value + 2**63) % 2**64 - 2**63


class Sampler(LogitsProcessor):
    """Chooses the tokens of one batch, and keeps their log-probabilities.

    These refer to the distribution that the tokens are drawn from. `seeds` and
    `temperatures` have one entry per real row. Temperature 0 is greedy, with the
    log-probabilities at temperature 1. Further rows are padding and end at once with
    `end`.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        temperatures: Sequence[float],
        end: int,
        device: torch.device,
    ) -> None:
        self._rows = len(seeds)
        self._end = end
        signed_seeds = [_signed(seed) for seed in seeds]
        self._seeds_B = torch.tensor(signed_seeds, device=device)
        drawn = [temperature > 0 for temperature in temperatures]
        self._drawn_B1 = torch.tensor(drawn, device=device)[:, None]
        self._greedy = not any(drawn)
        divisors = []
        for temperature in temperatures:
            # Greedy rows are not tempered.
            divisor = max(temperature, SMALLEST_TEMPERATURE) if temperature > 0 else 1.0
            divisors.append(divisor)
        self._divisors_B1 = torch.tensor(divisors, device=device)[:, None]
        self._divides = any(divisor != 1 for divisor in divisors)
        self._logprobs: list[Tensor] = []
        self._pending_BV: Tensor | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores (B, V) whose argmax `generate` takes, from raw float32 logits."""
        self._settle(input_ids)
        logits_BV = scores[: self._rows]
        tempered_BV = logits_BV
        if self._divides:  # at 1 the quotients would have the same bits
            tempered_BV = logits_BV / self._divisors_B1
        # The token is not chosen here: `generate` takes the argmax, and the next
        # call, or `logprobs`, sees in its ids which one it was.
        self._pending_BV = torch.log_softmax(tempered_BV, dim=-1)
        if not self._greedy:
            noise_BV = gumbel(self._seeds_B, len(self._logprobs), scores.shape[-1])
            noisy_BV = tempered_BV + noise_BV
            scores[: self._rows] = torch.where(self._drawn_B1, noisy_BV, logits_BV)
        # Padding rows end at once, so they never keep a batch going.
        padding = scores[self._rows :]
        padding[:] = 0.0
        padding[:, self._end] = 1.0
        return scores

    def logprobs(self, sequences: Tensor) -> list[list[float]]:
        """Log-probabilities of the generated tokens by real row, rounded to 6 decimals.

        `sequences` is the output of `generate`. Values after the end-of-turn token are
        meaningless.
        """
        self._settle(sequences)
        stacked = torch.stack(self._logprobs, dim=1).double().cpu().tolist()
        return [[round(value, 6) for value in row] for row in stacked]

    def _settle(self, ids: Tensor) -> None:
        """Looks up the token that was chosen from the latest distribution."""
        if self._pending_BV is not None:
            chosen_B1 = ids[: self._rows, -1:]
            logprobs_B1 = self._pending_BV.gather(-1, chosen_B1)
            self._logprobs.append(logprobs_B1[:, 0])
            self._pending_BV = None
