"""The critic's inputs for the rows of a policy's plan: states, targets and old values.

Shape suffixes: B rows of a microbatch, T padded length, R all rows.
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
