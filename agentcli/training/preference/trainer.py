"""TRL's DPOTrainer on planned pairs: TRL's loss, with our batches and metrics.

DPOTrainer would score every token after the first prompt, including the observations of
later turns, and let each step attend to earlier ones. Here the batch says what is
scored, and position ids separate the steps of a row: transformers does that for a model
that gets no attention mask.
"""

from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer

from agentcli.training.loop.distributed import sum_over_ranks
from agentcli.training.loop.forward import scoring
from agentcli.training.loop.microbatches import Microbatches
from agentcli.training.loop.recorder import Recorder
from agentcli.training.loop.trainer import PlannedTrainer, RunningFigures, TrainerUpdate
from agentcli.training.preference.batches import (
    PairPlan,
    Part,
    batch_of,
    microbatches,
)
from agentcli.training.preference.objective import DpoMetrics

IGNORED = -100


class PreferenceTrainer(PlannedTrainer, DPOTrainer):
    """Runs a plan, one pair at a time; its construction computes plan.reference.

    If `reference` is None, the initial model is the reference.
    """

    recorder: Recorder[DpoMetrics]
    remedy = "lower train.learning_rate"
    finite = ("loss", "margin")
    shown = ("loss", "accuracy", "margin")
    # What was model_accepts_loss_kwargs before transformers 5.19.
    loss_is_scaled_for_ga = True

    def __init__(
        self,
        model: Any,
        reference: Any | None,
        args: DPOConfig,
        tokenizer: Any,
        plan: PairPlan,
    ) -> None:
        self._plan = plan
        self._pad: int = tokenizer.pad_token_id
        self._sums = RunningFigures(args.device)
        super().__init__(
            model=model,
            ref_model=reference,
            args=args,
            train_dataset=Dataset.from_dict({"pair": list(range(len(plan.pairs)))}),
            processing_class=tokenizer,
        )
        if "ref" in getattr(model, "peft_config", {}):
            # DPOTrainer's copy of the adapter; its log-probabilities are already
            # computed.
            model.delete_adapter("ref")

    def _prepare_dataset(self, dataset: Dataset, *_: Any) -> Dataset:
        """Does nothing: the pairs are tokenised already."""
        return dataset

    def _precompute_ref_logps(self, dataset: Dataset, *_: Any) -> Dataset:
        """Computes the reference's log-probabilities of all pairs, without dropout.

        DPOTrainer calls it once, at the end of its own preparation.
        """
        plan = self._plan
        device = self.args.device
        model: Any = self.ref_model if self.ref_model is not None else self.model
        reference = _StepsApart(model)
        logps = torch.zeros(len(plan.pairs), 2, device=device)
        processes = plan.processes
        of_this_rank = range(processes.rank, len(plan.pairs), processes.size)
        with scoring(model), self.accelerator.autocast():
            for index in of_this_rank:
                batch = batch_of(plan.pairs[index], self._pad)
                batch = {name: value.to(device) for name, value in batch.items()}
                ignored_2T = batch.pop("completion_mask") == 0
                labels_2T = batch["input_ids"].masked_fill(ignored_2T, IGNORED)
                reference(
                    **batch, labels=labels_2T, use_cache=False, fused_lm_head=True
                )
                logps[index] = reference.logps_2
        plan.reference = sum_over_ranks(logps, processes).cpu()
        self.ref_model = None
        return dataset

    def microbatches(self, done: int) -> Microbatches[Part]:
        """This rank's planned pairs that are not done."""
        return microbatches(self._plan, self._pad, done)

    def compute_loss(
        self, model: Any, inputs: dict[str, Tensor], *_: Any, **__: Any
    ) -> Tensor:
        """This pair's share of the update's loss."""
        share = inputs.pop("share_1")[0]
        apart = _StepsApart(model)
        trl: Any = super()
        loss: Tensor = trl.compute_loss(apart, inputs)
        self._record(loss.detach(), apart.logps_2, inputs, share)
        return loss * share * self._plan.processes.size  # DDP averages gradients

    @torch.no_grad()
    def _record(
        self,
        loss: Tensor,
        logps_2: Tensor,
        inputs: dict[str, Tensor],
        share: Tensor,
    ) -> None:
        """Adds one pair to the running metrics; a filler has share 0."""
        reference_2 = torch.cat(
            [inputs["ref_chosen_logps"], inputs["ref_rejected_logps"]]
        )
        chosen, rejected = (self.beta * (logps_2 - reference_2)).double()
        counted = (share > 0).double()
        self._sums.add(
            loss=share * loss.double(),
            accuracy=share * (chosen > rejected),
            chosen_reward=share * chosen,
            rejected_reward=share * rejected,
            pairs=counted,
            tokens=counted * inputs["completion_mask"].sum(),
        )

    def line(self, latest: TrainerUpdate) -> DpoMetrics:
        """The metrics line of an update."""
        self._metrics["train"].clear()  # TRL's own
        sums = self._sums.take(self._plan.processes)
        return DpoMetrics(
            update=latest.update,
            epoch=self._plan.updates[latest.update - 1].epoch,
            loss=sums["loss"],
            accuracy=sums["accuracy"],
            margin=sums["chosen_reward"] - sums["rejected_reward"],
            chosen_reward=sums["chosen_reward"],
            rejected_reward=sums["rejected_reward"],
            grad_norm=latest.grad_norm,
            learning_rate=latest.learning_rate,
            pairs=int(sums["pairs"]),
            tokens=int(sums["tokens"]),
            seconds=self.recorder.seconds(),
        )


class _StepsApart:
    """Calls a model without the attention mask, so that steps stay separate.

    It keeps the log-probabilities (2,) of the rows in its latest call.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self.logps_2 = torch.zeros(2)

    def __call__(self, attention_mask: Tensor, **inputs: Any) -> Any:
        outputs = self._model(**inputs)
        self.logps_2 = outputs.log_probs.detach().sum(1)
        return outputs
