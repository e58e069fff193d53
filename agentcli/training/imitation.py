"""`sft`: imitation of demonstrations with TRL's SFTTrainer.

Each step is one sample, and only its response has a loss. Samples are tokenised
beforehand (`demonstrations.py`), and their order is planned (`ImitationPlan`). `model:
tiny` builds a tokenizer from the demonstrations and a small model from the settings;
any other value is a model directory or hub id.

Without Triton, TRL's fused language-model head computes scores at every position of a
row. That takes a quarter of a tiny policy's time. On the CPU the same loss is therefore
computed only at the response's columns; a test checks that both agree. Packed samples
use the same method, because TRL's labels cannot express them: one position may predict
several tokens.

Shape suffixes: B samples, T padded length.
"""

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from datasets import Dataset
from torch import Tensor
from transformers import get_scheduler
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from agentcli.errors import DataError, UsageError
from agentcli.policies.chat import set_template_kwargs
from agentcli.policies.chat_tokens import ChatTokens
from agentcli.policies.load import load_tokenizer
from agentcli.policies.sight import Eyesight, load_sight, picture_names
from agentcli.policies.tiny import (
    look_of,
    make_model,
    make_processor,
    make_seeing_model,
    make_tokenizer,
)
from agentcli.prompts.protocol import Dialect
from agentcli.prompts.recorded import message_of, turns_before
from agentcli.records.files import derive_seed
from agentcli.records.step_rows import first_trajectories
from agentcli.records.training_settings import TINY, SftSettings
from agentcli.training.demonstrations import (
    Sample,
    SampleCounts,
    SampledForm,
    UnknownWords,
    first_pictures,
    messages_of,
    read_steps,
    read_texts,
    refuse_long_sample,
    sample_of,
)
from agentcli.training.loop.checkpoints import load_trainable
from agentcli.training.loop.distributed import Processes, is_sharded, place
from agentcli.training.loop.forward import named_pictures, pad_rows, target_scores
from agentcli.training.loop.job import Job
from agentcli.training.loop.microbatches import (
    Limit,
    Packing,
    PackingChoice,
    RowPath,
    check_packed,
    choose_packing,
    pair_cost_of,
    paths_of,
    row_batch,
    shuffled,
    shuffled_groups,
    sort_key,
)
from agentcli.training.loop.snapshots import Facts, Trained, digest
from agentcli.training.loop.template import TrainingTemplate
from agentcli.training.loop.trainer import (
    PlannedTrainer,
    Recorder,
    TrainerUpdate,
)
from agentcli.training.metrics import SftMetrics
from agentcli.training.steps import PictureShelf, refuse_pictures

IGNORED = -100
"""The label of positions without a loss."""
PACKING = "sft.packing"
UPDATES_COMPARED = 64
"""How many updates decide whether packing saves enough; the first are a random sample.
"""


@dataclass
class Told:
    """The samples of demonstrations."""

    samples: list[Sample]
    counts: SampleCounts
    trajectories: list[Hashable]
    """The first trajectory that contains each sample."""
    grow: bool = False
    """Whether any of them continues a conversation."""


class SamplePart(NamedTuple):
    """One microbatch and its update."""

    samples: list[Sample]
    update_tokens: int
    """Response tokens of the whole update, over all processes."""


@dataclass(frozen=True)
class ImitationPlan:
    """All microbatches of a training run, in order."""

    samples: Sequence[Sample]
    updates: Sequence[Sequence[int]]
    """The indices of the samples of each update."""
    limit: Limit
    processes: Processes
    choice: PackingChoice

    @property
    def order(self) -> list[int]:
        """The index of the sample at each position of the training."""
        return list(chain(*self.updates))

    @cached_property
    def microbatches_per_update(self) -> int:
        """Microbatches of each process, the same number in every update."""
        ranks = self.processes.size
        if self.limit.counts_rows(self._paths):
            # Without a remainder, which `_check` refuses.
            return len(self.updates[0]) // (self.limit.rows * ranks)
        return self.limit.most(self._paths, ranks)

    @cached_property
    def _paths(self) -> list[list[RowPath]]:
        """The samples of each update; those of one sequence together."""
        packed = self.choice.packing is not None
        return [paths_of(one, self.samples.__getitem__, packed) for one in self.updates]

    def dealt(self) -> Iterator[list[list[Sample]]]:
        """The microbatches of all processes, update after update."""
        count = self.microbatches_per_update * self.processes.size
        even = self.limit.counts_rows(self._paths)
        for paths in self._paths:
            parts = self.limit.dealt(paths, count, even)
            yield [[self.samples[row] for row in part] for part in parts]

    def parts(self) -> list[SamplePart]:
        """This process's microbatches: every `processes.size`-th one of an update."""
        parts = []
        for update in self.dealt():
            tokens = sum(len(sample.response) for sample in chain(*update))
            of_this_rank = update[self.processes.rank :: self.processes.size]
            parts += [SamplePart(batch, tokens) for batch in of_this_rank]
        return parts

    def length(self, number: int) -> int:
        """Prompt plus response of a sample, in tokens."""
        sample = self.samples[number]
        return len(sample.prompt) + len(sample.response)

    def packed_as_set(self, wanted: str, model: Any) -> "ImitationPlan":
        """The plan, packed if sft.packing (`wanted`) asks for it.

        Raises UsageError for `on` with a model that cannot be packed.
        """
        first = replace(self, updates=self.updates[:UPDATES_COMPARED])
        apart, together = first.dealt(), first._packed(model).dealt()
        flat = chain.from_iterable
        choice = choose_packing(PACKING, wanted, model, flat(apart), flat(together))
        return self._packed(model) if choice.packing else replace(self, choice=choice)

    def _packed(self, model: Any) -> "ImitationPlan":
        """The plan with the samples of each update sorted by their tokens, to be packed."""
        plan = self.sorted_by(lambda number: sort_key(self.samples[number]))
        return replace(plan, choice=PackingChoice(Packing(pair_cost_of(model))))

    def sorted_by(self, key: Callable[[int], Any]) -> "ImitationPlan":
        """The plan with the samples of each update sorted by a key of their numbers."""
        updates = [sorted(update, key=key) for update in self.updates]
        return replace(self, updates=updates)


def plan_imitation(
    samples: Sequence[Sample],
    updates: int,
    settings: SftSettings,
    seed: int,
    processes: Processes,
    trajectories: Sequence[Hashable] | None = None,
) -> ImitationPlan:
    """Plans passes over the samples, each in a new random order.

    An update may use the end of one pass and the beginning of the next. Where the
    trajectory of each sample is given, its samples stay together, so that packing
    computes a conversation once.
    """
    size = settings.samples_per_update
    order: list[int] = []
    while len(order) < updates * size:
        passes = len(order) // len(samples)
        if trajectories is None:
            order += shuffled(len(samples), "sft samples", seed, passes)
        else:
            order += shuffled_groups(trajectories, "sft trajectories", seed, passes)
    limit = Limit(settings.samples_per_microbatch, settings.tokens_per_microbatch)
    cut = [order[number * size : (number + 1) * size] for number in range(updates)]
    plan = ImitationPlan(samples, cut, limit, processes, PackingChoice(None))
    # A limit of tokens counts padding too, and rows of one length need none.
    return plan if limit.tokens is None else plan.sorted_by(plan.length)


def collate(samples: Sequence[Sample], pad: int) -> dict[str, Tensor]:
    """Right-padded input_ids, labels and attention_mask, all (B, T), as TRL expects.

    Prompt and padding have the label IGNORED.
    """
    ids_BT, response_BT = pad_rows(samples, pad)
    lengths = [len(prompt) + len(response) for prompt, response in samples]
    lengths_B1 = torch.tensor(lengths)[:, None]
    positions_T = torch.arange(max(lengths))
    mask_BT = positions_T < lengths_B1
    return {
        "input_ids": ids_BT,
        "labels": ids_BT.masked_fill(~response_BT, IGNORED),
        "attention_mask": mask_BT.long(),
    }


SCHEDULES = (
    "linear",
    "cosine",
    "cosine_with_restarts",
    "polynomial",
    "constant",
    "constant_with_warmup",
    "inverse_sqrt",
)
"""Schedules of transformers that need no evaluations and no further settings."""
LINES = 100
"""Metrics lines per training, approximately."""


class ImitationTraining(TrainingTemplate[SftSettings]):
    """Fine-tunes the job's model on the steps of demonstrations.

    A tiny tokenizer keeps `entities` whole. `dialect_of`: as in SampledForm.
    """

    metrics = SftMetrics
    carries = False
    plan: ImitationPlan
    updates: int

    def __init__(
        self,
        job: Job[SftSettings],
        entities: list[str],
        dialect_of: Callable[[bool], Dialect],
    ) -> None:
        super().__init__(job)
        self._entities = entities
        self._dialect_of = dialect_of

    def rows(self, trees: Sequence[Path]) -> int:
        """Reads model and samples, and plans the updates.

        Raises DataError if nothing can be imitated, or if a sample is longer than
        settings.max_length or could not be read.
        """
        job, settings = self.job, self.settings
        _check(settings, self.processes)
        self.tokenizer, self.sight, self.model = _model(job, trees, self._entities)
        self.words = UnknownWords(self.tokenizer)
        ends = self.model.generation_config.eos_token_id
        tokens = ChatTokens(self.tokenizer, ends, settings.max_length, self.sight)
        told = _samples(trees, tokens, self._dialect_of, job, self.words)
        self.samples, self.counts = told.samples, told.counts
        self.words.warn("the demonstrations", job.model)
        passes_in_updates = len(self.samples) / settings.samples_per_update
        enough = max(1, round(settings.epochs * passes_in_updates))
        self.updates = settings.updates or enough
        plan = plan_imitation(
            self.samples,
            self.updates,
            settings,
            job.seed,
            self.processes,
            told.trajectories if told.grow else None,
        )
        self.plan = plan.packed_as_set(settings.packing, self.model)
        return self.updates

    def facts(self) -> Facts:
        """Hashes of samples and pictures."""
        facts: Facts = {"samples": digest(self.samples, self.plan.order)}
        messages = messages_of(self.samples)
        if messages:
            facts["pictures"] = digest(picture_names(messages))
        return facts

    def trainer(self) -> PlannedTrainer:
        """Checks the packing, and makes TRL's trainer of the planned samples."""
        model, plan = self.model, self.plan
        settings = self.settings
        arguments = self.arguments(
            SFTConfig,
            settings.samples_per_microbatch,
            learning_rate=settings.learning_rate_of(self.job.model),
            lr_scheduler_type=settings.schedule,
            # The first of them has a rate of 0, so a last one is left to learn.
            warmup_steps=min(
                math.ceil(settings.warmup_ratio * self.updates), self.updates - 1
            ),
            weight_decay=settings.weight_decay,
            # TRL must not cut, pack or tokenise: the samples are planned already.
            max_length=None,
            packing=False,
            dataset_kwargs={"skip_prepare_dataset": True},
        )
        # Before the check, which must run the model where it will be trained.
        place(model, settings, self.processes, arguments.device)
        packing = plan.choice.packing
        if packing is not None:
            rows, pad = next(plan.dealt())[0], self.tokenizer.pad_token_id
            check_packed(PACKING, packing, model, rows, pad, arguments.device)
        return ImitationTrainer(
            model, arguments, self.tokenizer, plan.parts(), packing, self.sight
        )

    def optimised(self, trainer: PlannedTrainer) -> Trained:
        """The Trainer's default optimiser and schedule.

        The schedule covers all updates, including those already done.
        """
        optimizer = trainer.create_optimizer()
        arguments = trainer.args
        scheduler = get_scheduler(
            arguments.lr_scheduler_type,
            optimizer,
            num_warmup_steps=arguments.get_warmup_steps(self.updates),
            num_training_steps=self.updates,
        )
        # Else the Trainer makes one over only those updates that are left.
        trainer.lr_scheduler = scheduler
        return Trained(self.model, optimizer, scheduler, arguments.device)

    def statistics(self, lines: list[SftMetrics]) -> dict[str, Any]:
        """The counts of samples, the size of the model, and the last line."""
        model, words = self.model, self.words
        return {
            **msgspec.structs.asdict(self.counts),
            "updates": self.updates,
            "tokens": lines[-1].tokens,
            **self.plan.choice.statistics(),
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "vocabulary": len(self.tokenizer),
            "final_loss": lines[-1].loss,
            "final_token_accuracy": lines[-1].token_accuracy,
            "unknown_tokens": words.unknown,
            "unknown_words": words.frequent(),
        }


def _check(settings: SftSettings, processes: Processes) -> None:
    """Raises UsageError for settings that cannot take effect."""
    factor, advice = "the number of processes", ""
    per_pass = processes.size
    if settings.tokens_per_microbatch is None:
        factor = "sft.samples_per_microbatch x processes"
        advice = "lower sft.samples_per_microbatch, or "
        per_pass *= settings.samples_per_microbatch
    if settings.samples_per_update % per_pass:
        raise UsageError(
            f"sft.samples_per_update: {settings.samples_per_update} is not a multiple "
            f"of {factor} ({per_pass}); {advice}type --set "
            f"sft.samples_per_update={per_pass}"
        )
    if settings.schedule not in SCHEDULES:
        raise UsageError(
            f"sft.schedule: no schedule {settings.schedule!r}; use one of "
            f"{', '.join(SCHEDULES)}"
        )


def _model(
    job: Job[SftSettings],
    trees: Sequence[Path],
    entities: list[str],
) -> tuple[Any, Eyesight | None, Any]:
    """The tokenizer, the picture processor and the model: loaded, or new tiny ones."""
    settings = job.settings
    if job.model != TINY:
        tokenizer = load_tokenizer(job.model, job.chat_template_kwargs)
        sight = load_sight(job.model, job.chat_template_kwargs)
        model = load_trainable(job.model, settings.lora, settings.sharding)
        return tokenizer, sight, model
    if settings.lora.rank > 0:
        raise UsageError(
            "sft.lora.rank: a tiny model has no pretrained weights to adapt; set "
            "sft.lora.rank=0"
        )
    seed = derive_seed("tiny model", job.seed)
    pictures = first_pictures(trees)
    tokenizer = make_tokenizer(read_texts(trees), entities, sees=bool(pictures))
    set_template_kwargs(tokenizer, TINY, job.chat_template_kwargs)
    if not pictures:
        return tokenizer, None, make_model(settings.tiny, tokenizer, seed)
    look = look_of(pictures)
    processor = make_processor(tokenizer, settings.tiny, look)
    model = make_seeing_model(settings.tiny, tokenizer, look, seed)
    return tokenizer, Eyesight(processor), model


def _samples(
    trees: Sequence[Path],
    tokens: ChatTokens,
    dialect_of: Callable[[bool], Dialect],
    job: Job[SftSettings],
    words: UnknownWords,
) -> Told:
    """The samples, and counts of how all steps were used.

    `words` counts words that the tokenizer does not know. Raises DataError if there is
    no sample, for one that is too long or could not be read, and for pictures that the
    model cannot see.
    """
    counts = SampleCounts()
    form = SampledForm(tokens, dialect_of)
    told = Told([], counts, [])
    samples = told.samples
    first: dict[int, int] = {}
    begun = 0
    shelf = PictureShelf()
    places = ((path, *each) for path in trees for each in read_steps(path, counts))
    for path, source, tree, step in places:
        if tokens.sight is None:
            refuse_pictures(step.pictures, source, job.model)
        message = message_of(step, shelf.of(step, path))
        turns = turns_before(tree, step)
        sample = sample_of(tokens, message, step.response, turns)
        refuse_long_sample(sample, source, job.settings.max_length)
        form.check(sample, tree, step, source)
        words.add(sample.prompt, step.prompt)
        words.add(sample.response, step.response)
        samples.append(sample)
        # `read_steps` counts a tree before it yields its first step.
        if counts.trees > begun:
            begun, first = counts.trees, first_trajectories(tree)
        told.trajectories.append((begun, first[step.id]))
        told.grow = told.grow or bool(turns)
    if not samples:
        files = ", ".join(map(str, trees))
        raise DataError(
            f"{files}: no step to imitate ({counts.masked} masked, {counts.invalid} "
            f"invalid, {counts.errored} errored)"
        )
    return told


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
        self._hits = 0.0
        # Where Triton is missing, TRL's head would score every position of a row.
        on_cpu = args.device.type == "cpu"
        self._by_trl = not (on_cpu or packing or is_sharded(model))
        super().__init__(
            model=model,
            args=args,
            # TRL demands a dataset; what is trained on comes from `parts`.
            train_dataset=Dataset.from_dict({"part": list(range(len(parts)))}),
            processing_class=tokenizer,
        )

    def parts(self, done: int) -> Sequence[SamplePart]:
        """This rank's microbatches of all updates after the first `done`."""
        return self._parts[done * self.args.gradient_accumulation_steps :]

    def collate(self, part: SamplePart) -> dict[str, Tensor]:
        """The tensors of one microbatch."""
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
        # Taken out: no model's forward has such an argument.
        update_tokens = inputs.pop("update_tokens")
        if "labels" in inputs:
            tokens = int((inputs["labels"] != IGNORED).sum())
            trl: Any = super()
            loss = trl.compute_loss(model, inputs, num_items_in_batch=update_tokens)
            # TRL's accuracy is that of this microbatch.
            accuracy = self._metrics["train"]["mean_token_accuracy"][-1]
            self._tokens += tokens
            self._hits += accuracy * tokens
            return loss
        targets_N = inputs["targets_N"]
        self._tokens += len(targets_N)

        def hits(logits_nV: Tensor, part: slice) -> Tensor:
            return logits_nV.argmax(-1) == targets_N[part]

        logprobs_N, (hits_N,) = target_scores(model, inputs, looks=[hits])
        self._hits += float(hits_N.sum())
        loss = -logprobs_N.sum()
        # DDP averages gradients over the processes; the loss is a sum over all of them.
        return loss / update_tokens * self.accelerator.num_processes

    def line(self, latest: TrainerUpdate) -> SftMetrics | None:
        """Returns a metrics line about a hundred times per training.

        Its means cover the updates since the previous line.
        """
        sums = self._sums(latest.loss)
        # They are part of the snapshot: a resumed training goes on with half a line.
        self.recorder.counters = sums
        total = self.recorder.total
        # The last update is always due: the manifest reports its numbers.
        due = latest.update == total or latest.update % max(1, total // LINES) == 0
        if not due:
            return None
        self.recorder.counters = {"tokens": sums["tokens"]}
        return SftMetrics(
            update=latest.update,
            loss=sums["loss"] / sums["updates"],
            token_accuracy=sums["hits"] / sums["scored"],
            grad_norm=latest.grad_norm,
            learning_rate=latest.learning_rate,
            tokens=int(sums["tokens"]),
            seconds=self.recorder.seconds(),
        )

    def _sums(self, loss: float) -> dict[str, float]:
        """Sums since the last line, and all tokens so far, this update included."""
        # TRL clears them in its own `log`, which PlannedTrainer replaces.
        self._metrics["train"].clear()
        counted = torch.tensor([self._tokens, self._hits], device=self.args.device)
        tokens, hits = self.accelerator.reduce(counted, reduction="sum").tolist()
        # The counters have the tokens of all ranks; kept here, they would count twice.
        self._tokens, self._hits = 0, 0.0
        added = {
            "loss": loss,
            "updates": 1.0,
            "hits": hits,
            "scored": tokens,
            "tokens": tokens,
        }
        before = self.recorder.counters
        return {name: before.get(name, 0.0) + value for name, value in added.items()}
