"""TRL's DPOTrainer on planned pairs: the loss is TRL's, the batches, the metrics lines
and the snapshots are ours.

DPOTrainer would score every token behind the first prompt, the observations of later
turns included, and let each step see the ones before it. Here the batch says what is
scored, and the steps of a row are kept apart by their position ids: transformers does
that for a model that is given no attention mask.
"""

from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer

from agentcli.training.loop.distributed import sum_over_ranks
from agentcli.training.loop.recorder import Recorder
from agentcli.training.loop.trainer import PlannedTrainer, Report, RunningFigures
from agentcli.training.preference.batches import PairMicrobatches, PairPlan, batch_of
from agentcli.training.preference.metrics import DpoMetrics

IGNORED = -100


class PreferenceTrainer(PlannedTrainer, DPOTrainer):
    """Runs a plan, one pair at a time, and fills in plan.reference when it is made.

    `reference` None is the model as it is given.
    """

    recorder: Recorder[DpoMetrics]
    remedy = "lower train.learning_rate"
    loss_is_scaled_for_ga = (
        True  # how transformers says it from 5.19; before, model_accepts_loss_kwargs
    )

    def __init__(
        self,
        model: Any,
        reference: Any | None,
        args: DPOConfig,
        tokenizer: Any,
        plan: PairPlan,
    ) -> None:
        self._plan = plan
        self._pad = (
            tokenizer.pad_token_id
            if tokenizer.pad_token_id is not None
            else tokenizer.eos_token_id
        )
        self._sums = RunningFigures(args.device)
        super().__init__(
            model=model,
            ref_model=reference,
            args=args,
            train_dataset=Dataset.from_dict({"pair": list(range(len(plan.pairs)))}),
            processing_class=tokenizer,
        )
        if "ref" in getattr(model, "peft_config", {}):
            model.delete_adapter(
                "ref"
            )  # DPOTrainer's copy of the adapter; its log-probabilities are known already

    def _prepare_dataset(self, dataset: Dataset, *_: Any) -> Dataset:
        """Nothing to tokenise."""
        return dataset

    @torch.no_grad()
    def _precompute_ref_logps(self, dataset: Dataset, *_: Any) -> Dataset:
        """Called once, at the end of DPOTrainer's own preparation: the reference's
        log-probabilities of all pairs, dropout off.
        """
        plan = self._plan
        device = self.args.device
        scorer: Any = self.ref_model if self.ref_model is not None else self.model
        training = scorer.training
        scorer.eval()
        logps = torch.zeros(len(plan.pairs), 2, device=device)
        for index in range(plan.processes.rank, len(plan.pairs), plan.processes.size):
            batch = {
                name: value.to(device)
                for name, value in batch_of(plan.pairs[index], self._pad).items()
            }
            labels = batch["input_ids"].masked_fill(
                batch.pop("completion_mask") == 0, IGNORED
            )
            with self.accelerator.autocast():
                outputs = _StepsApart(scorer)(
                    **batch, labels=labels, use_cache=False, fused_lm_head=True
                )
            logps[index] = outputs.log_probs.sum(1)
        plan.reference = sum_over_ranks(logps, plan.processes).cpu()
        scorer.train(training)
        self.ref_model = None
        return dataset

    def microbatches(self, done: int) -> PairMicrobatches:
        """The planned pairs of this rank that are not done."""
        return PairMicrobatches(self._plan, self._pad, done)

    def compute_loss(
        self, model: Any, inputs: dict[str, Tensor], *_: Any, **__: Any
    ) -> Tensor:
        """This pair's part of the update's loss, times the number of processes because
        DDP averages gradients.
        """
        share = inputs.pop("share_1")[0]
        apart = _StepsApart(model)
        trl: Any = super()
        loss: Tensor = trl.compute_loss(apart, inputs)
        self._record(loss.detach(), apart.logps_2, inputs, share)
        return loss * share * self._plan.processes.size

    @torch.no_grad()
    def _record(
        self, loss: Tensor, logps_2: Tensor, inputs: dict[str, Tensor], share: Tensor
    ) -> None:
        """Add a pair to the figures; a filler has share 0."""
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

    def report(
        self, update: int, gradient_norm: float, learning_rate: float, loss: float
    ) -> Report:
        """The metrics line of every update."""
        self._metrics["train"].clear()  # TRL's own
        sums = self._sums.take(self._plan.processes)
        line = DpoMetrics(
            update=update,
            epoch=self._plan.updates[update - 1].epoch,
            loss=sums["loss"],
            accuracy=sums["accuracy"],
            margin=sums["chosen_reward"] - sums["rejected_reward"],
            chosen_reward=sums["chosen_reward"],
            rejected_reward=sums["rejected_reward"],
            grad_norm=gradient_norm,
            learning_rate=learning_rate,
            pairs=int(sums["pairs"]),
            tokens=int(sums["tokens"]),
            seconds=self.recorder.seconds(),
        )
        finite = {
            "loss": line.loss,
            "margin": line.margin,
            "gradient norm": line.grad_norm,
        }
        figures = {"loss": line.loss, "accuracy": line.accuracy, "margin": line.margin}
        return Report(line, finite, figures, {})


class _StepsApart:
    """A model that is called without the attention mask, and remembers the
    log-probabilities (2,) of its rows.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self.logps_2 = torch.zeros(2)

    def __call__(self, attention_mask: Tensor, **given: Any) -> Any:
        outputs = self._model(**given)
        self.logps_2 = outputs.log_probs.detach().sum(1)
        return outputs
