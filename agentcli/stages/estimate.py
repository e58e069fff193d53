"""The disk, memory and time that --dry-run expects, and how they were estimated.

Disk and memory follow from the number of parameters. Time, and the bytes of a tree, are
those of the newest stage with the same settings beside the run; without one they are
not known.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import msgspec
from safetensors import SafetensorError

from agentcli.errors import AgentCliError
from agentcli.policies.load import weight_shapes
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import Settings
from agentcli.records.training_settings import LoraSettings
from agentcli.records.types import StageRecord
from agentcli.stages.plan import plain

PROCESS_BYTES = 660_000_000
"""Python with torch and transformers, as measured on a CPU."""
ENGINE_BYTES = 60_000_000
"""One engine process, as measured in generated games."""
WEIGHT, GRADIENT, MOMENTS = 4, 4, 8
"""Bytes a parameter in training: all is float32."""
OF_ONE_RUN = {
    "environment": ("tasks", "shard", "where", "panel"),
    "policy": ("model", "adapter"),
    "rollout": ("iteration", "budget", "tasks_per_step"),
    "train": ("credit", "reference", "learning_rate"),
}
"""Settings in which the stage that is looked back at may differ."""
SAMPLED_BY = ("environment", "policy", "prompt", "rollout")
"""Settings on which the time of a tree depends."""
LOOK_BACK = 4
"""Iterations of one loop that are averaged."""


class ModelSize(NamedTuple):
    """The parameters of a model."""

    all: int
    trained: int


class Pace(NamedTuple):
    """The cost of a tree in an earlier stage."""

    seconds: float
    bytes: float
    run: str


def parameters_of(model: str | None, lora: LoraSettings) -> ModelSize | None:
    """The parameters of a model, and those of them that are trained.

    None where its files are not here, or cannot be read.
    """
    if model is None:
        return None
    try:
        shapes = weight_shapes(model)
    except (AgentCliError, SafetensorError, OSError):
        return None
    if shapes is None:
        return None
    adapters = [name for name in shapes if "lora_" in name]
    total = sum(math.prod(shape) for shape in shapes.values())
    if adapters:
        return ModelSize(total, sum(math.prod(shapes[name]) for name in adapters))
    if lora.rank == 0:
        return ModelSize(total, total)
    linear = [shape for name, shape in shapes.items() if _is_adapted(name, shape)]
    added = sum(lora.rank * sum(shape) for shape in linear)
    return ModelSize(total + added, added)


def _is_adapted(name: str, shape: Sequence[int]) -> bool:
    """Whether LoRA adapts a weight: a linear layer that is neither input nor output."""
    return len(shape) == 2 and "embed" not in name and "lm_head" not in name


def sampling_bytes(parameters: ModelSize, settings: Settings) -> int:
    """Memory for weights and engines, without the cache of keys and values."""
    engines = settings.environment.processes * ENGINE_BYTES
    policy = settings.policy
    is_half = policy.dtype in ("bfloat16", "float16")
    on_gpu = policy.dtype == "auto" and policy.device.startswith("cuda")
    return engines + (2 if is_half or on_gpu else WEIGHT) * parameters.all


def training_bytes(parameters: ModelSize) -> int:
    """Memory for weights, gradients and optimiser, without activations."""
    return WEIGHT * parameters.all + (GRADIENT + MOMENTS) * parameters.trained


def checkpoint_bytes(parameters: ModelSize) -> int:
    """Weights and optimiser on disk; of an adapter only its own."""
    return (WEIGHT + MOMENTS) * parameters.trained


def pace_of(settings: Settings, out: Path, stage: str, *sections: str) -> Pace | None:
    """The cost of a tree in the newest `stage` with the same settings beside `out`."""
    wanted = _compared(plain(settings), sections)
    for run in _newest_runs(out.parent):
        same = []
        for folder in (run, *sorted(run.glob("iteration_*"))):
            record = _record(folder, stage)
            if record and _compared(record.settings, sections) == wanted:
                same.append((folder, record))
        if same:
            return _pace(run, same[-LOOK_BACK:])
    return None


def _newest_runs(folder: Path) -> Iterator[Path]:
    manifests = [path for path in folder.glob("*/manifest.json") if path.is_file()]
    loops = folder.glob("*/iteration_000/manifest.json")
    runs = {path.parent for path in manifests}
    runs |= {path.parent.parent for path in loops}
    runs = {run for run in runs if not run.is_symlink()}
    yield from sorted(runs, key=lambda run: run.stat().st_mtime, reverse=True)


def _record(folder: Path, stage: str) -> StageRecord | None:
    try:
        return RunDirectory(folder).finished(stage)
    except (AgentCliError, OSError):
        return None


def _compared(settings: dict[str, Any], sections: Sequence[str]) -> dict[str, Any]:
    """The sections without what is OF_ONE_RUN."""
    compared = {}
    for section in sections:
        values = settings.get(section)
        if isinstance(values, dict):
            left_out = OF_ONE_RUN.get(section, ())
            values = {name: values[name] for name in values if name not in left_out}
        compared[section] = values
    return compared


def _pace(run: Path, stages: Sequence[tuple[Path, StageRecord]]) -> Pace | None:
    """The mean over some stages of one run."""
    seconds = []
    sizes = []
    for folder, record in stages:
        trees = record.counts.get("trees") or record.statistics.get("trees")
        file = RunDirectory(folder).trees
        if not isinstance(trees, int) or trees == 0 or "wall" not in record.seconds:
            continue
        seconds.append(record.seconds["wall"] / trees)
        if file.exists():
            sizes.append(file.stat().st_size / trees)
    if not seconds:
        return None
    return Pace(fmean(seconds), fmean(sizes) if sizes else 0.0, str(run))


class Expected(msgspec.Struct, kw_only=True):
    """The estimate of a stage. None: not known."""

    disk_bytes: int | None = None
    """Left on the disk when the stage has ended."""
    memory_bytes: int | None = None
    seconds: int | None = None
    basis: str
    """How it was estimated."""


def expected_of_rollout(
    settings: Settings, out: Path, model: str | None, tasks: int
) -> Expected:
    """The estimate of a rollout."""
    parameters = parameters_of(model, LoraSettings())
    pace = pace_of(settings, out, "rollout", *SAMPLED_BY)
    memory = parameters and PROCESS_BYTES + sampling_bytes(parameters, settings)
    return Expected(
        disk_bytes=pace and round(pace.bytes * tasks),
        memory_bytes=memory,
        seconds=pace and round(pace.seconds * tasks),
        basis=_basis(parameters, pace, "the weights are in memory once"),
    )


def expected_of_training(
    settings: Settings, out: Path, model: str, trees: int
) -> Expected:
    """The estimate of one training on `trees` trees."""
    parameters = parameters_of(model, settings.train.lora)
    pace = pace_of(settings, out, "train", "train")
    memory = parameters and PROCESS_BYTES + training_bytes(parameters)
    note = (
        "16 bytes of memory for a trained parameter, 4 for another, without "
        "activations; 12 bytes of disk, and as many again for the snapshot while it "
        "trains"
    )
    return Expected(
        disk_bytes=parameters and checkpoint_bytes(parameters),
        memory_bytes=memory,
        seconds=pace and round(pace.seconds * trees),
        basis=_basis(parameters, pace, note),
    )


def expected_of_imitation(settings: Settings, model: str) -> Expected:
    """The estimate of sft, which keeps no optimiser."""
    parameters = parameters_of(model, settings.sft.lora)
    note = (
        "16 bytes of memory for a trained parameter, 4 for another, without "
        "activations; 4 bytes of disk, and 12 for the snapshot while it trains"
    )
    return Expected(
        disk_bytes=parameters and WEIGHT * parameters.trained,
        memory_bytes=parameters and PROCESS_BYTES + training_bytes(parameters),
        basis=_basis(parameters, None, note),
    )


def expected_of_loop(settings: Settings, out: Path, model: str, tasks: int) -> Expected:
    """The estimate of a loop with `tasks` trees an iteration."""
    iterations = settings.run.iterations
    parameters = parameters_of(model, settings.train.lora)
    rollout = pace_of(settings, out, "rollout", *SAMPLED_BY)
    training = pace_of(settings, out, "train", "train")
    disk = memory = seconds = None
    if parameters:
        memory = training_bytes(parameters) + sampling_bytes(parameters, settings)
        memory += PROCESS_BYTES
        disk = _kept(settings) * checkpoint_bytes(parameters)
    if disk is not None and rollout:
        disk += round(rollout.bytes * tasks * iterations)
    if rollout and training:
        seconds = round((rollout.seconds + training.seconds) * tasks * iterations)
    note = (
        "sampling and training in one process, without activations; weights and "
        f"optimisers of {_kept(settings)} iterations (run.keep)"
    )
    if rollout is None:
        note += "; without the files of the trees"
    if settings.run.evaluate_every is not None:
        note += "; without the time and the files of evaluations"
    return Expected(
        disk_bytes=disk,
        memory_bytes=memory,
        seconds=seconds,
        basis=_basis(parameters, rollout, note),
    )


def _kept(settings: Settings) -> int:
    """The most iterations whose weights are on the disk in the end."""
    run = settings.run
    if run.keep is None:
        return run.iterations
    best = run.evaluate_every is not None
    return min(run.iterations, run.keep + best)


def _basis(parameters: ModelSize | None, pace: Pace | None, note: str) -> str:
    """How an estimate came about, in a sentence."""
    if parameters is None:
        size = "the model's files are not here, so its size is not known"
    else:
        size = f"{parameters.all:,} parameters, {parameters.trained:,} of them trained"
    if pace is None:
        time = "no run beside it has the same settings, so the time is not known"
    else:
        time = f"{pace.seconds:.3g} s and {pace.bytes:,.0f} bytes a tree, as {pace.run}"
    return f"{size}; {note}; {time}"
