"""transformers.Trainer with the policy-gradient loss."""

from statistics import fmean, pstdev
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers import TrainingArguments

from agentcli.records.training_settings import TrainSettings
from agentcli.training.loop.forward import head_dtype, logprobs_look, target_scores
from agentcli.training.loop.metrics import MetricsLine
from agentcli.training.loop.microbatches import Microbatches
from agentcli.training.loop.recorder import Recorder
from agentcli.training.loop.trainer import PlannedTrainer, RunningFigures, TrainerUpdate
from agentcli.training.policy_gradient.batches import (
    Part,
    UpdatePlan,
    collate,
    microbatches,
)
from agentcli.training.policy_gradient.losses import (
    TokenLosses,
    entropies_look,
    k3,
    token_losses,
)
from agentcli.training.policy_gradient.objective import TrainMetrics


class PolicyTrainer(PlannedTrainer):
    """Runs a plan.

    The plan's weights include all normalisation, so nothing here divides by a count.
    """

    recorder: Recorder[Any]
    remedy = (
        "lower train.learning_rate, or set train.recompute_logprobs=true if the "
        "sampler's are wrong"
    )
    finite: ClassVar[tuple[str, ...]] = ("loss", "ratio_max")
    shown: ClassVar[tuple[str, ...]] = ("loss", "entropy", "clip_fraction")

    def __init__(
        self,
        model: Any,
        args: TrainingArguments,
        plan: UpdatePlan,
        pad: int,
        settings: TrainSettings,
    ) -> None:
        self._plan = plan
        self._pad = pad
        super().__init__(model=model, args=args, train_dataset=self.microbatches(0))
        self._settings = settings
        self._sums = RunningFigures(args.device)
        self._maxima = RunningFigures(args.device, maximum=True)

    def microbatches(self, done: int) -> Microbatches[Part]:
        """This rank's planned microbatches that are not done."""
        return microbatches(self._plan, done, self.collate)

    def collate(self, part: Part) -> dict[str, Tensor]:
        """The tensors of one microbatch."""
        return collate(self._plan, self._pad, part)

    def compute_loss(
        self, model: Any, inputs: dict[str, Tensor], *_: Any, **__: Any
    ) -> Tensor:
        """This microbatch's share of the update's loss."""
        targets_N = inputs["targets_N"]
        temperatures_N = inputs.get("temperature_N")
        looks = [entropies_look(temperatures_N)]
        if "sampled_temperature_N" in inputs:
            looks.append(logprobs_look(targets_N, inputs["sampled_temperature_N"]))
        logprobs_N, seen = target_scores(
            model, inputs, temperatures_N, looks, head_dtype(self._settings)
        )
        entropies_N, as_sampled_N = [*seen, logprobs_N.detach()][:2]
        losses = token_losses(logprobs_N, inputs, self._settings)
        loss = (inputs["weights_N"] * losses.loss_N).sum()
        self._record(losses, as_sampled_N, entropies_N, inputs)
        return loss * self._plan.processes.size  # DDP averages gradients

    @torch.no_grad()
    def _record(
        self,
        losses: TokenLosses,
        as_sampled_N: Tensor,
        entropies_N: Tensor,
        inputs: dict[str, Tensor],
    ) -> None:
        """Adds one microbatch to the running metrics.

        `as_sampled_N` are log-probabilities at the temperature of the sampler's.
        """
        weights_N = inputs["weights_N"].double()
        counted_N = inputs["counted_N"].double()
        sampled_N = inputs.get("sampled_N", inputs["old_N"])
        ratio_N = counted_N * losses.ratio_N
        gap_N = counted_N * (as_sampled_N - sampled_N).abs()
        self._sums.add(
            loss=(weights_N * losses.loss_N).sum(),
            surrogate=(weights_N * losses.surrogate_N).sum(),
            kl=(weights_N * losses.kl_N).sum(),
            entropy=(counted_N * entropies_N).sum(),
            clipped=(counted_N * losses.clipped_N).sum(),
            ratio=ratio_N.sum(),
            gap=gap_N.sum(),
            gap_k3=(counted_N * k3(sampled_N, as_sampled_N)).sum(),
            tokens=counted_N.sum(),
            rows=inputs["rows_1"].sum().double(),
            read=inputs["read_1"].sum().double(),
            run=inputs["run_1"].sum().double(),
        )
        self._maxima.add(ratio=ratio_N.max(), gap=gap_N.max())

    def line(self, latest: TrainerUpdate) -> MetricsLine:
        """The metrics line of an update."""
        figures = self.figures(latest)
        return TrainMetrics(**figures, seconds=self.recorder.seconds())

    def figures(self, latest: TrainerUpdate) -> dict[str, Any]:
        """The metrics of the policy in the latest update, by name."""
        planned = self._plan.updates[latest.update - 1]
        sums = self._sums.take(self._plan.processes)
        maxima = self._maxima.take(self._plan.processes)
        tokens = sums["tokens"]
        skipped = len(planned.rows) - len(planned.weights)
        advantages = [self._plan.rows[row].advantage for row in planned.rows]
        return {
            "update": latest.update,
            "epoch": planned.epoch,
            "loss": sums["loss"],
            "surrogate": sums["surrogate"],
            "kl": sums["kl"],
            "entropy": sums["entropy"] / tokens,
            "clip_fraction": sums["clipped"] / tokens,
            "ratio_mean": sums["ratio"] / tokens,
            "ratio_max": maxima["ratio"],
            "gap_mean": sums["gap"] / tokens,
            "gap_max": maxima["gap"],
            "gap_k3": sums["gap_k3"] / tokens,
            "grad_norm": latest.grad_norm,
            "learning_rate": latest.learning_rate,
            "rows": int(sums["rows"]),
            "rows_skipped": skipped,
            "skipped_share": skipped / len(planned.rows),
            "tokens": int(tokens),
            "tokens_read": int(sums["read"]),
            "tokens_saved": int(sums["read"] - sums["run"]),
            "advantage_mean": fmean(advantages),
            "advantage_std": pstdev(advantages),
            "advantage_min": min(advantages),
            "advantage_max": max(advantages),
        }
