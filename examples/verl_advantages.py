"""verl's PPO trainer with the credit of agentcli: an estimator for every method.

Put this file on PYTHONPATH, and name it to verl:

    VERL_USE_EXTERNAL_MODULES=verl_advantages python -m verl.trainer.main_ppo \\
        algorithm.adv_estimator=agentcli/rewardflow \\
        trainer.v1.trainer_mode=agentcli \\
        +algorithm.agentcli.gamma=0.9 ...

The estimators are registered as agentcli/METHOD; `algorithm.agentcli` has the method's
switches. A run of 1 in verl's response mask is a step, and `uid` is the group.

State keys and the other lists of agentcli.credit.lists.Rollouts travel in the
`extra_fields` that an agent loop returns (`states`, `next_states`, `success`, ...),
which verl's estimators are not given. The trainer mode `agentcli` is verl's `sync`
with these fields at hand; methods that need none (grpo, rloo, ...) work in every mode.
An agent loop with several outputs a session has one rollout an output.

Run with verl 0.9.1 on a CPU: the registry, compute_advantage and, with Ray and
TransferQueue, the trainer's own _compute_advantage. Not run: a training.
"""

from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
import transfer_queue
from verl.trainer.ppo.core_algos import register_adv_est
from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer

from agentcli import token_advantages
from agentcli.credit.lists import Rollouts
from agentcli.credit.registry import METHODS

CARRIED: ContextVar[dict[str, list[Any]] | None] = ContextVar("carried", default=None)
"""The lists of the batch whose advantages are computed, by the names of Rollouts."""


def carried(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """The lists of Rollouts that every row has, of the extra fields of rows."""
    lists = {}
    for name in Rollouts.__struct_fields__:
        column = [row[name] for row in rows if name in row]
        if len(column) == len(rows):
            lists[name] = column
    return lists


def estimate(
    method: str,
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: Any,
    config: Any = None,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """verl's adv_estimator: advantages and returns, both (rollouts, tokens)."""
    lists = {
        "groups": [str(uid) for uid in index],
        "rewards": token_level_rewards.sum(-1).tolist(),
        **(CARRIED.get() or {}),
    }
    switches = (config or {}).get("agentcli") or {}
    masks = response_mask.long().tolist()
    values = token_advantages(masks, lists, method, **switches)
    advantages = torch.tensor(values, device=response_mask.device)
    return advantages, advantages


for name in METHODS:
    register_adv_est(f"agentcli/{name}")(partial(estimate, name))


@register_trainer("agentcli")
class CreditPPOTrainer(PPOTrainerSync):
    """verl's synchronous trainer, with the agent loop's extra fields at hand."""

    def __init__(self, config: Any) -> None:
        # verl asks in several places whether its mode is sync, by this name.
        config.trainer.v1.trainer_mode = "sync"
        super().__init__(config)

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        data = transfer_queue.kv_batch_get(
            keys=batch.keys,
            partition_id=batch.partition_id,
            select_fields=["extra_fields"],
        )
        token = CARRIED.set(carried(data.pop("extra_fields").tolist()))
        try:
            return super()._compute_advantage(batch, metrics)
        finally:
            CARRIED.reset(token)
