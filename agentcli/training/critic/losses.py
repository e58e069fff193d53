"""The critic's inputs for the rows of a policy's plan, its losses and its metrics.

The losses are pure functions of tensors. Shape suffixes: B rows of a microbatch, T
padded length, R all rows.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from agentcli.training.critic.model import state_values
from agentcli.training.loop.distributed import sum_over_ranks
from agentcli.training.loop.forward import pad_rows, precision, scoring
from agentcli.training.objectives import RETURN
from agentcli.training.policy_gradient.batches import Part, UpdatePlan, members_of


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


VALUE = "value"
"""The part of a credit with V(s) before training."""


def critic_tensors(plan: UpdatePlan, part: Part) -> dict[str, Tensor]:
    """The critic's tensors of one microbatch.

    last_B is the position of the last token of each prompt, returns_B the target,
    old_values_B the value before training, value_weights_B the share of each row in the
    mean of the update, and present_B is 0 if the row only fills an empty microbatch.
    """
    update, _ = part
    members, counted = members_of(part)
    total = sum(plan.rows[row].weight for row in update.weights)
    chosen = [plan.rows[row] for row in members]
    last = [len(plan.tokens.prompts[row]) - 1 for row in members]
    returns = [row.parts[RETURN] for row in chosen]
    values = [row.parts.get(VALUE, 0.0) for row in chosen]
    shares = [counted * row.weight / total for row in chosen]
    return {
        "last_B": torch.tensor(last),
        "returns_B": torch.tensor(returns, dtype=torch.float32),
        "old_values_B": torch.tensor(values, dtype=torch.float32),
        "value_weights_B": torch.tensor(shares, dtype=torch.float32),
        "present_B": torch.full((len(members),), counted),
    }


def values_of(
    critic: Any,
    plan: UpdatePlan,
    pad: int,
    device: torch.device,
    bf16: bool | None,
) -> Sequence[float]:
    """V of every row's prompt, without dropout; each rank computes its share."""
    prompts = plan.tokens.prompts
    processes = plan.processes
    values_R = torch.zeros(len(prompts))
    chunks = plan.tokens.chunks(range(len(prompts)), plan.limit)
    with scoring(critic), precision(device, bf16):
        for chunk in chunks[processes.rank :: processes.size]:
            ids_BT, _ = pad_rows([(prompts[row], []) for row in chunk], pad)
            last_B = torch.tensor([len(prompts[row]) - 1 for row in chunk])
            values_B = state_values(critic, ids_BT.to(device), last_B.to(device))
            values_R[chunk] = values_B.cpu()
    values: list[float] = sum_over_ranks(values_R.to(device), processes).tolist()
    return values
