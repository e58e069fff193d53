"""`train` with objective dpo: preference pairs through TRL's DPOTrainer (ETO).

Loss (Song et al. 2024): mean over pairs of -log sigmoid(beta * ((log pi - log
ref)(success) - (log pi - log ref)(failure))). The log-probability of a trajectory is
the sum over its response tokens, at temperature 1 whatever the sampling temperature:
DPO uses no ratio to the sampling policy, and ETO's loss has no temperature. No credit
is needed: outcomes decide (`steps.py`).

A trajectory is one row: its steps are concatenated, each with the prompt and response
that were really sampled. Position ids restart at every step and steps do not attend to
each other, so a response's log-probability is the policy's own in that step, and their
sum is log pi(trajectory). A model that connects the steps of a row is refused.
Only response tokens are scored; prompts, and with them all observations, are masked.
DPOTrainer would score every token after the first prompt, and let each step attend to
earlier ones. Here the batch says what is scored, and position ids separate the steps of
a row: transformers does that for a model that gets no attention mask.

ETO's agents answer in one growing conversation. Ours get a new prompt at every step,
with the history inside: a conversation built from their steps would be a text that no
policy here is ever asked to continue.

Shape suffixes: T padded length. The two rows of a batch are chosen, rejected.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from datasets import Dataset
from torch import Tensor
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer

from agentcli.errors import DataError
from agentcli.policies.load import load_tokenizer
from agentcli.prompts.recorded import message_of, turns_before
from agentcli.records.training_settings import TrainSettings
from agentcli.training.loop.checkpoints import load_frozen, load_trainable
from agentcli.training.loop.distributed import Processes, sum_over_ranks
from agentcli.training.loop.forward import StepTokeniser, scoring
from agentcli.training.loop.microbatches import refuse_gaps, shuffled
from agentcli.training.loop.snapshots import Facts, digest
from agentcli.training.loop.template import ObjectiveTraining
from agentcli.training.loop.trainer import (
    PlannedTrainer,
    Recorder,
    RunningFigures,
    TrainerUpdate,
)
from agentcli.training.metrics import DpoMetrics, means_of
from agentcli.training.steps import Pair, PairCounts, read_pairs, refuse_pictures

IGNORED = -100
AVERAGED = (
    *("loss", "accuracy", "margin", "chosen_reward", "rejected_reward"),
    "grad_norm",
)
"""The metrics whose means are in the manifest."""


class PreferenceTraining(ObjectiveTraining):
    """Trains on the preference pairs of a rollout.

    An update has settings.rows_per_update pairs, which are run one at a time. If the
    job's `reference` is None, it is the model that training starts from, its adapter
    included. A pair with a trajectory longer than train.options.max_length is left out
    and counted.
    """

    plan: "PairPlan"
    counts: dict[str, int]

    def rows(self, trees: Path) -> int:
        """Reads model and pairs, and plans the updates."""
        job, settings = self.job, self.settings
        self.tokenizer = load_tokenizer(job.model, job.chat_template_kwargs)
        self.model = load_trainable(job.model, settings.lora)
        pairs = self._pairs(trees)
        self.plan = plan_pairs(pairs, settings, job.seed, self.processes)
        return len(self.plan.updates)

    def _pairs(self, trees: Path) -> list["TokenPair"]:
        """The pairs that are short enough. Counts all trees and pairs.

        Raises DataError if there are none.
        """
        options, counts = self.options, PairCounts()
        chosen = read_pairs(trees, options.pairs_per_task, self.job.seed, counts)
        tokenise = StepTokeniser(self.tokenizer, self.model, self.job.model)
        pairs = tokenise_pairs(chosen, tokenise)
        if not pairs:
            raise DataError(
                f"{trees}: no preference pair: no task has both a success and a failure "
                f"({counts.trees} trees, {counts.successes} successes, {counts.failures} "
                "failures); roll out more tasks, more leaves (rollout.leaves) or warmer "
                "(policy.temperature)"
            )
        short = [pair for pair in pairs if pair.length <= options.max_length]
        if not short:
            shortest = min(pair.length for pair in pairs)
            raise DataError(
                f"{trees}: all {len(pairs)} pairs have a trajectory of more than "
                f"train.options.max_length ({options.max_length}) tokens, the shortest "
                f"{shortest}; set train.options.max_length higher or prompt.history lower"
            )
        counts.pairs = len(short)
        too_long = len(pairs) - len(short)
        self.counts = {**msgspec.structs.asdict(counts), "pairs_too_long": too_long}
        return short

    def facts(self) -> Facts:
        return {"pairs": digest(self.plan.pairs, self.plan.updates)}

    def trainer(self) -> PlannedTrainer:
        """Computes the reference's log-probabilities, in TRL's preparation."""
        arguments = self.arguments(
            DPOConfig,
            rows=1,
            beta=self.options.beta,
            # Long pairs have been left out and counted. TRL would cut them.
            max_length=None,
            precompute_ref_log_probs=True,
            disable_dropout=False,
            max_grad_norm=self.settings.max_grad_norm,
        )
        reference = None
        if self.job.reference is not None:
            reference = load_frozen(self.job.reference, self.settings.lora)
            if hasattr(reference, "get_base_model"):
                # TRL takes no PeftModel here; the layers of the adapter stay in it.
                reference = reference.get_base_model()
        return PreferenceTrainer(
            self.model, reference, arguments, self.tokenizer, self.plan
        )

    def statistics(self, lines: list[DpoMetrics]) -> dict[str, Any]:
        """The counts of pairs, and the means of the metrics."""
        return {
            **self.counts,
            "updates_before": self.trained.updates_before,
            "updates": len(lines),
            "tokens": sum(line.tokens for line in lines),
            "means": means_of(lines, AVERAGED),
            "final_margin": lines[-1].margin,
            "final_accuracy": lines[-1].accuracy,
        }


Trajectory = list[tuple[list[int], list[int]]]
"""Token ids of prompt and response for each step."""


class TokenPair(NamedTuple):
    """A pair as token ids."""

    chosen: Trajectory
    rejected: Trajectory

    @property
    def length(self) -> int:
        """Length of the longer trajectory in tokens, prompts included."""
        lengths = []
        for steps in self:
            lengths.append(sum(len(prompt) + len(answer) for prompt, answer in steps))
        return max(lengths)


def tokenise_pairs(pairs: Iterable[Pair], tokenise: StepTokeniser) -> list[TokenPair]:
    """The pairs as token ids. Raises DataError for a token that the model lacks."""
    token_pairs = []
    for pair in pairs:
        token_pair = TokenPair([], [])
        for steps, tokens in zip((pair.chosen, pair.rejected), token_pair, strict=True):
            for step in steps:
                place = f"{pair.place}: steps[{step.id}]"
                refuse_pictures(step.pictures, place, "train.objective dpo")
                message, turns = message_of(step), turns_before(pair.tree, step)
                given = step.prompt_ids or None
                tokens.append(tokenise(message, step.token_ids, place, turns, given))
        token_pairs.append(token_pair)
    return token_pairs


def batch_of(pair: TokenPair, pad: int) -> dict[str, Tensor]:
    """input_ids, position_ids, completion_mask, attention_mask: all (2, T), int64.

    Rows are padded on the right. completion_mask marks the response tokens. Padding has
    position 0 everywhere, so each padding token counts as a separate step.
    """
    ids_2T = torch.full((2, pair.length), pad)
    positions_2T = torch.zeros_like(ids_2T)
    response_2T = torch.zeros_like(ids_2T)
    mask_2T = torch.zeros_like(ids_2T)
    for row, steps in enumerate(pair):
        start = 0
        for prompt, response in steps:
            middle = start + len(prompt)
            end = middle + len(response)
            ids_2T[row, start:end] = torch.tensor([*prompt, *response])
            positions_2T[row, start:end] = torch.arange(end - start)
            response_2T[row, middle:end] = 1
            mask_2T[row, start:end] = 1
            start = end
    return {
        "input_ids": ids_2T,
        "position_ids": positions_2T,
        "completion_mask": response_2T,
        "attention_mask": mask_2T,
    }


class PairUpdate(NamedTuple):
    """One optimiser update: the indices of its pairs."""

    epoch: int
    pairs: list[int]


@dataclass(slots=True)
class PairPlan:
    """All updates of a training, in order.

    Microbatch m of rank r is the pair with index m * ranks + r in the update.
    """

    pairs: list[TokenPair]
    updates: list[PairUpdate]
    processes: Processes
    microbatches_per_update: int
    """Microbatches per rank, the same number in every update."""
    reference: Tensor = field(default_factory=lambda: torch.zeros(0, 2))
    """Log-probabilities (pairs, 2) of chosen and rejected under the reference."""


def plan_pairs(
    pairs: list[TokenPair],
    settings: TrainSettings,
    seed: int,
    processes: Processes,
) -> PairPlan:
    """Plans all updates of all epochs.

    Every epoch shuffles all pairs with its own seed and cuts them into updates of
    `rows_per_update`; the last may be smaller.
    """
    size = settings.rows_per_update
    updates = []
    for epoch in range(settings.epochs):
        order = shuffled(len(pairs), "train pairs", seed, epoch)
        for start in range(0, len(order), size):
            updates.append(PairUpdate(epoch, order[start : start + size]))
    microbatches_per_update = math.ceil(min(size, len(pairs)) / processes.size)
    return PairPlan(pairs, updates, processes, microbatches_per_update)


Part = tuple[PairUpdate, int]
"""An update, and the index of one of its pairs."""


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
        for each in (self.model, model):
            check_apart(each, plan.pairs, self._pad, device)
        logps = torch.zeros(len(plan.pairs), 2, device=device)
        processes = plan.processes
        of_this_rank = range(processes.rank, len(plan.pairs), processes.size)
        with scoring(model), self.accelerator.autocast():
            for index in of_this_rank:
                logps[index] = pair_logps(model, plan.pairs[index], self._pad, device)
        # Every rank has scored its own pairs and left 0 for the others.
        plan.reference = sum_over_ranks(logps, processes).cpu()
        # Its numbers are all that is needed, so its memory is freed.
        self.ref_model = None
        return dataset

    def parts(self, done: int) -> list[Part]:
        """This rank's planned pairs that are not done, one per microbatch."""
        plan, processes = self._plan, self._plan.processes
        places = range(plan.microbatches_per_update * processes.size)
        return [
            (update, place)
            for update in plan.updates[done:]
            for place in places[processes.rank :: processes.size]
        ]

    def collate(self, part: Part) -> dict[str, Tensor]:
        """The tensors of `batch_of` for one pair, and further inputs of the loss.

        ref_chosen_logps and ref_rejected_logps are (1,), and share_1 is 1 / pairs of
        the update.
        """
        plan, pad = self._plan, self._pad
        update, place = part
        if place < len(update.pairs):
            pair = update.pairs[place]
            batch = batch_of(plan.pairs[pair], pad)
            reference_2 = plan.reference[pair]
            share = 1 / len(update.pairs)
        else:
            # Every rank needs a forward pass: two tokens per side, which do not count.
            filler = [([pad], [pad])]
            batch = batch_of(TokenPair(filler, filler), pad)
            reference_2 = torch.zeros(2)
            share = 0.0
        batch["ref_chosen_logps"] = reference_2[:1]
        batch["ref_rejected_logps"] = reference_2[1:]
        batch["share_1"] = torch.tensor([share])
        return batch

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


def pair_logps(model: Any, pair: TokenPair, pad: int, device: torch.device) -> Tensor:
    """The log-probabilities (2,) of a pair's trajectories under TRL's model."""
    batch = batch_of(pair, pad)
    batch = {name: value.to(device) for name, value in batch.items()}
    ignored_2T = batch.pop("completion_mask") == 0
    labels_2T = batch["input_ids"].masked_fill(ignored_2T, IGNORED)
    apart = _StepsApart(model)
    apart(**batch, labels=labels_2T, use_cache=False, fused_lm_head=True)
    return apart.logps_2


def check_apart(
    model: Any, pairs: list[TokenPair], pad: int, device: torch.device
) -> None:
    """Raises AgentCliError if steps in a row change each other's log-probabilities.

    Runs two steps of the longest trajectory, both ways.
    """
    trajectories = [trajectory for pair in pairs for trajectory in pair]
    steps = max(trajectories, key=len)[:2]
    if len(steps) < 2:
        return
    with scoring(model):
        together_2 = pair_logps(model, TokenPair(steps, steps[::-1]), pad, device)
        alone_2 = pair_logps(model, TokenPair(steps[:1], steps[1:]), pad, device)
    tokens = sum(len(response) for _, response in steps)
    gaps_2 = (together_2 - alone_2.sum()) / tokens
    remedy = "choose another train.objective, or another model"
    refuse_gaps(gaps_2, model, device, "train.objective dpo", remedy)


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
