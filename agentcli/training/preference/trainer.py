"""TRL's DPOTrainer on planned pairs: the loss is TRL's, the batches, the metrics lines and the snapshots are ours.

DPOTrainer would score every token behind the first prompt, the observations of later turns included, and let each step see the ones
before it. Here the batch says what is scored, and the steps of a row are kept apart by their position ids: transformers
does that for a model that is given no attention mask.
"""

import math
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import PrinterCallback
from trl import DPOConfig, DPOTrainer

from agentcli.errors import AgentCliError
from agentcli.training.loop.distributed import sum_over_ranks
from agentcli.training.loop.recorder import Recorder
from agentcli.training.preference.batches import PairMicrobatches, PairPlan, batch_of
from agentcli.training.preference.metrics import DpoMetrics

IGNORED = -100
SUMS = ("loss", "accuracy", "chosen_reward", "rejected_reward", "pairs", "tokens")


class PreferenceTrainer(DPOTrainer):
    """Runs a plan, one pair at a time. `reference` None is the model as it is given.

    Fills in plan.reference when it is made. Goes on after the updates that `recorder`, to be set before training, says are
    done.
    """

    recorder: Recorder[Any]
    loss_is_scaled_for_ga = True  # how transformers says it from 5.19; before, model_accepts_loss_kwargs

    def __init__(self, model: Any, reference: Any | None, args: DPOConfig, tokenizer: Any, plan: PairPlan) -> None:
        self._plan = plan
        self._pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        super().__init__(
            model=model,
            ref_model=reference,
            args=args,
            train_dataset=Dataset.from_dict({"pair": list(range(len(plan.pairs)))}),
            processing_class=tokenizer,
        )
        if "ref" in getattr(model, "peft_config", {}):
            model.delete_adapter("ref")  # DPOTrainer's copy of the adapter; its log-probabilities are known already
        self.remove_callback(PrinterCallback)
        self.model_accepts_loss_kwargs = True
        self._reset()

    def _reset(self) -> None:
        self._sums = torch.zeros(len(SUMS), dtype=torch.float64, device=self.args.device)

    def _prepare_dataset(self, dataset: Dataset, *_: Any) -> Dataset:
        """Nothing to tokenise."""
        return dataset

    @torch.no_grad()
    def _precompute_ref_logps(self, dataset: Dataset, *_: Any) -> Dataset:
        """Called once, at the end of DPOTrainer's own preparation: the reference's log-probabilities of all pairs, dropout off."""
        plan, device = self._plan, self.args.device
        scorer: Any = self.ref_model if self.ref_model is not None else self.model
        training = scorer.training
        scorer.eval()
        found = torch.zeros(len(plan.pairs), 2, device=device)
        for index in range(plan.world.rank, len(plan.pairs), plan.world.size):
            batch = {name: value.to(device) for name, value in batch_of(plan.pairs[index], self._pad).items()}
            labels = batch["input_ids"].masked_fill(batch.pop("completion_mask") == 0, IGNORED)
            with self.accelerator.autocast():
                outputs = _apart(scorer)(**batch, labels=labels, use_cache=False, fused_lm_head=True)
            found[index] = outputs.log_probs.sum(1)
        plan.reference = sum_over_ranks(found, plan.world).cpu()
        scorer.train(training)
        self.ref_model = None
        return dataset

    def get_train_dataloader(self) -> DataLoader:
        """The planned pairs that are not done, in their order: shuffled, padded and dealt to this rank already."""
        return DataLoader(PairMicrobatches(self._plan, self._pad, self.recorder.done), batch_size=None)

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> tuple[list[Any], int]:
        """The microbatches of one update; the 1 tells Trainer that the loss is normalised over all of them."""
        batches, _ = super().get_batch_samples(*args, **kwargs)
        return batches, 1

    def compute_loss(self, model: Any, inputs: dict[str, Tensor], *_: Any, **__: Any) -> Tensor:
        """This pair's part of the update's loss, times the world size because DDP averages gradients."""
        share = inputs.pop("share_1")[0]
        seen: list[Tensor] = []
        loss = super().compute_loss(_apart(model, seen), inputs)
        self._record(loss.detach(), seen[0], inputs, share)
        return loss * share * self._plan.world.size

    @torch.no_grad()
    def _record(self, loss: Tensor, logps_2: Tensor, inputs: dict[str, Tensor], share: Tensor) -> None:
        reference_2 = torch.cat([inputs["ref_chosen_logps"], inputs["ref_rejected_logps"]])
        chosen, rejected = (self.beta * (logps_2 - reference_2)).double()
        counted = (share > 0).double()
        self._sums += torch.stack(
            [
                share * loss.double(),
                share * (chosen > rejected),
                share * chosen,
                share * rejected,
                counted,
                counted * inputs["completion_mask"].sum(),
            ]
        )

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Called by Trainer after every update, and once at the end with a summary that is not ours."""
        self._metrics["train"].clear()
        if "grad_norm" not in logs:
            return
        sums = dict(zip(SUMS, sum_over_ranks(self._sums, self._plan.world).tolist(), strict=True))
        self._reset()
        number = self.recorder.done + self.state.global_step
        line = DpoMetrics(
            update=number,
            epoch=self._plan.updates[number - 1].epoch,
            loss=sums["loss"],
            accuracy=sums["accuracy"],
            margin=sums["chosen_reward"] - sums["rejected_reward"],
            chosen_reward=sums["chosen_reward"],
            rejected_reward=sums["rejected_reward"],
            grad_norm=float(logs["grad_norm"]),
            learning_rate=float(logs["learning_rate"]),
            pairs=int(sums["pairs"]),
            tokens=int(sums["tokens"]),
            seconds=self.recorder.seconds(),
        )
        if not math.isfinite(line.loss + line.margin + line.grad_norm):
            raise AgentCliError(
                f"update {number}: loss {line.loss}, margin {line.margin}, gradient norm {line.grad_norm}: not finite; nothing was "
                "saved; lower train.learning_rate"
            )
        figures = {"loss": line.loss, "accuracy": line.accuracy, "margin": line.margin}
        self.recorder.record(number, line, figures, {})


def _apart(model: Any, seen: list[Tensor] | None = None) -> Any:
    """`model`, called without the attention mask; `seen` gets the log-probabilities (2,) of its rows."""

    def call(attention_mask: Tensor, **given: Any) -> Any:
        outputs = model(**given)
        if seen is not None:
            seen.append(outputs.log_probs.detach().sum(1))
        return outputs

    return call
