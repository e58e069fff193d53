"""transformers.Trainer with the policy-gradient loss: it runs the planned microbatches and records one metrics line per update."""

import math
from statistics import fmean, pstdev
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import PrinterCallback, Trainer, TrainingArguments

from agentcli.errors import AgentCliError
from agentcli.records.settings import TrainSettings
from agentcli.training.loop.distributed import max_over_ranks, sum_over_ranks
from agentcli.training.loop.forward import target_logits, token_logprobs
from agentcli.training.loop.recorder import Recorder
from agentcli.training.policy_gradient.batches import Microbatches, Plan
from agentcli.training.policy_gradient.losses import TokenLosses, k3, token_entropies, token_losses
from agentcli.training.policy_gradient.metrics import TrainMetrics

SUMS = ("loss", "surrogate", "kl", "entropy", "clipped", "ratio", "gap", "gap_k3", "tokens", "rows")
MAXIMA = ("ratio", "gap")


class PolicyTrainer(Trainer):
    """Runs a plan; its weights already hold every normalisation, so nothing here divides by a count.

    Goes on after the updates that `recorder`, to be set before training, says are done.
    """

    recorder: Recorder[TrainMetrics]

    def __init__(
        self,
        model: Any,
        args: TrainingArguments,
        plan: Plan,
        pad: int,
        settings: TrainSettings,
    ) -> None:
        super().__init__(model=model, args=args, train_dataset=Microbatches(plan, pad))
        self.remove_callback(PrinterCallback)
        self.model_accepts_loss_kwargs = True
        self._plan, self._pad, self._settings = plan, pad, settings
        self._reset()

    def _reset(self) -> None:
        self._sums = torch.zeros(len(SUMS), dtype=torch.float64, device=self.args.device)
        self._maxima = torch.zeros(len(MAXIMA), dtype=torch.float64, device=self.args.device)

    def get_train_dataloader(self) -> DataLoader:
        """The planned microbatches that are not done, in their order: shuffled, padded and dealt to this rank already."""
        return DataLoader(Microbatches(self._plan, self._pad, self.recorder.done), batch_size=None)

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> tuple[list[Any], int]:
        """The microbatches of one update; the 1 tells Trainer that the loss is normalised over all of them."""
        batches, _ = super().get_batch_samples(*args, **kwargs)
        return batches, 1

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """Not counted."""
        return 0

    def compute_loss(
        self, model: Any, inputs: dict[str, Tensor], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """This microbatch's part of the update's loss, times the world size because DDP averages gradients."""
        ids_BT, response_BT = inputs["ids_BT"], inputs["response_BT"]
        targets_N, temperatures_N = ids_BT[response_BT], inputs.get("temperature_N")
        logits_NV = target_logits(model, ids_BT, response_BT)
        logprobs_N = token_logprobs(logits_NV, targets_N, temperatures_N)
        settings = self._settings
        losses = token_losses(
            logprobs_N, inputs["old_N"], inputs["advantages_N"], settings.clip, inputs.get("reference_N"), settings.beta
        )
        loss = (inputs["weights_N"] * losses.loss_N).sum()
        detached_NV = logits_NV.detach()
        as_sampled_N = logprobs_N.detach()
        if "sampled_temperature_N" in inputs:
            as_sampled_N = token_logprobs(detached_NV, targets_N, inputs["sampled_temperature_N"])
        self._record(losses, as_sampled_N, token_entropies(detached_NV, temperatures_N), inputs)
        scaled = loss * self._plan.world.size
        return (scaled, {"logits": logits_NV}) if return_outputs else scaled

    @torch.no_grad()
    def _record(
        self, losses: TokenLosses, as_sampled_N: Tensor, entropies_N: Tensor, inputs: dict[str, Tensor]
    ) -> None:
        """Add a microbatch to the figures. `as_sampled_N`: log-probabilities of the distribution that the sampler's are of."""
        weights_N, counted_N = inputs["weights_N"].double(), inputs["counted_N"].double()
        sampled_N = inputs.get("sampled_N", inputs["old_N"])
        gap_N = counted_N * (as_sampled_N - sampled_N).abs()
        sums = (
            (weights_N * losses.loss_N).sum(),
            (weights_N * losses.surrogate_N).sum(),
            (weights_N * losses.kl_N).sum(),
            (counted_N * entropies_N).sum(),
            (counted_N * losses.clipped_N).sum(),
            (counted_N * losses.ratio_N).sum(),
            gap_N.sum(),
            (counted_N * k3(sampled_N, as_sampled_N)).sum(),
            counted_N.sum(),
            inputs["rows_1"].sum().double(),
        )
        self._sums += torch.stack(sums)
        self._maxima = torch.maximum(self._maxima, torch.stack([(counted_N * losses.ratio_N).max(), gap_N.max()]))

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Called by Trainer after every update, and once at the end with a summary that is not ours."""
        if "grad_norm" not in logs:
            return
        sums = dict(zip(SUMS, sum_over_ranks(self._sums, self._plan.world).tolist(), strict=True))
        maxima = dict(zip(MAXIMA, max_over_ranks(self._maxima, self._plan.world).tolist(), strict=True))
        metrics = self._metrics(logs, sums, maxima)
        if not math.isfinite(metrics.loss + metrics.grad_norm + metrics.ratio_max):
            raise AgentCliError(
                f"update {metrics.update}: loss {metrics.loss}, gradient norm {metrics.grad_norm}, largest ratio "
                f"{metrics.ratio_max}: not finite; nothing was saved; lower train.learning_rate, or set "
                "train.recompute_logprobs=true if the sampler's are wrong"
            )
        self._reset()
        figures = {"loss": metrics.loss, "entropy": metrics.entropy, "clip_fraction": metrics.clip_fraction}
        self.recorder.record(metrics.update, metrics, figures, {})

    def _metrics(self, logs: dict[str, float], sums: dict[str, float], maxima: dict[str, float]) -> TrainMetrics:
        number = self.recorder.done + self.state.global_step
        update = self._plan.updates[number - 1]
        advantages = [self._plan.rows[row].advantage for row in update.rows]
        tokens, skipped = sums["tokens"], len(update.rows) - len(update.weights)
        return TrainMetrics(
            update=number,
            epoch=update.epoch,
            loss=sums["loss"],
            surrogate=sums["surrogate"],
            kl=sums["kl"],
            entropy=sums["entropy"] / tokens,
            clip_fraction=sums["clipped"] / tokens,
            ratio_mean=sums["ratio"] / tokens,
            ratio_max=maxima["ratio"],
            gap_mean=sums["gap"] / tokens,
            gap_max=maxima["gap"],
            gap_k3=sums["gap_k3"] / tokens,
            grad_norm=float(logs["grad_norm"]),
            learning_rate=float(logs["learning_rate"]),
            rows=int(sums["rows"]),
            rows_skipped=skipped,
            skipped_share=skipped / len(update.rows),
            tokens=int(tokens),
            advantage_mean=fmean(advantages),
            advantage_std=pstdev(advantages),
            advantage_min=min(advantages),
            advantage_max=max(advantages),
            seconds=self.recorder.seconds(),
        )
