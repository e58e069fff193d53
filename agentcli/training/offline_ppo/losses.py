"""The actor's loss of Rare-tool section 3.3 as a pure function of tensors.

An action is a whole response: log pi(a|s) is the sum over its tokens, at the
temperature at which it was sampled.

Shape suffix: B actions.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class ActionLosses(NamedTuple):
    """The terms of the loss, per action; all (B,)."""

    loss_B: Tensor
    """-surrogate + beta * squared: the terms of eq. 1, whose sum is minimised."""
    surrogate_B: Tensor
    """min(ratio * A, clip(ratio) * A), L^CLIP."""
    squared_B: Tensor
    """(log pi - log pi_old)^2, eq. 2."""
    ratio_B: Tensor
    """pi / pi_old of the action."""
    clipped_B: Tensor
    """bool: clipping removes the gradient of the surrogate."""


def action_losses(
    logprobs_B: Tensor,
    old_B: Tensor,
    advantages_B: Tensor,
    clip: float,
    beta: float,
) -> ActionLosses:
    """The clipped surrogate with the squared log-ratio as a penalty (Rare-tool eq. 1 and 2).

    The paper prints L^CLIP + beta L_KL, although one term should be large and the other
    small. Here the surrogate is maximised and the penalty is minimised.
    """
    difference_B = logprobs_B - old_B
    ratio_B = difference_B.exp()
    clamped_B = ratio_B.clamp(1 - clip, 1 + clip)
    surrogate_B = torch.minimum(ratio_B * advantages_B, clamped_B * advantages_B)
    risen_B = (advantages_B > 0) & (ratio_B > 1 + clip)
    fallen_B = (advantages_B < 0) & (ratio_B < 1 - clip)
    squared_B = difference_B.square()
    loss_B = beta * squared_B - surrogate_B
    return ActionLosses(loss_B, surrogate_B, squared_B, ratio_B, risen_B | fallen_B)
