"""The losses and metrics of a critic as pure functions of tensors.

Shape suffixes: B rows of a microbatch.
"""

import torch
from torch import Tensor


def value_losses(
    values_B: Tensor,
    returns_B: Tensor,
    old_B: Tensor | None = None,
    clip: float | None = None,
) -> Tensor:
    """(V - R)^2 of each row (Rare-tool section 3.3).

    With `clip`, the larger of this and (V' - R)^2, where V' is V clipped to within
    `clip` of `old_B`, the value before training. A value that has already moved further
    than that towards R has no gradient.
    """
    errors_B = (values_B - returns_B).square()
    if clip is None or old_B is None:
        return errors_B
    held_B = old_B + (values_B - old_B).clamp(-clip, clip)
    return torch.maximum(errors_B, (held_B - returns_B).square())


def explained_variance(sums: dict[str, float]) -> float:
    """1 - Var(R - V) / Var(R) from the given sums; 0 if all R are equal.

    The sums are values (a count), returns, returns_squared, errors and errors_squared,
    where an error is R - V.
    """
    count = sums["values"]
    spread = sums["returns_squared"] / count - (sums["returns"] / count) ** 2
    left = sums["errors_squared"] / count - (sums["errors"] / count) ** 2
    # If the variance is only rounding error, there is nothing to explain.
    return 1 - left / spread if spread > 1e-12 else 0.0


def value_sums(
    values_B: Tensor, returns_B: Tensor, counted_B: Tensor
) -> dict[str, Tensor]:
    """The sums for `explained_variance` over one microbatch, in float64."""
    counted_B = counted_B.double()
    returns_B = returns_B.double()
    errors_B = returns_B - values_B.double()
    return {
        "values": counted_B.sum(),
        "returns": (counted_B * returns_B).sum(),
        "returns_squared": (counted_B * returns_B.square()).sum(),
        "errors": (counted_B * errors_B).sum(),
        "errors_squared": (counted_B * errors_B.square()).sum(),
    }
