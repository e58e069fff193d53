"""TRL's SFTTrainer on samples that carry their labels: a collator, metrics lines, and a cheaper head on the CPU.

TRL's fused language-model head scores every position of a row where there is no Triton, a quarter of the time of a tiny policy.
On the CPU the same loss is therefore computed on the response's columns only; a test holds the two equal.
"""

import math
import time
from statistics import fmean
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from transformers import PrinterCallback
from trl import SFTConfig, SFTTrainer

from agentcli.errors import AgentCliError
from agentcli.records.files import RecordWriter
from agentcli.training.forward import target_logits
from agentcli.training.losses import token_logprobs
from agentcli.training.metrics import Progress, SftMetrics

IGNORED = -100


def collate(samples: list[dict[str, list[int]]], pad: int) -> dict[str, Tensor]:
    """Right-padded input_ids, labels and attention_mask, all (B, T)."""
    lengths = [len(sample["input_ids"]) for sample in samples]
    shape = (len(samples), max(lengths))
    batch = {
        "input_ids": torch.full(shape, pad),
        "labels": torch.full(shape, IGNORED),
        "attention_mask": torch.zeros(shape, dtype=torch.long),
    }
    for row, (sample, length) in enumerate(zip(samples, lengths, strict=True)):
        batch["input_ids"][row, :length] = torch.tensor(sample["input_ids"])
        batch["labels"][row, :length] = torch.tensor(sample["labels"])
        batch["attention_mask"][row, :length] = 1
    return batch


class ImitationTrainer(SFTTrainer):
    """`samples` has the columns input_ids and labels. `writer` is None on all ranks but the first."""

    def __init__(
        self,
        model: Any,
        args: SFTConfig,
        tokenizer: Any,
        samples: Dataset,
        updates: int,
        writer: RecordWriter | None,
        progress: Progress | None,
    ) -> None:
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        super().__init__(
            model=model,
            args=args,
            train_dataset=samples,
            processing_class=tokenizer,
            data_collator=lambda batch: collate(batch, pad),
        )
        self.remove_callback(PrinterCallback)
        self.written: list[SftMetrics] = []
        self._updates, self._writer, self._progress = updates, writer, progress
        self._started = time.perf_counter()
        self._tokens = 0

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Negative log-likelihood per response token over the whole update."""
        labels_BT = inputs["labels"]
        self._tokens += int((labels_BT != IGNORED).sum())
        if return_outputs or self.args.device.type != "cpu":
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        target_BT = labels_BT != IGNORED
        logits_NV = target_logits(model, inputs["input_ids"], target_BT)
        targets_N = labels_BT[target_BT]
        correct = (logits_NV.detach().argmax(-1) == targets_N).sum()
        seen = self.accelerator.reduce(torch.stack([correct, torch.tensor(len(targets_N))]), reduction="sum")
        self._metrics["train"]["mean_token_accuracy"].append((seen[0] / seen[1]).item())
        loss = -token_logprobs(logits_NV, targets_N).sum()
        if num_items_in_batch is None:
            return loss / targets_N.numel()
        return loss / num_items_in_batch * self.accelerator.num_processes

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Called by Trainer after every logging_steps-th update, and once at the end with a summary that is not ours."""
        if "grad_norm" not in logs:
            return
        accuracies = self._metrics["train"].pop("mean_token_accuracy")
        tokens = torch.tensor(self._tokens, device=self.args.device)
        metrics = SftMetrics(
            update=self.state.global_step,
            loss=float(logs["loss"]),
            token_accuracy=fmean(accuracies),
            grad_norm=float(logs["grad_norm"]),
            learning_rate=float(logs["learning_rate"]),
            tokens=int(self.accelerator.reduce(tokens, reduction="sum")),
            seconds=round(time.perf_counter() - self._started, 3),
        )
        if not math.isfinite(metrics.loss + metrics.grad_norm):
            raise AgentCliError(
                f"update {metrics.update}: loss {metrics.loss}, gradient norm {metrics.grad_norm}: not finite; nothing was "
                "saved; lower sft.learning_rate"
            )
        self.written.append(metrics)
        if self._writer is not None:
            self._writer.write(metrics)
        if self._progress is not None:
            self._progress(
                metrics.update, self._updates, {"loss": metrics.loss, "token_accuracy": metrics.token_accuracy}
            )
