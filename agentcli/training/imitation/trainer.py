"""TRL's SFTTrainer on planned samples, with metrics lines, packing and a cheaper head.

Without Triton, TRL's fused language-model head computes scores at every position of a
row. That takes a quarter of a tiny policy's time. On the CPU the same loss is therefore
computed only at the response's columns; a test checks that both agree. Packed samples
use the same method, because TRL's labels cannot express them: one position may predict
several tokens.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from agentcli.policies.sight import Eyesight
from agentcli.training.imitation.batches import IGNORED, SamplePart, collate
from agentcli.training.imitation.demonstrations import messages_of
from agentcli.training.imitation.metrics import SftMetrics
from agentcli.training.loop.forward import (
    named_pictures,
    target_scores,
)
from agentcli.training.loop.microbatches import Microbatches
from agentcli.training.loop.packing import Packing, row_batch
from agentcli.training.loop.recorder import Recorder
from agentcli.training.loop.sharding import is_sharded
from agentcli.training.loop.trainer import PlannedTrainer, TrainerUpdate

LINES = 100
"""Metrics lines per training, approximately."""


class ImitationTrainer(PlannedTrainer, SFTTrainer):
    """Runs `parts`, this rank's microbatches of the training.

    `sight` reads the messages, for a vision model.
    """

    recorder: Recorder[SftMetrics]
    remedy = "lower sft.learning_rate"
    shown = ("loss", "token_accuracy")

    def __init__(
        self,
        model: Any,
        args: SFTConfig,
        tokenizer: Any,
        parts: Sequence[SamplePart],
        packing: Packing | None = None,
        sight: Eyesight | None = None,
    ) -> None:
        self._sight = sight
        self._parts = parts
        self._packing = packing
        self._pad: int = tokenizer.pad_token_id
        self._tokens = 0
        on_cpu = args.device.type == "cpu"
        self._by_trl = not (on_cpu or packing or is_sharded(model))
        super().__init__(
            model=model,
            args=args,
            train_dataset=Dataset.from_dict({"part": list(range(len(parts)))}),
            processing_class=tokenizer,
        )

    def microbatches(self, done: int) -> Microbatches[SamplePart]:
        """This rank's microbatches of all updates after the first `done`."""
        first = done * self.args.gradient_accumulation_steps
        return Microbatches(self._parts[first:], self._batch)

    def _batch(self, part: SamplePart) -> dict[str, Tensor]:
        tokens = {"update_tokens": torch.tensor(part.update_tokens)}
        if self._by_trl:
            batch = collate(part.samples, self._pad)
            return batch | self._pictures(part, batch["input_ids"]) | tokens
        batch = row_batch(part.samples, self._pad, self._packing)
        pictures = self._pictures(part, batch["ids_BT"])
        return batch | named_pictures(pictures) | tokens

    def _pictures(self, part: SamplePart, ids_BT: Tensor) -> dict[str, Tensor]:
        """The additional inputs of a vision model."""
        if self._sight is None:
            return {}
        return self._sight.tensors(messages_of(part.samples), ids_BT.shape[1])

    def compute_loss(
        self, model: Any, inputs: dict[str, Tensor], *_: Any, **__: Any
    ) -> Any:
        """Negative log-likelihood per response token over the whole update."""
        update_tokens = inputs.pop("update_tokens")
        if "labels" in inputs:
            self._tokens += int((inputs["labels"] != IGNORED).sum())
            trl: Any = super()
            return trl.compute_loss(model, inputs, num_items_in_batch=update_tokens)
        targets_N = inputs["targets_N"]
        self._tokens += len(targets_N)

        def hits(logits_nV: Tensor, part: slice) -> Tensor:
            return logits_nV.argmax(-1) == targets_N[part]

        logprobs_N, (hits_N,) = target_scores(model, inputs, looks=[hits])
        correct = hits_N.sum()
        local = torch.stack([correct, correct.new_tensor(len(targets_N))])
        all_correct, all_tokens = self.accelerator.reduce(local, reduction="sum")
        accuracies = self._metrics["train"]["mean_token_accuracy"]  # as TRL keeps them
        accuracies.append((all_correct / all_tokens).item())
        loss: Tensor = -logprobs_N.sum()
        return loss / update_tokens * self.accelerator.num_processes

    def line(self, latest: TrainerUpdate) -> SftMetrics | None:
        """Returns a metrics line about a hundred times per training.

        Its means cover the updates since the previous line.
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
        """Sums since the last line, and all tokens so far, this update included."""
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
