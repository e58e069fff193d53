"""TRL's SFTTrainer on planned samples, with metrics lines and a cheaper head.

Where there is no Triton, TRL's fused language-model head scores every position of a
row. That takes a quarter of a tiny policy's time. On the CPU the same loss is therefore
computed on the response's columns only; a test holds the two equal.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from agentcli.training.imitation.batches import IGNORED, collate
from agentcli.training.imitation.demonstrations import Sample
from agentcli.training.imitation.metrics import SftMetrics
from agentcli.training.loop.forward import target_logits, token_logprobs
from agentcli.training.loop.microbatches import Microbatches
from agentcli.training.loop.recorder import Recorder
from agentcli.training.loop.trainer import PlannedTrainer, TrainerUpdate

LINES = 100
"""Metrics lines of one training, about."""


class ImitationTrainer(PlannedTrainer, SFTTrainer):
    """Runs `parts`: this rank's microbatches of the training, as indices of samples."""

    recorder: Recorder[SftMetrics]
    remedy = "lower sft.learning_rate"
    shown = ("loss", "token_accuracy")
    normalised = False

    def __init__(
        self,
        model: Any,
        args: SFTConfig,
        tokenizer: Any,
        samples: Sequence[Sample],
        parts: Sequence[Sequence[int]],
    ) -> None:
        self._samples = samples
        self._parts = parts
        self._pad: int = tokenizer.pad_token_id
        self._tokens = 0
        super().__init__(
            model=model,
            args=args,
            train_dataset=Dataset.from_dict({"sample": list(range(len(samples)))}),
            processing_class=tokenizer,
        )

    def microbatches(self, done: int) -> Microbatches[Sequence[int]]:
        """This rank's microbatches of all updates but the first `done`."""
        first = done * self.args.gradient_accumulation_steps
        return Microbatches(self._parts[first:], self._batch)

    def _batch(self, part: Sequence[int]) -> dict[str, Tensor]:
        return collate([self._samples[index] for index in part], self._pad)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Negative log-likelihood per response token over the whole update."""
        labels_BT = inputs["labels"]
        target_BT = labels_BT != IGNORED
        self._tokens += int(target_BT.sum())
        if return_outputs or self.args.device.type != "cpu":
            trl: Any = super()
            return trl.compute_loss(model, inputs, return_outputs, num_items_in_batch)
        logits_NV = target_logits(model, inputs["input_ids"], target_BT)
        targets_N = labels_BT[target_BT]
        correct = (logits_NV.detach().argmax(-1) == targets_N).sum()
        local = torch.stack([correct, torch.tensor(len(targets_N))])
        all_correct, all_tokens = self.accelerator.reduce(local, reduction="sum")
        accuracies = self._metrics["train"]["mean_token_accuracy"]  # as TRL keeps them
        accuracies.append((all_correct / all_tokens).item())
        loss: Tensor = -token_logprobs(logits_NV, targets_N).sum()
        if num_items_in_batch is None:
            return loss / targets_N.numel()
        return loss / num_items_in_batch * self.accelerator.num_processes

    def line(self, latest: TrainerUpdate) -> SftMetrics | None:
        """A line about a hundred times in a training.

        Its means are over the updates since the line before.
        """
        sums = self._sums(latest.loss)
        self.recorder.counters = sums
        total = self.recorder.total
        due = latest.update == total or latest.update % max(1, total // LINES) == 0
        if not due:
            return None
        self.recorder.counters = {"tokens": sums["tokens"]}
        return SftMetrics(
            update=latest.update,
            loss=sums["loss"] / sums["updates"],
            token_accuracy=sums["token_accuracy"] / sums["updates"],
            grad_norm=latest.grad_norm,
            learning_rate=latest.learning_rate,
            tokens=int(sums["tokens"]),
            seconds=self.recorder.seconds(),
        )

    def _sums(self, loss: float) -> dict[str, float]:
        """Sums since the last line, and tokens since the first update, this one included."""
        accuracies = self._metrics["train"].pop("mean_token_accuracy")
        self._metrics["train"].clear()
        tokens = self.accelerator.reduce(
            torch.tensor(self._tokens, device=self.args.device), reduction="sum"
        )
        self._tokens = 0
        added = {
            "loss": loss,
            "token_accuracy": fmean(accuracies),
            "updates": 1.0,
            "tokens": float(tokens),
        }
        before = self.recorder.counters
        return {name: before.get(name, 0.0) + value for name, value in added.items()}
