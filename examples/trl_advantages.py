"""TRL's GRPOTrainer with the credit of agentcli: one advantage a token, not one a completion.

A `rollout_func` (or an environment) plays whole episodes into one completion. It returns
`env_mask` (1 for sampled tokens, 0 for texts of the environment; a run of 1 is a step)
and, for methods that need them, the lists of agentcli.credit.lists.Rollouts that it has
of every episode: `success`, `states`, `next_states`, `actions`, ...

    trainer = CreditTrainer(..., rollout_func=play, credit="rewardflow")

Rewards are those of TRL's reward functions, summed with their weights. Run with trl
1.16.0: tests/test_trl_example.py, and trl_corridor.py beside this file.
"""

from typing import Any

import torch
from accelerate.utils import gather_object
from trl import GRPOTrainer

from agentcli import token_advantages
from agentcli.credit.lists import Rollouts


class CreditTrainer(GRPOTrainer):
    """GRPO whose advantages are those of `agentcli assign-credit --method CREDIT`."""

    def __init__(
        self,
        *args: Any,
        credit: str = "rewardflow",
        switches: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.credit = credit
        self.switches = switches or {}

    def _calculate_rewards(self, *args: Any) -> torch.Tensor:
        """TRL's rewards, (rollouts of all processes, reward functions), kept for below."""
        self.rewards = super()._calculate_rewards(*args)
        return self.rewards

    def _generate_and_score_completions(
        self, inputs: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """TRL's batch of this process, with advantages (completions, tokens)."""
        batch = super()._generate_and_score_completions(inputs)
        mask = batch["completion_mask"]
        if "tool_mask" in batch:
            mask = mask * batch["tool_mask"]
        # Groups may lie in several processes. TRL has put what the rollout function
        # returned into the inputs.
        masks = gather_object(mask.tolist())
        size = (
            self.num_generations if self.model.training else self.num_generations_eval
        )
        lists = {
            "groups": [row // size for row in range(len(masks))],
            "rewards": [self._reward(row) for row in self.rewards],
        }
        for name in Rollouts.__struct_fields__:
            if name in inputs[0]:
                lists[name] = gather_object([one[name] for one in inputs])
        advantages = token_advantages(masks, lists, self.credit, **self.switches)
        first = self.accelerator.process_index * len(inputs)
        mine = advantages[first : first + len(inputs)]
        batch["advantages"] = torch.tensor(mine, device=mask.device)
        return batch

    def _reward(self, row: torch.Tensor) -> float | None:
        """The weighted reward; None, as in TRL, where no function gave any."""
        if row.isnan().all():
            return None
        return (row * self.reward_weights.to(row.device)).nansum().item()
