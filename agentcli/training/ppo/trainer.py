"""The policy-gradient trainer extended by a critic."""

from typing import Any

from torch import Tensor
from transformers import TrainingArguments

from agentcli.records.training_settings import TrainSettings
from agentcli.training.critic.batches import critic_tensors
from agentcli.training.critic.losses import (
    explained_variance,
    value_losses,
    value_sums,
)
from agentcli.training.critic.pair import ActorCritic, Appraising, ClippedApart
from agentcli.training.loop.trainer import RunningFigures, TrainerUpdate
from agentcli.training.policy_gradient.batches import Part, UpdatePlan
from agentcli.training.policy_gradient.trainer import PolicyTrainer
from agentcli.training.ppo.objective import PpoMetrics, PpoOptions


class PpoTrainer(PolicyTrainer):
    """Runs a plan for policy and critic."""

    finite = ("loss", "ratio_max", "value_loss")
    shown = ("loss", "entropy", "value_loss", "explained_variance")

    def __init__(
        self,
        pair: ActorCritic,
        args: TrainingArguments,
        plan: UpdatePlan,
        pad: int,
        settings: TrainSettings,
        options: PpoOptions,
    ) -> None:
        super().__init__(pair, args, plan, pad, settings)
        self._value_clip = options.value_clip
        self._value_sums = RunningFigures(args.device)
        self._clipped = ClippedApart(pair, settings.max_grad_norm)
        self.add_callback(self._clipped)

    def collate(self, part: Part) -> dict[str, Tensor]:
        """The tensors of a policy-gradient microbatch, and those of the critic."""
        return super().collate(part) | critic_tensors(self._plan, part)

    def compute_loss(
        self, model: Any, inputs: dict[str, Tensor], *_: Any, **__: Any
    ) -> Tensor:
        """This microbatch's share of the losses of policy and critic."""
        appraising = Appraising(model, inputs["last_B"])
        policy_loss = super().compute_loss(appraising, inputs)
        losses_B = value_losses(
            appraising.values_B,
            inputs["returns_B"],
            inputs["old_values_B"],
            self._value_clip,
        )
        value_loss = (inputs["value_weights_B"] * losses_B).sum()
        values_B = appraising.values_B.detach()
        self._value_sums.add(
            loss=value_loss.detach().double(),
            **value_sums(values_B, inputs["returns_B"], inputs["present_B"]),
        )
        return policy_loss + value_loss * self._plan.processes.size

    def line(self, latest: TrainerUpdate) -> PpoMetrics:
        """The metrics line of an update."""
        norms = self._clipped.norms
        policy = self.figures(latest._replace(grad_norm=norms["actor"]))
        sums = self._value_sums.take(self._plan.processes)
        return PpoMetrics(
            **policy,
            value_loss=sums["loss"],
            explained_variance=explained_variance(sums),
            return_mean=sums["returns"] / sums["values"],
            critic_grad_norm=norms["critic"],
            seconds=self.recorder.seconds(),
        )
