"""TRL's SFTTrainer on planned samples: metrics lines, and a cheaper head on the CPU.

TRL's fused language-model head scores every position of a row where there is no Triton,
a quarter of the time of a tiny policy. On the CPU the same loss is therefore computed
on the response's columns only; a test holds the two equal.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from agentcli.training.imitation.batches import IGNORED, SampleMicrobatches
from agentcli.training.imitation.demonstrations import Sample
from agentcli.training.imitation.metrics import SftMetrics
from agentcli.training.loop.forward import target_logits, token_logprobs
from agentcli.training.loop.recorder import Recorder
from agentcli.training.loop.trainer import PlannedTrainer, Report

LINES = 100
"""Metrics lines of one training, about."""


class ImitationTrainer(PlannedTrainer, SFTTrainer):
    """Runs `parts`, this rank's microbatches of the whole training as indices of
    `samples`.
    """

    recorder: Recorder[SftMetrics]
    remedy = "lower sft.learning_rate"
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
        self._pad = (
            tokenizer.pad_token_id
            if tokenizer.pad_token_id is not None
            else tokenizer.eos_token_id
        )
        self._tokens = 0
        super().__init__(
            model=model,
            args=args,
            train_dataset=Dataset.from_dict({"sample": list(range(len(samples)))}),
            processing_class=tokenizer,
        )

    def microbatches(self, done: int) -> SampleMicrobatches:
        """This rank's microbatches of all updates but the first `done`."""
        first = done * self.args.gradient_accumulation_steps
        return SampleMicrobatches(self._samples, self._parts[first:], self._pad)

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
        counts = self.accelerator.reduce(
            torch.stack([correct, torch.tensor(len(targets_N))]), reduction="sum"
        )
        self._metrics["train"]["mean_token_accuracy"].append(
            (counts[0] / counts[1]).item()
        )
        loss: Tensor = -token_logprobs(logits_NV, targets_N).sum()
        if num_items_in_batch is None:
            return loss / targets_N.numel()
        return loss / num_items_in_batch * self.accelerator.num_processes

    def report(
        self, update: int, gradient_norm: float, learning_rate: float, loss: float
    ) -> Report:
        """A line about a hundred times in a training, its means over the updates since
        the line before.
        """
        finite = {"loss": loss, "gradient norm": gradient_norm}
        sums = self._sums(loss)
        if (
            update % max(1, self.recorder.total // LINES)
            and update != self.recorder.total
        ):
            return Report(None, finite, {}, sums)
        line = SftMetrics(
            update=update,
            loss=sums["loss"] / sums["updates"],
            token_accuracy=sums["token_accuracy"] / sums["updates"],
            grad_norm=gradient_norm,
            learning_rate=learning_rate,
            tokens=int(sums["tokens"]),
            seconds=self.recorder.seconds(),
        )
        figures = {"loss": line.loss, "token_accuracy": line.token_accuracy}
        return Report(line, finite, figures, {"tokens": sums["tokens"]})

    def _sums(self, loss: float) -> dict[str, float]:
        """The sums since the last line, and the tokens since the first update, with
        this update in them.
        """
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
        return {
            name: self.recorder.counters.get(name, 0.0) + value
            for name, value in added.items()
        }
