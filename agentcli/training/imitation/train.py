"""`sft`: imitation of demonstrations, one sample per step, loss on the response only; TRL's SFTTrainer does the training.

Samples are tokenised before (`demonstrations.py`), with labels that are -100 on the prompt and on padding. There is no packing.
`model: tiny` makes a tokenizer from the demonstrations and a small model from settings; anything else is a model directory or
hub id.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import get_scheduler, set_seed
from trl import SFTConfig

from agentcli.errors import DataError, UsageError
from agentcli.policies.load import load_tokenizer
from agentcli.policies.tiny import make_model, make_tokenizer
from agentcli.records.files import derive_seed
from agentcli.records.settings import SftSettings, TrackingSettings
from agentcli.training.imitation.demonstrations import Sample, SampleCounts, read_steps, read_texts, tokenise
from agentcli.training.imitation.metrics import SftMetrics
from agentcli.training.imitation.trainer import ImitationTrainer, microbatches, sample_order
from agentcli.training.loop.arguments import trainer_arguments, trainer_seed
from agentcli.training.loop.checkpoints import load_trainable, save_checkpoint
from agentcli.training.loop.distributed import World, announced_world, check_world, wait_for_all
from agentcli.training.loop.recorder import Progress, Recorder, train_recorded
from agentcli.training.loop.snapshots import Facts, Snapshots, Trained, digest, model_fact, settings_fact
from agentcli.training.loop.trackers import check_trackers, tracked

TINY = "tiny"
SCHEDULES = (
    "linear",
    "cosine",
    "cosine_with_restarts",
    "polynomial",
    "constant",
    "constant_with_warmup",
    "inverse_sqrt",
)
"""Those of transformers that need neither evaluations nor settings of their own."""


def run_sft(
    trees: list[Path],
    out: Path,
    settings: SftSettings,
    seed: int,
    metrics: Path,
    entities: list[str],
    progress: Progress | None = None,
    ready: Callable[[], None] | None = None,
    snapshot: Path | None = None,
    tracking: TrackingSettings | None = None,
    run_name: str | None = None,
    tracking_dir: Path | None = None,
) -> dict[str, Any]:
    """Fine-tune settings.model on the imitable steps of `trees` and write a checkpoint (or adapter) directory to `out`.

    `entities` are names that a tiny tokenizer holds as whole tokens; other models ignore them. About a hundred metrics lines go
    to `metrics`. `ready` is called when everything has been read and checked, before anything is written. `snapshot`,
    `tracking`, `run_name` and `tracking_dir` are as for `train_policy`. The same inputs and seed give bit-identical weights on
    one machine with one thread count, stopped and continued or not.

    Returns the statistics of the manifest. Raises DataError when nothing can be imitated or a sample is longer than
    settings.max_length, UsageError for settings that cannot take effect, MissingError for a tracker that is not installed.
    """
    world = announced_world()
    _check(settings, world)
    check_trackers(tracking)
    set_seed(trainer_seed(seed))
    tokenizer, model = _model(trees, settings, seed, entities)
    samples, counts = _samples(trees, tokenizer, settings)
    updates = settings.updates or max(1, round(settings.epochs * len(samples) / settings.samples_per_update))
    order = sample_order(len(samples), updates * settings.samples_per_update, seed)
    facts: Facts = {"updates": updates, "settings": settings_fact(settings), "samples": digest(samples, order)}
    facts["starting model"] = model_fact(model)
    arguments = _arguments(settings, seed, updates, world)
    check_world(world, arguments.world_size)
    use_cache = model.config.use_cache
    batches = microbatches(order, settings.samples_per_microbatch, world)
    trainer = ImitationTrainer(model, arguments, tokenizer, _dataset(samples), batches)
    trained = _trained(trainer, model, updates)
    trainer.add_callback(snapshots := Snapshots(snapshot, settings.save_every_updates, facts, trained, world))
    trainer.recorder = Recorder(metrics, SftMetrics, updates, snapshots, world.main, progress)
    told = tracked(tracking, run_name, tracking_dir or metrics.with_name("tracking"), "sft", settings, world)
    train_recorded(trainer, trainer.recorder, told, 0, ready)
    model.config.use_cache = use_cache  # Trainer turns it off, and the checkpoint is there to generate
    if world.main:
        save_checkpoint(model, tokenizer, out)
    wait_for_all(world)
    last = trainer.recorder.lines[-1]
    return {
        **{name: getattr(counts, name) for name in counts.__struct_fields__},
        "updates": updates,
        "tokens": last.tokens,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "vocabulary": len(tokenizer),
        "final_loss": last.loss,
        "final_token_accuracy": last.token_accuracy,
    }


def _check(settings: SftSettings, world: World) -> None:
    if settings.model is None:
        raise UsageError("sft.model: not set; give --model DIR, a hub id, or tiny")
    for name in ("samples_per_update", "samples_per_microbatch"):
        if getattr(settings, name) < 1:
            raise UsageError(f"sft.{name}: {getattr(settings, name)}, must be at least 1")
    per_pass = settings.samples_per_microbatch * world.size
    if settings.samples_per_update % per_pass:
        raise UsageError(
            f"sft.samples_per_update: {settings.samples_per_update} is not a multiple of sft.samples_per_microbatch x processes "
            f"({per_pass})"
        )
    if settings.schedule not in SCHEDULES:
        raise UsageError(f"sft.schedule: no schedule {settings.schedule!r}; use one of {', '.join(SCHEDULES)}")
    if settings.updates is not None and settings.updates < 1:
        raise UsageError(f"sft.updates: {settings.updates}, must be at least 1")


def _model(trees: list[Path], settings: SftSettings, seed: int, entities: list[str]) -> tuple[Any, Any]:
    if settings.model != TINY:
        tokenizer = load_tokenizer(str(settings.model))
        return tokenizer, load_trainable(str(settings.model), settings.lora, "cpu")
    if settings.lora.rank > 0:
        raise UsageError("sft.lora.rank: a tiny model has no pretrained weights to adapt; set sft.lora.rank=0")
    tokenizer = make_tokenizer(read_texts(trees), entities)
    return tokenizer, make_model(settings.tiny, tokenizer, derive_seed("tiny model", seed))


def _samples(trees: list[Path], tokenizer: Any, settings: SftSettings) -> tuple[list[Sample], SampleCounts]:
    counts = SampleCounts()
    samples = [tokenise(tokenizer, step, place, settings.max_length) for place, step in read_steps(trees, counts)]
    if not samples:
        raise DataError(
            f"{', '.join(map(str, trees))}: no step to imitate ({counts.masked} masked, {counts.invalid} invalid)"
        )
    return samples, counts


def _arguments(settings: SftSettings, seed: int, updates: int, world: World) -> SFTConfig:
    return trainer_arguments(
        SFTConfig,
        seed,
        num_train_epochs=1,
        per_device_train_batch_size=settings.samples_per_microbatch,
        gradient_accumulation_steps=settings.samples_per_update // (settings.samples_per_microbatch * world.size),
        learning_rate=settings.learning_rate,
        lr_scheduler_type=settings.schedule,
        warmup_steps=math.ceil(settings.warmup_ratio * updates),
        weight_decay=settings.weight_decay,
        logging_steps=1,
        max_length=None,
        packing=False,
        dataset_kwargs={"skip_prepare_dataset": True},
    )


def _trained(trainer: ImitationTrainer, model: Any, updates: int) -> Trained:
    """The Trainer's own optimiser and schedule, the latter over all updates, also those that are done."""
    optimizer, arguments = trainer.create_optimizer(), trainer.args
    scheduler = get_scheduler(
        arguments.lr_scheduler_type,
        optimizer,
        num_warmup_steps=arguments.get_warmup_steps(updates),
        num_training_steps=updates,
    )
    trainer.lr_scheduler = scheduler
    return Trained(model, optimizer, scheduler, arguments.device)


def _dataset(samples: Sequence[Sample]) -> Dataset:
    return Dataset.from_dict(
        {
            "input_ids": [sample.prompt + sample.response for sample in samples],
            "labels": [[-100] * len(sample.prompt) + sample.response for sample in samples],
        }
    )
