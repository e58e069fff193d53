"""transformers.Trainer with the losses of offline PPO and its early stop.

A stopped epoch skips whole updates of the plan. Updates keep their numbers in the plan,
so that a resumed training finds its place. Batches name their rows, and old values are
looked up when the loss is computed: the data loader fetches one batch ahead, which may
belong to the next epoch.
"""

from typing import Any

import torch
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
from agentcli.training.loop.forward import target_scores
from agentcli.training.loop.microbatches import Microbatches
from agentcli.training.loop.recorder import Recorder
from agentcli.training.loop.trainer import PlannedTrainer, RunningFigures, TrainerUpdate
from agentcli.training.offline_ppo.appraisal import Appraisal
from agentcli.training.offline_ppo.losses import ActionLosses, action_losses
from agentcli.training.offline_ppo.objective import OfflinePpoMetrics, OfflinePpoOptions
from agentcli.training.policy_gradient.batches import (
    Part,
    UpdatePlan,
    collate,
    members_of,
    microbatches,
)
from agentcli.training.policy_gradient.losses import entropies_look, row_sums

STOPPED = "stopped epochs"
"""A counter that survives a kill: epochs up to the last one that was stopped early."""


class OfflinePpoTrainer(PlannedTrainer):
    """Runs a plan whose old values have been computed."""

    recorder: Recorder[OfflinePpoMetrics]
    remedy = "lower train.learning_rate or train.options.critic_learning_rate"
    finite = ("loss", "squared_log_ratio", "value_loss")
    shown = ("loss", "squared_log_ratio", "value_loss")

    def __init__(
        self,
        pair: ActorCritic,
        args: TrainingArguments,
        plan: UpdatePlan,
        appraisal: Appraisal,
        pad: int,
        settings: TrainSettings,
        options: OfflinePpoOptions,
    ) -> None:
        self._plan = plan
        self._appraisal = appraisal
        self._pad = pad
        self._clip = settings.clip
        self._options = options
        self._fetched: int | None = None
        """Number of the update whose microbatches were fetched last."""
        self._sums = RunningFigures(args.device)
        super().__init__(model=pair, args=args, train_dataset=self.microbatches(0))
        self._clipped = ClippedApart(pair, settings.max_grad_norm)
        self.add_callback(self._clipped)

    def microbatches(self, done: int) -> Microbatches[Part]:
        """This rank's planned microbatches that are not done."""
        return microbatches(self._plan, done, self._collate)

    def _collate(self, part: Part) -> dict[str, Tensor]:
        """The tensors of one microbatch."""
        members, _ = members_of(part)
        return {
            **collate(self._plan, self._pad, part),
            **critic_tensors(self._plan, part),
            "members_B": torch.tensor(members),
        }

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> tuple[list[Any], Any]:
        """The microbatches of the next update whose epoch has not been stopped."""
        while True:
            batches, items = super().get_batch_samples(*args, **kwargs)
            if not batches:
                return batches, items
            place = self.recorder.done if self._fetched is None else self._fetched
            self._fetched = place + 1
            epoch = self._plan.updates[place].epoch
            if epoch < self.recorder.counters.get(STOPPED, 0):
                continue
            if self._options.old == "epoch" and epoch > self._appraisal.epoch:
                self._appraisal.begin(epoch)
            return batches, items

    def update_number(self) -> int:
        """The number of the latest update in the plan."""
        assert self._fetched is not None
        return self._fetched

    def compute_loss(
        self, model: Any, inputs: dict[str, Tensor], *_: Any, **__: Any
    ) -> Tensor:
        """This microbatch's share of the losses of actor and critic."""
        appraising = Appraising(model, inputs["last_B"])
        temperatures_N = inputs.get("temperature_N")
        looks = [entropies_look(temperatures_N)]
        scores = target_scores(appraising, inputs, temperatures_N, looks)
        logprobs_N, (entropies_N,) = scores
        lengths_B = inputs["lengths_B"]
        members = inputs["members_B"].tolist()
        old_N = self._appraisal.old_logprobs(members).to(logprobs_N.device)
        advantages_B = self._appraisal.advantages(members).to(logprobs_N.device)
        losses = action_losses(
            logprobs_B=row_sums(logprobs_N, lengths_B),
            old_B=row_sums(old_N, lengths_B),
            advantages_B=advantages_B,
            clip=self._clip,
            beta=self._options.beta,
        )
        values_B = appraising.values_B
        value_losses_B = value_losses(values_B, inputs["returns_B"])
        weights_B = inputs["value_weights_B"]
        inputs["advantages_B"] = advantages_B
        self._record(losses, value_losses_B, values_B.detach(), entropies_N, inputs)
        loss = (weights_B * (losses.loss_B + value_losses_B)).sum()
        return loss * self._plan.processes.size  # DDP averages gradients

    @torch.no_grad()
    def _record(
        self,
        losses: ActionLosses,
        value_losses_B: Tensor,
        values_B: Tensor,
        entropies_N: Tensor,
        inputs: dict[str, Tensor],
    ) -> None:
        """Adds one microbatch to the running metrics."""
        weights_B = inputs["value_weights_B"].double()
        counted_N = inputs["counted_N"].double()
        self._sums.add(
            loss=(weights_B * losses.loss_B).sum(),
            surrogate=(weights_B * losses.surrogate_B).sum(),
            squared=(weights_B * losses.squared_B).sum(),
            clipped=(weights_B * losses.clipped_B).sum(),
            ratio=(weights_B * losses.ratio_B).sum(),
            advantage=(weights_B * inputs["advantages_B"]).sum(),
            value_loss=(weights_B * value_losses_B).sum(),
            entropy=(counted_N * entropies_N).sum(),
            tokens=counted_N.sum(),
            rows=inputs["rows_1"].sum().double(),
            **value_sums(values_B, inputs["returns_B"], inputs["present_B"]),
        )

    def line(self, latest: TrainerUpdate) -> OfflinePpoMetrics:
        """The metrics line of an update; ends the epoch if the update went too far."""
        epoch = self._plan.updates[latest.update - 1].epoch
        sums = self._sums.take(self._plan.processes)
        stopped = sums["squared"] > self._options.stop_at
        if stopped:
            self.recorder.counters[STOPPED] = epoch + 1
        return OfflinePpoMetrics(
            update=latest.update,
            epoch=epoch,
            loss=sums["loss"],
            surrogate=sums["surrogate"],
            squared_log_ratio=sums["squared"],
            entropy=sums["entropy"] / sums["tokens"],
            clip_fraction=sums["clipped"],
            ratio_mean=sums["ratio"],
            value_loss=sums["value_loss"],
            explained_variance=explained_variance(sums),
            return_mean=sums["returns"] / sums["values"],
            advantage_mean=sums["advantage"],
            stopped=stopped,
            grad_norm=self._clipped.norms["actor"],
            critic_grad_norm=self._clipped.norms["critic"],
            learning_rate=latest.learning_rate,
            rows=int(sums["rows"]),
            tokens=int(sums["tokens"]),
            seconds=self.recorder.seconds(),
        )
