"""The disk, memory and time that --dry-run expects, and how they were estimated.

Disk and memory are computed from the number of parameters. Time, and the size of a
tree, come from the newest stage with the same settings in a neighbouring run; without
one they are unknown.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from safetensors import SafetensorError

from agentcli.errors import AgentCliError
from agentcli.policies.load import adapter_base
from agentcli.records.processes import process_count
from agentcli.records.settings import Settings
from agentcli.records.training_settings import (
    LoraSettings,
    SftSettings,
    TrainSettings,
)
from agentcli.records.types import Step
from agentcli.stages.memory import (
    ACTIVATIONS,
    MOMENTS,
    WEIGHT,
    Bytes,
    MemoryNeed,
    ModelSize,
    Remedy,
    RowSize,
    device_of,
    divisors,
    longest_row,
    loop_memory,
    sampled_rows,
    sampling_devices,
    sampling_memory,
    shape_of,
    training_memory,
)
from agentcli.stages.pace import SAMPLED_BY, Pace, pace_of
from agentcli.stages.trees import checked_trees, count_trees
from agentcli.training.objectives import not_read

SAMPLED_ROWS = "policy.batch_rows"
LAYER = re.compile(r"\.\d+\.")
"""The layer number in the name of a weight."""


def parameters_of(model: str | None, lora: LoraSettings) -> ModelSize | None:
    """The number of parameters of a model, and of those that are trained.

    None if its files are not on this machine or cannot be read.
    """
    if model is None:
        return None
    try:
        shapes = weight_shapes(model)
    except (AgentCliError, SafetensorError, OSError):
        return None
    if shapes is None:
        return None
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    total = sum(sizes.values())
    trained = sum(size for name, size in sizes.items() if "lora_" in name)
    if lora.rank and not trained:
        linear = [shape for name, shape in shapes.items() if _is_adapted(name, shape)]
        trained = sum(lora.rank * sum(shape) for shape in linear)
        total += trained
    return ModelSize(total, trained or total, *_units(sizes))


def _units(sizes: Mapping[str, int]) -> tuple[int, int]:
    """The parameters of the largest layer, and those outside all layers."""
    layers = defaultdict[str, int](int)
    outside = 0
    for name, size in sizes.items():
        number = LAYER.search(name)
        if number is None:
            outside += size
        else:
            layers[number[0]] += size
    return max(layers.values(), default=0), outside


def weight_shapes(model: str) -> dict[str, list[int]] | None:
    """The shape of every weight by name, read from the headers of a directory's files.

    For an adapter, includes its base model. None if the files are not on this machine.
    """
    from safetensors import safe_open

    base = adapter_base(model)
    shapes = weight_shapes(base) if base else {}
    files = sorted(Path(model).glob("*.safetensors"))
    if shapes is None or not files:
        return None
    for file in files:
        with safe_open(file, framework="np") as weights:
            for name in weights.keys():  # noqa: SIM118 - no mapping
                shapes[name] = list(weights.get_slice(name).get_shape())
    return shapes


def _is_adapted(name: str, shape: Sequence[int]) -> bool:
    """Whether LoRA adapts a weight: a linear layer, but not embedding or head."""
    return len(shape) == 2 and "embed" not in name and "lm_head" not in name


def checkpoint_bytes(parameters: ModelSize) -> int:
    """Weights and optimiser state on disk; for an adapter, only its own."""
    return (WEIGHT + MOMENTS) * parameters.trained


class Expected(msgspec.Struct, kw_only=True):
    """The estimate of a stage. None: unknown."""

    disk_bytes: int | None = None
    """Left on disk when the stage has finished."""
    memory_bytes: int | None = None
    """The sum of `memory`."""
    memory: Bytes = {}
    """By purpose."""
    devices: int = 1
    """Number of devices that compute, each with this memory."""
    free_bytes: int | None = None
    """The memory that is free on one device."""
    change: str = ""
    """The setting to change if less memory is free; "" if enough is."""
    seconds: int | None = None
    basis: str
    """How the estimate was made."""


def _in_memory(need: MemoryNeed | None) -> dict[str, Any]:
    """The memory fields of an Expected."""
    if need is None:
        return {}
    return {
        "memory_bytes": need.total,
        "memory": need.parts,
        "devices": need.devices,
        "free_bytes": need.device.free,
        "change": need.advice,
    }


def _remedy(setting: str, value: int) -> Remedy:
    """Lowers a number of rows to one that divides it."""
    return Remedy(setting, value, divisors(value, value))


def _of_microbatch(
    section: str,
    settings: TrainSettings | SftSettings,
    size: RowSize,
    most: int,
) -> Remedy:
    """Lowers the tokens of a microbatch if they are limited, else its rows.

    They are lowered to a divisor of `most` rows, or of the tokens that are set.
    """
    setting = f"{section}.{settings.microbatch_limit}"
    held = size.rows
    if settings.tokens_per_microbatch is not None:
        most = settings.tokens_per_microbatch
        held = min(most, size.rows * size.tokens)
    return Remedy(setting, held, divisors(most, held))


def _together(settings: TrainSettings | SftSettings, rows: int, name: str) -> str:
    """What a forward pass holds, in words."""
    if settings.tokens_per_microbatch is not None:
        return f"{settings.tokens_per_microbatch} tokens"
    return f"{rows} {name} as long as the longest"


def _sharing(section: str, settings: TrainSettings | SftSettings) -> str:
    """The advice on sharing a model between processes."""
    if settings.sharding == "fsdp":
        return "share the model among more processes, "
    return f"share the model under torchrun with {section}.sharding=fsdp, "


def expected_of_rollout(
    settings: Settings, out: Path, model: str | None, tasks: int
) -> Expected:
    """The estimate of a rollout."""
    parameters = parameters_of(model, LoraSettings())
    pace = pace_of(settings, out, "rollout", *SAMPLED_BY)
    need = None
    if parameters:
        device = device_of(settings.policy)
        parts = sampling_memory(parameters, shape_of(model), settings, device)
        rows = _remedy(SAMPLED_ROWS, sampled_rows(settings).rows)
        remedies = {"cache": rows, ACTIVATIONS: rows}
        need = MemoryNeed(parts, device, remedies, sampling_devices(settings))
    note = (
        "the weights are in memory once; prompts of policy.max_prompt_tokens, so less "
        "where they are shorter"
    )
    return Expected(
        disk_bytes=pace and round(pace.bytes * tasks),
        **_in_memory(need),
        seconds=pace and round(pace.seconds * tasks),
        basis=_basis(parameters, pace, note),
    )


def need_of_training(
    settings: Settings, model: str, trees: Path, critic: str | None
) -> MemoryNeed | None:
    """The memory of a training on a trees file, including any critic.

    None if the size of the model is not known, or if the objective computes whole
    trajectories together.
    """
    parameters = parameters_of(model, settings.train.lora)
    if parameters is None or "rows_per_microbatch" in not_read(settings.train):
        return None
    device = device_of(settings.policy)
    steps = list(_steps([trees]))
    tokens, response = longest_row(steps, model)
    rows = min(settings.train.rows_together(tokens), len(steps))
    size = RowSize(rows, tokens, response)
    models = 1 if critic is None else 2
    processes = process_count()
    parts = training_memory(
        parameters, shape_of(model), size, settings.train, device, models, processes
    )
    most = settings.train.rows_per_microbatch
    remedies = {ACTIVATIONS: _of_microbatch("train", settings.train, size, most)}
    return MemoryNeed(
        parts, device, remedies, processes, _sharing("train", settings.train)
    )


def expected_of_training(
    settings: Settings,
    out: Path,
    model: str,
    trees: Path,
    critic: str | None,
) -> Expected:
    """The estimate of one training on a trees file, including any critic."""
    parameters = parameters_of(model, settings.train.lora)
    pace = pace_of(settings, out, "train", "train")
    together = _together(settings.train, settings.train.rows_per_microbatch, "rows")
    note = (
        f"{_held(settings.train)}, and activations of {together}; "
        "12 bytes of disk, and as many again for the snapshot while it trains"
    )
    return Expected(
        disk_bytes=parameters and checkpoint_bytes(parameters),
        **_in_memory(need_of_training(settings, model, trees, critic)),
        seconds=pace and round(pace.seconds * count_trees(trees)),
        basis=_basis(parameters, pace, note),
    )


def need_of_imitation(
    settings: Settings, model: str, trees: Sequence[Path]
) -> MemoryNeed | None:
    """The memory of sft; None if the size of the model is not known."""
    parameters = parameters_of(model, settings.sft.lora)
    if parameters is None:
        return None
    device = device_of(settings.policy)
    processes = process_count()
    tokens, response = longest_row(_steps(trees, "demos"), model)
    tokens = min(tokens, settings.sft.max_length)
    most = settings.sft.samples_per_update // processes
    rows = settings.sft.rows_together(tokens)
    if settings.sft.tokens_per_microbatch is not None:
        rows = min(rows, most)
    size = RowSize(rows, tokens, response)
    parts = training_memory(
        parameters, shape_of(model), size, settings.sft, device, processes=processes
    )
    remedies = {ACTIVATIONS: _of_microbatch("sft", settings.sft, size, most)}
    return MemoryNeed(parts, device, remedies, processes, _sharing("sft", settings.sft))


def expected_of_imitation(
    settings: Settings, model: str, trees: Sequence[Path]
) -> Expected:
    """The estimate of sft, which stores no optimiser state."""
    parameters = parameters_of(model, settings.sft.lora)
    together = _together(settings.sft, settings.sft.samples_per_microbatch, "samples")
    note = (
        f"{_held(settings.sft)}, and activations of {together}; 4 bytes "
        "of disk, and 12 for the snapshot while it trains"
    )
    return Expected(
        disk_bytes=parameters and WEIGHT * parameters.trained,
        **_in_memory(need_of_imitation(settings, model, trees)),
        basis=_basis(parameters, None, note),
    )


def _held(settings: TrainSettings | SftSettings) -> str:
    """The bytes per parameter, in words."""
    held = "16 bytes of memory for a trained parameter, 4 for another"
    if settings.sharding == "none":
        return held
    return (
        f"{held}, divided by the processes, each of which gathers two layers at a time"
    )


def _steps(trees: Sequence[Path], writer: str = "rollout") -> Iterator[Step]:
    for path in trees:
        for _, tree in checked_trees(path, writer):
            yield from tree.steps


def expected_of_loop(
    settings: Settings, out: Path, model: str, tasks: int, critic: str | None
) -> Expected:
    """The estimate of a loop with `tasks` trees per iteration, including any critic."""
    iterations = settings.run.iterations
    parameters = parameters_of(model, settings.train.lora)
    rollout = pace_of(settings, out, "rollout", *SAMPLED_BY)
    training = pace_of(settings, out, "train", "train")
    disk = need = seconds = None
    if parameters:
        device = device_of(settings.policy)
        models = 1 if critic is None else 2
        most = settings.train.rows_per_microbatch
        size = sampled_rows(settings)
        size = size._replace(rows=settings.train.rows_together(size.tokens))
        parts = loop_memory(parameters, shape_of(model), settings, device, models)
        remedies = {
            ACTIVATIONS: _of_microbatch("train", settings.train, size, most),
            "cache": _remedy(SAMPLED_ROWS, sampled_rows(settings).rows),
        }
        need = MemoryNeed(parts, device, remedies, sampling_devices(settings))
        disk = _kept(settings) * checkpoint_bytes(parameters)
    if disk is not None and rollout:
        disk += round(rollout.bytes * tasks * iterations)
    if rollout and training:
        seconds = round((rollout.seconds + training.seconds) * tasks * iterations)
    note = (
        "sampling and training in one process, rows of policy.max_prompt_tokens and "
        f"policy.max_tokens; weights and optimisers of {_kept(settings)} iterations "
        "(run.keep)"
    )
    if rollout is None:
        note += "; without the files of the trees"
    if settings.run.evaluate_every is not None:
        note += "; without the time and the files of evaluations"
    return Expected(
        disk_bytes=disk,
        **_in_memory(need),
        seconds=seconds,
        basis=_basis(parameters, rollout, note),
    )


def _kept(settings: Settings) -> int:
    """The largest number of iterations whose weights remain on disk at the end."""
    run = settings.run
    if run.keep is None:
        return run.iterations
    best = run.evaluate_every is not None
    return min(run.iterations, run.keep + best)


def _basis(parameters: ModelSize | None, pace: Pace | None, note: str) -> str:
    """How an estimate was made, in a sentence."""
    if parameters is None:
        size = "the model's files are not here, so its size is not known"
    else:
        size = f"{parameters.all:,} parameters, {parameters.trained:,} of them trained"
    if pace is None:
        time = "no run beside it has the same settings, so the time is not known"
    else:
        time = f"{pace.seconds:.3g} s and {pace.bytes:,.0f} bytes a tree, as {pace.run}"
    return f"{size}; {note}; {time}"
