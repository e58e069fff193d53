"""TRL's SFTTrainer on samples that carry their labels: a collator, metrics lines, and a cheaper head on the CPU.

TRL's fused language-model head scores every position of a row where there is no Triton, a quarter of the time of a tiny policy.
On the CPU the same loss is therefore computed on the response's columns only; a test holds the two equal.
"""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import PrinterCallback
from trl import SFTConfig, SFTTrainer

from agentcli.errors import AgentCliError
from agentcli.records.files import derive_seed
from agentcli.training.imitation.metrics import SftMetrics
from agentcli.training.loop.distributed import World
from agentcli.training.loop.forward import target_logits, token_logprobs
from agentcli.training.loop.recorder import Recorder

IGNORED = -100
LINES = 100
"""Metrics lines of one training, about."""


def sample_order(samples: int, places: int, seed: int) -> list[int]:
    """Which sample stands at which place of a whole training: pass after pass over all samples, each shuffled with a seed of its
    own; an update may take the end of one pass and the beginning of the next."""
    order: list[int] = []
    while len(order) < places:
        number = len(order) // samples
        order += np.random.default_rng(derive_seed("sft samples", seed, number)).permutation(samples).tolist()
    return order[:places]


def microbatches(order: Sequence[int], size: int, world: World) -> list[list[int]]:
    """The microbatches of this rank: every `world.size`-th of those that `order` is cut into."""
    starts = range(world.rank * size, len(order), size * world.size)
    return [list(order[start : start + size]) for start in starts]


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
    """`samples` has the columns input_ids and labels; `batches` are this rank's microbatches of the whole training, as samples.

    Goes on after the updates that `recorder`, to be set before training, says are done.
    """

    recorder: Recorder[SftMetrics]

    def __init__(self, model: Any, args: SFTConfig, tokenizer: Any, samples: Dataset, batches: list[list[int]]) -> None:
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        super().__init__(
            model=model,
            args=args,
            train_dataset=samples,
            processing_class=tokenizer,
            data_collator=lambda batch: collate(batch, pad),
        )
        self.remove_callback(PrinterCallback)
        self._samples, self._batches = samples, batches
        self._tokens = 0

    def get_train_dataloader(self) -> DataLoader:
        """The planned microbatches that are not done, in their order, dealt to this rank already."""
        first = self.recorder.done * self.args.gradient_accumulation_steps
        return DataLoader(self._samples, batch_sampler=self._batches[first:], collate_fn=self.data_collator)

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
        """Called by Trainer after every update, and once at the end with a summary that is not ours."""
        if "grad_norm" not in logs:
            return
        update, rate, norm = self.recorder.done + self.state.global_step, logs["learning_rate"], logs["grad_norm"]
        if not math.isfinite(logs["loss"] + norm):
            raise AgentCliError(
                f"update {update}: loss {logs['loss']}, gradient norm {norm}: not finite; nothing was saved; lower "
                "sft.learning_rate"
            )
        line = None
        sums = self._add(float(logs["loss"]))
        if update % max(1, self.recorder.total // LINES) == 0 or update == self.recorder.total:
            line = SftMetrics(
                update=update,
                loss=sums["loss"] / sums["updates"],
                token_accuracy=sums["token_accuracy"] / sums["updates"],
                grad_norm=float(norm),
                learning_rate=float(rate),
                tokens=int(sums["tokens"]),
                seconds=self.recorder.seconds(),
            )
            sums = {"tokens": sums["tokens"]}
        figures = {"loss": line.loss, "token_accuracy": line.token_accuracy} if line else {}
        self.recorder.record(update, line, figures, sums)

    def _add(self, loss: float) -> dict[str, float]:
        """The sums since the last line, and the tokens since the first update, with this update in them."""
        accuracies = self._metrics["train"].pop("mean_token_accuracy")
        self._metrics["train"].clear()
        tokens = self.accelerator.reduce(torch.tensor(self._tokens, device=self.args.device), reduction="sum")
        self._tokens = 0
        added = {"loss": loss, "token_accuracy": fmean(accuracies), "updates": 1.0, "tokens": float(tokens)}
        return {name: self.recorder.counters.get(name, 0.0) + value for name, value in added.items()}
