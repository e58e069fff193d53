"""SkyRL's trainer with the credit of agentcli: an estimator for every method.

    python skyrl_advantages.py trainer.algorithm.advantage_estimator=agentcli/rewardflow ...

starts SkyRL's own entry point, with estimators registered as agentcli/METHOD and the
trainer below. A run of 1 in SkyRL's loss mask is a step (several turns in one row:
generator.step_wise_trajectories=false), and a prompt's `uid` is the group. Fill in
SWITCHES for other switches than the method's own.

State keys and the other lists of agentcli.credit.lists.Rollouts travel in the metrics of
the environment: `get_metrics` returns {"agentcli": {"states": [...], "success": True}}
beside what it measures. SkyRL's estimators are not given them, so the trainer puts them
at hand.

Run with skyrl 0.4.0 on a CPU (in Python 3.11, with the TypedDict of typing_extensions):
the registry, and the trainer's own compute_advantages_and_returns. Not run: a training.
"""

import sys
from contextvars import ContextVar
from typing import Any

import ray
import torch
from skyrl.backends.skyrl_train.utils.ppo_utils import register_advantage_estimator
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.entrypoints.main_base import BasePPOExp
from skyrl.train.trainer import RayPPOTrainer
from skyrl.train.utils import validate_cfg
from skyrl.train.utils.utils import initialize_ray

from agentcli import token_advantages
from agentcli.credit.lists import Rollouts
from agentcli.credit.registry import METHODS

SWITCHES: dict[str, Any] = {}
"""Switches of the method, for instance {"gamma": 0.9}."""
CARRIED: ContextVar[Any] = ContextVar("carried", default=None)
"""SkyRL's batch whose advantages are computed."""


def register(method: str) -> None:
    """Registers the estimator agentcli/METHOD."""

    @register_advantage_estimator(f"agentcli/{method}")
    def estimate(
        token_level_rewards: torch.Tensor,
        response_mask: torch.Tensor,
        index: Any,
        **_: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Advantages and returns, both (rollouts, tokens)."""
        batch = CARRIED.get()
        masks, lists, padding = response_mask, {}, 0
        if batch is not None:
            masks = batch["loss_mask"]
            padding = batch.metadata.get("pad_size", 0)
            lists = carried(batch.metadata.get("agentcli", []))
        # Rows that only fill up the batch come last.
        count = len(masks) - padding
        lists["groups"] = [str(uid) for uid in index[:count]]
        lists["rewards"] = token_level_rewards[:count].sum(-1).tolist()
        advantages = torch.zeros_like(token_level_rewards)
        values = token_advantages(
            masks[:count].long().tolist(), lists, method, **SWITCHES
        )
        advantages[:count] = torch.tensor(values)
        return advantages, advantages


def carried(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """The lists of Rollouts that every row has."""
    lists = {}
    for name in Rollouts.__struct_fields__:
        column = [row[name] for row in rows if name in row]
        if rows and len(column) == len(rows):
            lists[name] = column
    return lists


for name in METHODS:
    register(name)


class CreditRayTrainer(RayPPOTrainer):
    """SkyRL's trainer, with the lists of the environment at hand."""

    def convert_to_training_input(self, generator_output: Any, uids: list[str]) -> Any:
        batch = super().convert_to_training_input(generator_output, uids)
        metrics = generator_output.get("env_metrics") or []
        batch.metadata["agentcli"] = [row.get("agentcli", {}) for row in metrics]
        return batch

    def compute_advantages_and_returns(self, data: Any) -> Any:
        token = CARRIED.set(data)
        try:
            return super().compute_advantages_and_returns(data)
        finally:
            CARRIED.reset(token)


class CreditExp(BasePPOExp):
    """SkyRL's experiment with that trainer."""

    def get_trainer(self, *args: Any, **kwargs: Any) -> RayPPOTrainer:
        return CreditRayTrainer(*args, **kwargs)


@ray.remote(num_cpus=1)
def train(config: SkyRLTrainConfig) -> None:
    CreditExp(config).run()


if __name__ == "__main__":
    config = SkyRLTrainConfig.from_cli_overrides(sys.argv[1:])
    validate_cfg(config)
    initialize_ray(config)
    ray.get(train.remote(config))
