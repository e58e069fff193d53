"""`sft`: imitation of demonstrations with TRL's SFTTrainer.

Each step is one sample, and only its response has a loss. Samples are tokenised
beforehand (`demonstrations.py`). `model: tiny` builds a tokenizer from the
demonstrations and a small model from the settings; any other value is a model directory
or hub id.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from transformers import get_scheduler
from trl.trainer.sft_config import SFTConfig

from agentcli.errors import DataError, UsageError
from agentcli.policies.chat import set_template_kwargs
from agentcli.policies.chat_tokens import ChatTokens
from agentcli.policies.load import load_tokenizer
from agentcli.policies.sight import (
    Eyesight,
    beside_weights,
    load_sight,
    picture_names,
)
from agentcli.policies.tiny import make_model, make_tokenizer
from agentcli.policies.tiny_sight import look_of, make_processor, make_seeing_model
from agentcli.prompts.protocol import Dialect, Message
from agentcli.records.files import derive_seed
from agentcli.records.training_settings import TINY, SftSettings
from agentcli.training.imitation.batches import PACKING, plan_imitation
from agentcli.training.imitation.demonstrations import (
    Sample,
    SampleCounts,
    SampledForm,
    first_pictures,
    messages_of,
    read_steps,
    read_texts,
    refuse_long_sample,
    sample_of,
)
from agentcli.training.imitation.metrics import SftMetrics
from agentcli.training.imitation.trainer import ImitationTrainer
from agentcli.training.imitation.unknown import UnknownWords
from agentcli.training.loop.arguments import trainer_arguments
from agentcli.training.loop.checkpoints import load_trainable
from agentcli.training.loop.distributed import Processes
from agentcli.training.loop.job import Job, keeping_cache, run, save, start
from agentcli.training.loop.packing_choice import check_packed
from agentcli.training.loop.pictures import PictureShelf, refuse_pictures
from agentcli.training.loop.sharding import place
from agentcli.training.loop.snapshots import (
    Facts,
    Trained,
    digest,
    model_fact,
    settings_fact,
)

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


def run_sft(
    job: Job[SftSettings],
    trees: Sequence[Path],
    entities: list[str],
    dialect_of: Callable[[bool], Dialect],
) -> dict[str, Any]:
    """Fine-tunes the job's model on the steps of `trees` that can be imitated.

    Writes a checkpoint or adapter directory, and about a hundred metrics lines.
    A tiny tokenizer keeps `entities` whole. `dialect_of`: as in SampledForm.

    Returns the statistics for the manifest. Raises DataError if nothing can be imitated
    or a sample is longer than settings.max_length or could not be read, UsageError for
    settings that cannot take effect, MissingError for a tracker that is not installed.
    """
    settings = job.settings
    processes = start(job)
    _check(settings, processes)
    tokenizer, sight, model = _model(job, trees, entities)
    words = UnknownWords(tokenizer)
    ends = model.generation_config.eos_token_id
    tokens = ChatTokens(tokenizer, ends, settings.max_length, sight)
    samples, counts = _samples(trees, tokens, dialect_of, job, words)
    words.warn("the demonstrations", job.model)
    updates = _updates(settings, len(samples))
    plan = plan_imitation(samples, updates, settings, job.seed, processes)
    plan = plan.packed_as_set(settings.packing, model)
    packing = plan.choice.packing
    facts: Facts = {
        "updates": updates,
        "settings": settings_fact(settings),
        "samples": digest(samples, plan.order),
        "starting model": model_fact(model),
        **_picture_fact(samples),
    }
    arguments = _arguments(
        job, updates, processes, plan.microbatches_per_update, sees=sight is not None
    )
    place(model, settings, processes, arguments.device)
    if packing is not None:
        rows, pad = next(plan.batches()), tokenizer.pad_token_id
        check_packed(PACKING, packing, model, rows, pad, arguments.device)
    parts = plan.parts()
    with keeping_cache(model):
        trainer = ImitationTrainer(model, arguments, tokenizer, parts, packing, sight)
        trained = _trained(trainer, model, updates)
        lines = run(job, trainer, trained, SftMetrics, facts, updates, processes)
    save(job, beside_weights(tokenizer, sight), trained, processes)
    return {
        **msgspec.structs.asdict(counts),
        "updates": updates,
        "tokens": lines[-1].tokens,
        **plan.choice.statistics(),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "vocabulary": len(tokenizer),
        "final_loss": lines[-1].loss,
        "final_token_accuracy": lines[-1].token_accuracy,
        "unknown_tokens": words.unknown,
        "unknown_words": words.frequent(),
    }


def _updates(settings: SftSettings, samples: int) -> int:
    """The number of updates: as set, or enough for so many epochs."""
    passes_in_updates = samples / settings.samples_per_update
    return settings.updates or max(1, round(settings.epochs * passes_in_updates))


def _picture_fact(samples: Sequence[Sample]) -> Facts:
    """A hash of the pictures, if there are any."""
    messages = messages_of(samples)
    return {"pictures": digest(picture_names(messages))} if messages else {}


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
        return tokenizer, sight, load_trainable(job.model, settings.lora)
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
) -> tuple[list[Sample], SampleCounts]:
    """The samples, and counts of how all steps were used.

    `words` counts words that the tokenizer does not know. Raises DataError if there is
    no sample, for one that is too long or could not be read, and for pictures that the
    model cannot see.
    """
    counts = SampleCounts()
    form = SampledForm(tokens, dialect_of)
    samples: list[Sample] = []
    shelf = PictureShelf()
    places = ((path, *each) for path in trees for each in read_steps(path, counts))
    for path, source, tree, step in places:
        if tokens.sight is None:
            refuse_pictures(step.pictures, source, job.model)
        message = Message((step.prompt, *shelf.of(step, path)))
        sample = sample_of(tokens, message, step.response)
        refuse_long_sample(sample, source, job.settings.max_length)
        form.check(sample, tree, step, source)
        words.add(sample.prompt, step.prompt)
        words.add(sample.response, step.response)
        samples.append(sample)
    if not samples:
        files = ", ".join(map(str, trees))
        raise DataError(
            f"{files}: no step to imitate ({counts.masked} masked, {counts.invalid} "
            f"invalid, {counts.errored} errored)"
        )
    return samples, counts


def _arguments(
    job: Job[SftSettings],
    updates: int,
    processes: Processes,
    microbatches_per_update: int,
    sees: bool,
) -> SFTConfig:
    """The settings of the job in the form that TRL takes."""
    settings = job.settings
    return trainer_arguments(
        SFTConfig,
        job.seed,
        processes,
        bf16=settings.bf16,
        checkpointing=settings.gradient_checkpointing,
        sees=sees,
        per_device_train_batch_size=settings.samples_per_microbatch,
        gradient_accumulation_steps=microbatches_per_update,
        learning_rate=settings.learning_rate_of(job.model),
        lr_scheduler_type=settings.schedule,
        warmup_steps=math.ceil(settings.warmup_ratio * updates),
        weight_decay=settings.weight_decay,
        max_length=None,
        packing=False,
        dataset_kwargs={"skip_prepare_dataset": True},
    )


def _trained(trainer: ImitationTrainer, model: Any, updates: int) -> Trained:
    """Creates the Trainer's default optimiser and schedule.

    The schedule covers all updates, including those already done.
    """
    optimizer = trainer.create_optimizer()
    arguments = trainer.args
    scheduler = get_scheduler(
        arguments.lr_scheduler_type,
        optimizer,
        num_warmup_steps=arguments.get_warmup_steps(updates),
        num_training_steps=updates,
    )
    trainer.lr_scheduler = scheduler
    return Trained(model, optimizer, scheduler, arguments.device)
