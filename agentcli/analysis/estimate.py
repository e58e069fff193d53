"""The disk, memory and time that --dry-run expects of a finished plan.

Disk and memory are computed from the model's configuration. Time, and the size of a
tree, come from the newest stage with the same settings in a neighbouring run; without
one they are unknown. Of a study, its own parts tell, or what its file says they took.
"""

import json
import timeit
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import msgspec

from agentcli.errors import AgentCliError
from agentcli.policies.registry import LOADING
from agentcli.records.files import write_atomic
from agentcli.records.runs import RunDirectory, loop_folders
from agentcli.records.settings import Settings
from agentcli.records.study import DEMOS, PartCost, Study
from agentcli.records.training_settings import LoraSettings
from agentcli.records.types import StageRecord
from agentcli.stages.loop import LoopPlan, first_critic, with_critic
from agentcli.stages.memory import (
    MOMENTS,
    WEIGHT,
    Bytes,
    MemoryNeed,
    ModelSize,
    device_of,
    holds_reference,
    known_size,
    need_of_loop,
    need_of_sampling,
)
from agentcli.stages.plan import StagePlan, plain, without
from agentcli.stages.rollout import RolloutPlan
from agentcli.stages.sft import SftPlan
from agentcli.stages.study import Chain, StudyPlan
from agentcli.stages.train import TrainPlan
from agentcli.stages.trees import count_trees
from agentcli.training.objectives import make_objective

OF_ONE_RUN = {
    "environment": ("tasks", "shard", "where", "panel"),
    "policy": ("model", "adapter"),
    "rollout": ("iteration", "budget", "tasks_per_step"),
    "train": ("credit", "reference", "learning_rate"),
}
"""Settings that may differ in the earlier stage."""
SAMPLED_BY = ("environment", "policy", "prompt", "rollout")
"""Settings that affect the time of a tree."""
LOOK_BACK = 4
"""Number of a loop's iterations that are averaged."""


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


def expected_of(plan: StagePlan) -> Expected | None:
    """The estimate of a plan; None for a stage that has none."""
    match plan:
        case RolloutPlan():
            return _of_rollout(plan)
        case TrainPlan():
            return _of_training(plan)
        case SftPlan():
            return _of_imitation(plan)
        case LoopPlan():
            return _of_loop(plan)
    return None


class Pace(NamedTuple):
    """The cost of a tree in an earlier stage."""

    seconds: float
    bytes: float
    run: str


def pace_of(settings: Settings, out: Path, stage: str, *sections: str) -> Pace | None:
    """The cost of a tree in the newest `stage` with the same settings near `out`."""
    wanted = _compared(plain(settings), sections)
    for run in _newest_runs(out.parent):
        same = []
        for folder in (run, *loop_folders(run)):
            record = _record(folder, stage)
            if record and _compared(record.settings, sections) == wanted:
                same.append((folder, record))
        if same:
            # The last ones: trajectories change their length as the policy learns.
            return _pace(run, same[-LOOK_BACK:])
    return None


def _newest_runs(folder: Path) -> Iterator[Path]:
    manifests = [path for path in folder.glob("*/manifest.json") if path.is_file()]
    # A loop has a manifest of its own only once it has ended.
    loops = folder.glob("*/iteration_000/manifest.json")
    runs = {path.parent for path in manifests}
    runs |= {path.parent.parent for path in loops}
    # runs/latest is a link to a run that is there already.
    runs = {run for run in runs if not run.is_symlink()}
    yield from sorted(runs, key=lambda run: run.stat().st_mtime, reverse=True)


def _record(folder: Path, stage: str) -> StageRecord | None:
    try:
        return RunDirectory(folder).finished(stage)
    # A neighbour that is damaged is no reason to refuse a plan.
    except (AgentCliError, OSError):
        return None


def _compared(settings: dict[str, Any], sections: Sequence[str]) -> dict[str, Any]:
    """The sections without the settings in OF_ONE_RUN."""
    chosen = {section: settings.get(section) for section in sections}
    return without(chosen, OF_ONE_RUN)


def _pace(run: Path, stages: Sequence[tuple[Path, StageRecord]]) -> Pace | None:
    """The mean over some stages of one run."""
    seconds = []
    sizes = []
    for folder, record in stages:
        # A rollout counts its trees; a training has them among its statistics.
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


def _trained_bytes(size: ModelSize | str, width: int) -> int | None:
    """Bytes of all trained parameters, of so many bytes each; None if not known."""
    return None if isinstance(size, str) else width * size.trained


def _of_rollout(plan: RolloutPlan) -> Expected:
    settings = plan.settings
    tasks = len(plan.panel.tasks)
    # A server's model takes memory elsewhere.
    loaded = plan.model if settings.policy.kind in LOADING else None
    # Sampling trains nothing, whatever train.lora says.
    size = known_size(loaded, LoraSettings())
    need = None
    if isinstance(size, ModelSize):
        need = need_of_sampling(size, settings, device_of(settings.policy))
    pace = pace_of(settings, plan.run.path, "rollout", *SAMPLED_BY)
    note = "prompts of policy.max_prompt_tokens"
    disk, seconds = pace and pace.bytes * tasks, pace and pace.seconds * tasks
    return _expected(size, need, pace, note, disk, seconds)


def _of_training(plan: TrainPlan) -> Expected:
    """One training on a trees file, including any critic."""
    settings = plan.settings
    size = known_size(plan.model, settings.train.lora)
    pace = pace_of(settings, plan.run.path, "train", "train")
    note = "rows as long as the longest; its snapshot takes as much disk as the result"
    seconds = pace and pace.seconds * count_trees(plan.trees)
    # An objective that trains a critic alone stores no policy.
    trains_policy = make_objective(settings.train.objective).trains_policy
    models = trains_policy + (plan.critic is not None)
    disk = _trained_bytes(size, models * (WEIGHT + MOMENTS))
    return _expected(size, plan.need(settings), pace, note, disk, seconds)


def _of_imitation(plan: SftPlan) -> Expected:
    """A fine-tuning, which stores no optimiser state."""
    size = known_size(plan.model, plan.settings.sft.lora)
    need = plan.need(plan.settings)
    note = "rows as long as the longest; its snapshot takes three times its disk"
    return _expected(size, need, None, note, _trained_bytes(size, WEIGHT))


def _of_loop(plan: LoopPlan) -> Expected:
    """A loop with `plan.tasks` trees per iteration, including any critic."""
    critic = first_critic(plan.settings, plan.model)
    models = 1 if critic is None else 2
    settings = with_critic(plan.settings, critic, 0)
    run = settings.run
    size = known_size(plan.model, settings.train.lora)
    need = None
    if isinstance(size, ModelSize):
        train = settings.train
        if make_objective(train.objective).anchored(train):
            reference = train.reference or plan.model
            train = msgspec.structs.replace(train, reference=reference)
        need = need_of_loop(
            size,
            settings,
            device_of(settings.policy),
            models=models,
            reference=holds_reference(train, plan.model),
        )
    kept = run.iterations
    if run.keep is not None:
        # The best one stays beside the newest, and only evaluations tell which it is.
        kept = min(kept, run.keep + (run.evaluate_every is not None))
    disk = _trained_bytes(size, kept * models * (WEIGHT + MOMENTS))
    rollout = pace_of(settings, plan.run.path, "rollout", *SAMPLED_BY)
    training = pace_of(settings, plan.run.path, "train", "train")
    trees = plan.tasks * run.iterations
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


TOOK = "took.yaml"
"""File of a study's folder with what its parts took."""
PIECES = 1000
"""Repetitions of the work of `yardstick`, which take about two seconds.

A core that is shared with other machines may be twice as slow for a second.
"""
BETWEEN = 2.0
"""Seconds that a command takes to start and to end, which its record leaves out."""


class StudyCost(msgspec.Struct, kw_only=True):
    """What is left of a study; None where nothing is known."""

    seconds: int | None
    disk_bytes: int | None
    basis: str
    """How the estimate was made, or why there is none."""


def remaining(plans: Sequence[StudyPlan], jobs: int) -> StudyCost:
    """The time and the disk that the parts need which have not ended.

    By what their like took in this study; before any ended, by what the file says,
    which the file's yardstick and that of this machine make comparable. A part of which
    neither is known takes as long as other arms, or starts, on average.
    """
    seconds = 0.0
    megabytes = 0.0
    for made in plans:
        costs = {}
        for name, cost in _costs_left(made):
            if cost is None:
                return StudyCost(seconds=None, disk_bytes=None, basis=_unplayed(made))
            costs[name] = cost
        seconds += _elapsed(made.chains, costs, jobs)
        megabytes += sum(cost.megabytes for cost in costs.values())
    return StudyCost(
        seconds=round(seconds),
        disk_bytes=round(1e6 * megabytes),
        basis="what parts took in its folder, or where its file was measured",
    )


def _unplayed(made: StudyPlan) -> str:
    """Why the cost of a study is not known, and what arithmetic says of it."""
    reason = "no part was played, in its folder or where its file was written"
    hours = made.study.gpu_hours
    if hours is None:
        return reason
    return f"{reason}; by arithmetic {hours:,.0f} hours of one H100 for a seed"


def _costs_left(made: StudyPlan) -> Iterator[tuple[str, PartCost | None]]:
    """Each chain that has not ended, and its cost; None where nothing is known."""
    left = [chain for chain in made.chains if chain.left]
    known = took(made)
    if any(chain.part not in known for chain in left):
        known = {**_on_this_machine(made.study), **known}
    for chain in left:
        kind = _kind(made, chain.part)
        alike = [cost for name, cost in known.items() if _kind(made, name) == kind]
        yield chain.name, known.get(chain.part) or (_mean(alike) if alike else None)


def _on_this_machine(study: Study) -> dict[str, PartCost]:
    """What the file says that parts take, at this machine's speed."""
    if study.yardstick is None or not study.took:
        return study.took
    factor = yardstick() / study.yardstick
    return {
        part: PartCost(seconds=factor * cost.seconds, megabytes=cost.megabytes)
        for part, cost in study.took.items()
    }


def _elapsed(
    chains: Sequence[Chain], costs: Mapping[str, PartCost], jobs: int
) -> float:
    """Seconds until all chains with a cost have ended, played as `perform` does."""
    waiting = {chain.name: chain for chain in chains if chain.name in costs}
    ends: dict[str, float] = {}
    now = 0.0
    while waiting or ends:
        for chain in list(waiting.values()):
            if len(ends) == jobs:
                break
            if not any(name in waiting or name in ends for name in chain.after):
                del waiting[chain.name]
                ends[chain.name] = now + costs[chain.name].seconds
        first = min(ends, key=ends.__getitem__)
        now = ends.pop(first)
    return now


@cache
def yardstick() -> float:
    """Milliseconds that this machine takes for a fixed piece of work, at its fastest.

    What a tiny policy takes is bound by one core's speed in Python and in calls of
    small tensors, not by arithmetic; so is this.
    """
    return 1e3 * min(timeit.repeat(_piece, number=1, repeat=PIECES))


def _piece() -> None:
    steps = [{"step": step, "action": f"go to {step}"} for step in range(1000)]
    again = json.loads(json.dumps(steps))
    again.sort(key=lambda step: -step["step"] % 7)
    words = " ".join(step["action"] for step in again).split()
    Counter(word.upper() for word in words)


def _kind(made: StudyPlan, part: str) -> str:
    if part in made.study.arms:
        return "arm"
    return "start" if part in made.study.starts else DEMOS


def took(made: StudyPlan) -> dict[str, PartCost]:
    """What each arm and start took, a mean over the seeds that have ended."""
    costs: dict[str, list[PartCost]] = {}
    for chain in made.chains:
        if not chain.left:
            cost = PartCost(seconds=_seconds(chain), megabytes=_bytes(chain) / 1e6)
            costs.setdefault(chain.part, []).append(cost)
    return {part: _mean(of_part) for part, of_part in costs.items()}


def write_took(made: StudyPlan) -> None:
    """Writes OUT/took.yaml: what parts took, in the form that a study's file has it."""
    lines = [f"yardstick: {yardstick():.2f}", "took:"]
    for part, cost in took(made).items():
        size = f"{{seconds: {cost.seconds:.0f}, megabytes: {cost.megabytes:.0f}}}"
        # An arm may be called 1e3, which YAML would read as a number.
        lines.append(f"  {part!r}: {size}")
    write_atomic(made.out / TOOK, ("\n".join(lines) + "\n").encode())


def _mean(costs: Sequence[PartCost]) -> PartCost:
    return PartCost(
        seconds=fmean(cost.seconds for cost in costs),
        megabytes=fmean(cost.megabytes for cost in costs),
    )


def _seconds(chain: Chain) -> float:
    """Wall-clock seconds of the commands of a chain."""
    total = BETWEEN * len(chain.commands)
    for command in chain.commands:
        record = RunDirectory(command.folder).finished(command.stage)
        total += record.seconds.get("wall", 0.0) if record else 0.0
    return total


def _bytes(chain: Chain) -> int:
    """Bytes of the files in the folders of a chain."""
    folders = {command.folder for command in chain.commands}
    return sum(
        path.stat().st_size
        for folder in folders
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    )
