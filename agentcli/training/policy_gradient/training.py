"""`train` with objective policy-gradient: a clipped surrogate on a rollout's rows.

The trainer knows no credit method: rows and their advantages come from files
(`steps.py`); order and weights of the rows are planned beforehand (`batches.py`); the
loss is a pure function (`losses.py`); transformers.Trainer runs the loop.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, ClassVar

import msgspec
import torch
from torch import Tensor
from transformers import TrainingArguments

from agentcli.errors import DataError
from agentcli.policies.load import load_tokenizer
from agentcli.policies.sight import load_sight, picture_names
from agentcli.records.training_settings import TrainSettings
from agentcli.training.loop.checkpoints import load_trainable
from agentcli.training.loop.distributed import place
from agentcli.training.loop.forward import (
    StepTokeniser,
    head_dtype,
    logprobs_look,
    target_scores,
)
from agentcli.training.loop.snapshots import Facts, digest
from agentcli.training.loop.template import ObjectiveTraining
from agentcli.training.loop.trainer import (
    PlannedTrainer,
    Recorder,
    RunningFigures,
    TrainerUpdate,
)
from agentcli.training.metrics import (
    MetricsLine,
    PolicyFigures,
    TrainMetrics,
    means_of,
)
from agentcli.training.policy_gradient import batches
from agentcli.training.policy_gradient.losses import (
    TokenLosses,
    entropies_look,
    measured_k3,
    token_losses,
)
from agentcli.training.steps import Row, RowCounts, read_rows

AVERAGED = (
    *("loss", "surrogate", "kl", "entropy", "clip_fraction"),
    *("ratio_mean", "grad_norm"),
)
"""The metrics whose means are in the manifest."""


class RowTraining(ObjectiveTraining):
    """A training on rows: steps with a target, in the order of an `UpdatePlan`."""

    plan: batches.UpdatePlan
    clips: ClassVar[bool] = True
    """Whether the Trainer clips the gradients, all by one norm."""

    @property
    def pad(self) -> int:
        """The token that fills shorter rows."""
        # Any token would do: no position that counts attends to the padding.
        return self.tokenizer.pad_token_id or 0

    def order(self) -> list[Any]:
        """The rows of every update and microbatch, for `facts`."""
        return [(update.rows, update.microbatches) for update in self.plan.updates]

    def row_arguments(self) -> TrainingArguments:
        """The settings of the job for transformers; a norm of 0 means no clipping."""
        rows = self.settings.rows_per_microbatch
        norm = self.settings.max_grad_norm if self.clips else 0.0
        return self.arguments(TrainingArguments, rows, max_grad_norm=norm)


class PolicyTraining(RowTraining):
    """Trains a policy on the credited rows of a rollout.

    The job's `reference` is loaded only if settings.beta is not 0. None means the model
    that training starts from, its adapter included.
    """

    counts: RowCounts
    gap: dict[str, float]
    """Between the log-probabilities of trainer and sampler, before training."""

    def rows(self, trees: Path, credit: Path) -> int:
        """Reads rows and model, and plans the updates."""
        job, settings = self.job, self.settings
        rows, self.counts = credited_rows(trees, credit, settings)
        self.tokenizer = load_tokenizer(job.model, job.chat_template_kwargs)
        self.sight = load_sight(job.model, job.chat_template_kwargs)
        self.model = load_trainable(job.model, settings.lora, settings.sharding)
        tokenise = StepTokeniser(self.tokenizer, self.model, job.model, self.sight)
        tokens = batches.tokenise_rows(rows, tokenise)
        plan = batches.plan_updates(rows, tokens, settings, job.seed, self.processes)
        self.plan = batches.packed_as_set(plan, settings, self.model)
        return len(self.plan.updates)

    def facts(self) -> Facts:
        """Hashes of rows, plan and pictures."""
        tokens = self.plan.tokens
        numbers = [
            (
                row.advantage,
                row.weight,
                row.share,
                row.temperature,
                row.logprob_temperature,
            )
            for row in self.plan.rows
        ]
        old = tokens.old.tolist()
        rows = digest(tokens.prompts, tokens.responses, old, numbers, self.order())
        facts: Facts = {"rows": rows}
        if tokens.messages:
            facts["pictures"] = digest(picture_names(tokens.messages))
        return facts

    def trainer(self) -> PlannedTrainer:
        """Computes the log-probabilities of the reference, and if set the old ones."""
        arguments = self.row_arguments()
        device = arguments.device
        place(self.model, self.settings, self.processes, device)
        batches.check_packed(self.plan, self.model, self.pad, device)
        self.measure(self.model, device)
        return PolicyTrainer(self.model, arguments, self.plan, self.pad, self.settings)

    def measure(self, policy: Any, device: torch.device) -> None:
        """Fills in the plan's log-probabilities; measures the gap to the sampler's."""
        settings, reference = self.settings, self.job.reference
        self.gap = batches.prepare_logprobs(
            policy, self.plan, settings, reference, self.pad, device
        )

    def statistics(self, lines: Sequence[PolicyFigures]) -> dict[str, Any]:
        """The counts of rows and tokens, and the means of the metrics."""
        plan, counts = self.plan, self.counts
        run_rows = {row for update in plan.updates for row in update.weights}
        return {
            "aggregate": self.settings.aggregate,
            **msgspec.structs.asdict(counts),
            "rows_skipped": counts.rows - len(run_rows),
            "updates": len(plan.updates),
            "updates_skipped": plan.skipped,
            "tokens": sum(line.tokens for line in lines),
            "tokens_read": sum(line.tokens_read for line in lines),
            "tokens_saved": sum(line.tokens_saved for line in lines),
            **plan.choice.statistics(),
            "temperatures": sorted({row.temperature for row in plan.rows}),
            "means": means_of(lines, AVERAGED),
            "ratio_max": max((line.ratio_max for line in lines), default=1.0),
            "updates_before": self.trained.updates_before,
            "logprob_gap": self.gap,
        }


def credited_rows(
    trees: Path,
    credit: Path,
    settings: TrainSettings,
) -> tuple[list[Row], RowCounts]:
    """The rows to train on, and the counts. Raises DataError if there are none."""
    # Importance weights compare the trainer with the sampler at the same temperature.
    replaced = settings.recomputes and settings.importance_cap is None
    rows, counts = read_rows(trees, credit, settings.update, replaced)
    if not rows:
        raise DataError(
            f"{credit}: no step has both an advantage and sampled tokens "
            f"({counts.rows_unassigned} unassigned, {counts.rows_not_critical} not "
            f"critical, {counts.rows_without_spread} in trees without spread)"
        )
    return rows, counts


class RowTrainer(PlannedTrainer):
    """Runs an `UpdatePlan`.

    The plan's weights include all normalisation, so no loss divides by a count.
    """

    recorder: Recorder[Any]

    def __init__(
        self,
        model: Any,
        args: TrainingArguments,
        plan: batches.UpdatePlan,
        pad: int,
        settings: TrainSettings,
    ) -> None:
        self._plan = plan
        self._pad = pad
        self._settings = settings
        self._sums = RunningFigures(args.device)
        super().__init__(model=model, args=args, train_dataset=plan.parts())

    def parts(self, done: int) -> list[batches.Part]:
        return self._plan.parts(done)

    def collate(self, part: batches.Part) -> dict[str, Tensor]:
        return batches.collate(self._plan, self._pad, part)


class PolicyTrainer(RowTrainer):
    """Learns from advantages."""

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
        plan: batches.UpdatePlan,
        pad: int,
        settings: TrainSettings,
    ) -> None:
        super().__init__(model, args, plan, pad, settings)
        self._maxima = RunningFigures(args.device, maximum=True)

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
        # Without a second look, the sampler's temperature is the row's own.
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
            gap_k3=(counted_N * measured_k3(sampled_N, as_sampled_N)).sum(),
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
