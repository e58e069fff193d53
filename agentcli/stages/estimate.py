"""The disk, memory and time that --dry-run expects, and how they were estimated.

Disk and memory are computed from the model's configuration. Time, and the size of a
tree, come from the newest stage with the same settings in a neighbouring run; without
one they are unknown.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from agentcli.errors import AgentCliError
from agentcli.policies.chat import prompt_ids
from agentcli.policies.load import adapter_base, load_tokenizer
from agentcli.policies.registry import LOADING
from agentcli.records.processes import process_count
from agentcli.records.settings import Settings
from agentcli.records.training_settings import (
    TINY,
    LoraSettings,
    SftSettings,
    TrainSettings,
)
from agentcli.stages.memory import (
    ASLEEP_BYTES,
    ENGINE,
    MOMENTS,
    WEIGHT,
    Bytes,
    Device,
    MemoryNeed,
    ModelSize,
    RowSize,
    device_of,
    model_size,
    sampled_rows,
    sampling_devices,
    sampling_memory,
    training_memory,
)
from agentcli.stages.pace import SAMPLED_BY, Pace, pace_of
from agentcli.stages.trees import checked_trees, count_trees
from agentcli.training.objectives import make_objective, not_read

SAMPLED_ROWS = "policy.batch_rows"


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


def _expected(
    size: ModelSize | str,
    need: MemoryNeed | None,
    pace: Pace | None,
    note: str,
    disk: float | None,
    seconds: float | None = None,
) -> Expected:
    """The estimate with this need of memory; `pace` is what time and trees come from."""
    basis = f"no estimate of memory: {size}"
    if isinstance(size, ModelSize):
        basis = f"{size.all:,} parameters, {size.trained:,} of them trained; {note}"
    if pace is None:
        basis += "; no run beside it has the same settings, so the time is not known"
    else:
        basis += (
            f"; {pace.seconds:.3g} s and {pace.bytes:,.0f} bytes a tree, as {pace.run}"
        )
    expected = Expected(basis=basis)
    if disk is not None:
        expected.disk_bytes = round(disk)
    if seconds is not None:
        expected.seconds = round(seconds)
    if need is not None:
        expected.memory_bytes = need.total
        expected.memory = need.parts
        expected.devices = need.devices
        expected.free_bytes = need.device.free
        expected.change = need.advice
        if need.device.is_gpu:
            expected.basis += "; never compared with what a GPU holds"
    return expected


def known_size(model: str | None, lora: LoraSettings) -> ModelSize | str:
    """The size of a model, or why it is not known."""
    if model is None:
        return "no model is loaded here"
    if model == TINY:
        return "the model is made from its demonstrations"
    try:
        return model_size(model, lora)
    except AgentCliError as error:
        return str(error)


def trained_bytes(size: ModelSize | str, width: int) -> int | None:
    """Bytes of all trained parameters, of so many bytes each; None if not known."""
    return None if isinstance(size, str) else width * size.trained


def expected_of_rollout(
    settings: Settings, out: Path, model: str | None, tasks: int
) -> Expected:
    """The estimate of a rollout."""
    loaded = model if settings.policy.kind in LOADING else None
    size = known_size(loaded, LoraSettings())
    need = None
    if isinstance(size, ModelSize):
        need = need_of_sampling(size, settings, device_of(settings.policy))
    pace = pace_of(settings, out, "rollout", *SAMPLED_BY)
    note = "prompts of policy.max_prompt_tokens"
    disk, seconds = pace and pace.bytes * tasks, pace and pace.seconds * tasks
    return _expected(size, need, pace, note, disk, seconds)


def need_of_sampling(size: ModelSize, settings: Settings, device: Device) -> MemoryNeed:
    """The memory of a policy, and of critic and reward model, while trees grow."""
    parts = sampling_memory(size, settings, device)
    rows = sampled_rows(settings).rows
    devices = sampling_devices(settings)
    return MemoryNeed(parts, device, SAMPLED_ROWS, rows, rows, devices)


def holds_reference(train: TrainSettings, model: str) -> bool:
    """Whether a whole model besides the trained one is the KL penalty's reference.

    The base under an adapter is there already.
    """
    if train.beta == 0 or train.reference is None:
        return False
    base = Path(adapter_base(model) or model)
    return train.lora.rank == 0 or Path(train.reference).resolve() != base.resolve()


def need_of_training(
    settings: Settings, model: str, trees: Path, critic: str | None
) -> MemoryNeed | None:
    """The memory of a training on a trees file, including any critic.

    None if the size of the model is not known, or if the objective computes whole
    trajectories together.
    """
    train = settings.train
    size = known_size(model, train.lora)
    if isinstance(size, str) or "rows_per_microbatch" in not_read(train):
        return None
    device = device_of(settings.policy)
    rows = longest_rows([trees], "rollout", model)
    rows = rows._replace(rows=min(rows.rows, train.rows_together(rows.tokens)))
    processes = process_count()
    parts = training_memory(
        size,
        rows,
        train,
        device,
        models=1 if critic is None else 2,
        processes=processes,
        reference=holds_reference(train, model),
    )
    limit = limit_of("train", train, rows, train.rows_per_microbatch)
    return MemoryNeed(parts, device, *limit, processes)


def expected_of_training(
    settings: Settings, out: Path, model: str, trees: Path, critic: str | None
) -> Expected:
    """The estimate of one training on a trees file, including any critic."""
    size = known_size(model, settings.train.lora)
    need = need_of_training(settings, model, trees, critic)
    pace = pace_of(settings, out, "train", "train")
    note = "rows as long as the longest; its snapshot takes as much disk as the result"
    seconds = pace and pace.seconds * count_trees(trees)
    disk = trained_bytes(size, WEIGHT + MOMENTS)
    return _expected(size, need, pace, note, disk, seconds)


def need_of_imitation(
    settings: Settings, model: str, trees: Sequence[Path]
) -> MemoryNeed | None:
    """The memory of sft; None if the size of the model is not known."""
    sft = settings.sft
    size = known_size(model, sft.lora)
    if isinstance(size, str):
        return None
    device = device_of(settings.policy)
    rows = longest_rows(trees, "demos", model)
    rows = rows._replace(tokens=min(rows.tokens, sft.max_length))
    processes = process_count()
    whole = sft.samples_per_update // processes
    rows = rows._replace(rows=min(whole, sft.rows_together(rows.tokens)))
    parts = training_memory(size, rows, sft, device, processes=processes)
    limit = limit_of("sft", sft, rows, whole)
    return MemoryNeed(parts, device, *limit, processes)


def expected_of_imitation(
    settings: Settings, model: str, trees: Sequence[Path]
) -> Expected:
    """The estimate of sft, which stores no optimiser state."""
    size = known_size(model, settings.sft.lora)
    need = need_of_imitation(settings, model, trees)
    note = "rows as long as the longest; its snapshot takes three times its disk"
    return _expected(size, need, None, note, trained_bytes(size, WEIGHT))


def limit_of(
    section: str, settings: TrainSettings | SftSettings, rows: RowSize, whole: int
) -> tuple[str, int, int]:
    """The setting that limits a microbatch, its value, and what a lower one divides.

    `whole` is what rows divide.
    """
    setting = f"{section}.{settings.microbatch_limit}"
    tokens = settings.tokens_per_microbatch
    if tokens is None:
        return setting, rows.rows, whole
    return setting, min(tokens, rows.rows * rows.tokens), tokens


def longest_rows(trees: Sequence[Path], writer: str, model: str) -> RowSize:
    """All steps of the trees as rows, all as long as the longest texts.

    Raises what `checked_trees` and `load_tokenizer` raise.
    """
    prompt = response = ""
    sampled = count = 0
    for path in trees:
        for _, tree in checked_trees(path, writer):
            count += len(tree.steps)
            for step in tree.steps:
                prompt = max(prompt, step.prompt, key=len)
                response = max(response, step.response, key=len)
                sampled = max(sampled, len(step.token_ids))
    tokenizer = load_tokenizer(model)
    # A demonstration has no tokens yet; it will have one more than its text.
    answered = sampled or len(tokenizer(response).input_ids) + 1
    tokens = len(prompt_ids(tokenizer, prompt)) + answered
    return RowSize(count, tokens, answered)


def need_of_loop(
    size: ModelSize,
    settings: Settings,
    device: Device,
    *,
    models: int = 1,
    reference: bool = False,
) -> MemoryNeed:
    """The memory of a loop at the moment that holds most.

    While `models` are trained the sampler rests: a vLLM engine asleep, another policy
    with its weights. What training held is free again when trees grow.
    """
    train = settings.train
    sampling = need_of_sampling(size, settings, device)
    resting = sampling.parts["weights"] + sampling.parts.get(ENGINE, 0)
    if ENGINE in sampling.parts and settings.policy.vllm.sleep:
        resting = ASLEEP_BYTES
    rows = sampled_rows(settings)
    rows = rows._replace(rows=train.rows_together(rows.tokens))
    parts = training_memory(
        size,
        rows,
        train,
        device,
        models=models,
        processes=settings.run.processes,
        reference=reference,
    )
    parts["sampler at rest"] = resting
    limit = limit_of("train", train, rows, train.rows_per_microbatch)
    update = MemoryNeed(parts, device, *limit, settings.run.processes)
    return max(sampling, update, key=lambda need: need.total)


def expected_of_loop(
    settings: Settings, out: Path, model: str, tasks: int, critic: str | None
) -> Expected:
    """The estimate of a loop with `tasks` trees per iteration, including any critic."""
    run = settings.run
    size = known_size(model, settings.train.lora)
    need = None
    if isinstance(size, ModelSize):
        train = settings.train
        if make_objective(train.objective).anchored(train):
            reference = train.reference or model
            train = msgspec.structs.replace(train, reference=reference)
        need = need_of_loop(
            size,
            settings,
            device_of(settings.policy),
            models=1 if critic is None else 2,
            reference=holds_reference(train, model),
        )
    kept = run.iterations
    if run.keep is not None:
        kept = min(kept, run.keep + (run.evaluate_every is not None))
    disk = trained_bytes(size, kept * (WEIGHT + MOMENTS))
    rollout = pace_of(settings, out, "rollout", *SAMPLED_BY)
    training = pace_of(settings, out, "train", "train")
    trees = tasks * run.iterations
    note = f"rows as long as allowed; weights of {kept} iterations (run.keep)"
    if disk is not None and rollout:
        disk += round(rollout.bytes * trees)
    else:
        note += "; without the files of the trees"
    if run.evaluate_every is not None:
        note += "; without evaluations"
    seconds = None
    if rollout and training:
        seconds = (rollout.seconds + training.seconds) * trees
    return _expected(size, need, rollout, note, disk, seconds)
