"""transformers.Trainer with the loss of a process reward model."""

from typing import Any

from torch import Tensor
from transformers import TrainingArguments

from agentcli.training.critic.batches import critic_tensors
from agentcli.training.critic.losses import (
    explained_variance,
    value_losses,
    value_sums,
)
from agentcli.training.critic.model import state_values
from agentcli.training.loop.forward import pad_rows
from agentcli.training.loop.microbatches import Microbatches
from agentcli.training.loop.recorder import Recorder
from agentcli.training.loop.trainer import (
    PlannedTrainer,
    RunningFigures,
    TrainerUpdate,
)
from agentcli.training.policy_gradient.batches import Part, UpdatePlan, microbatches
from agentcli.training.process_reward.objective import ProcessRewardMetrics


class ProcessRewardTrainer(PlannedTrainer):
    """Runs a plan whose rows have a target."""

    recorder: Recorder[ProcessRewardMetrics]
    remedy = "lower train.learning_rate"
    shown = ("loss", "explained_variance")

    def __init__(
        self, model: Any, args: TrainingArguments, plan: UpdatePlan, pad: int
    ) -> None:
        self._plan = plan
        self._pad = pad
        self._sums = RunningFigures(args.device)
        super().__init__(model=model, args=args, train_dataset=self.microbatches(0))

    def microbatches(self, done: int) -> Microbatches[Part]:
        """This rank's planned microbatches that are not done."""
        return microbatches(self._plan, done, self._collate)

    def _collate(self, part: Part) -> dict[str, Tensor]:
        """The tensors of one microbatch."""
        update, rows = part
        members = rows or [next(iter(update.weights))]
        texts = self._plan.tokens.prompts
        ids_BT, _ = pad_rows([(texts[row], []) for row in members], self._pad)
        return {"ids_BT": ids_BT, **critic_tensors(self._plan, part)}

    def compute_loss(
        self, model: Any, inputs: dict[str, Tensor], *_: Any, **__: Any
    ) -> Tensor:
        """This microbatch's share of the mean squared error."""
        scores_B = state_values(model, inputs["ids_BT"], inputs["last_B"])
        targets_B = inputs["returns_B"]
        losses_B = value_losses(scores_B, targets_B)
        loss = (inputs["value_weights_B"] * losses_B).sum()
        self._sums.add(
            loss=loss.detach().double(),
            **value_sums(scores_B.detach(), targets_B, inputs["present_B"]),
        )
        return loss * self._plan.processes.size  # DDP averages gradients

    def line(self, latest: TrainerUpdate) -> ProcessRewardMetrics:
        """The metrics line of an update."""
        sums = self._sums.take(self._plan.processes)
        return ProcessRewardMetrics(
            update=latest.update,
            epoch=self._plan.updates[latest.update - 1].epoch,
            loss=sums["loss"],
            explained_variance=explained_variance(sums),
            target_mean=sums["returns"] / sums["values"],
            grad_norm=latest.grad_norm,
            learning_rate=latest.learning_rate,
            seconds=self.recorder.seconds(),
        )
