"""compare for whole loops: the cost of training.

It is read from the manifests of the iterations, not from trees. If a loop is still
running or was killed, only iterations whose rollout and training ended are summed, and
a note says so. A single rollout can be compared with loops too, including the training
on it, if any.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from agentcli.errors import DataError, UsageError
from agentcli.evaluation.training import Iteration, LoopCost, Responses, training_cost
from agentcli.records.faults import shown
from agentcli.records.runs import RunDirectory, loop_folders
from agentcli.records.types import Count, Ledger


class TaskSource(msgspec.Struct):
    """The settings that say which kind of tasks there are, but not how many."""

    name: str
    split: str
    panel: str | None = None
    where: dict[str, Any] = {}


class RolloutMethodShape(msgspec.Struct):
    """The part of settings.rollout that is needed."""

    method: str


class ObjectiveShape(msgspec.Struct):
    """The part of settings.train that is needed."""

    objective: str


class RolloutSettingsShape(msgspec.Struct):
    """The sections of a rollout's settings that are needed."""

    environment: TaskSource
    rollout: RolloutMethodShape


class TrainSettingsShape(msgspec.Struct):
    """The section of a training's settings that is needed."""

    train: ObjectiveShape


class RolloutCountsShape(msgspec.Struct):
    """The counts of a rollout that are needed."""

    trees: Count
    leaves: Count
    success: Count
    errored: Count


class RolloutStatisticsShape(msgspec.Struct):
    """The statistics of a rollout that are needed."""

    forks_by_depth: list[float]


class TrainStatisticsShape(msgspec.Struct):
    """The statistics of a training that are needed."""

    updates: Count
    rows: Count | None = None
    """None for dpo, which learns from pairs."""
    rows_skipped: Count = 0
    rows_unassigned: Count = 0
    rows_not_critical: Count = 0


class RolloutShape(msgspec.Struct):
    """The part of a rollout's entry that is needed."""

    settings: RolloutSettingsShape
    counts: RolloutCountsShape
    statistics: RolloutStatisticsShape
    ledger: Ledger
    seconds: dict[str, float]


class TrainShape(msgspec.Struct):
    """The part of a training's entry that is needed."""

    settings: TrainSettingsShape
    inputs: dict[str, str]
    statistics: TrainStatisticsShape
    seconds: dict[str, float]


class StagesShape(msgspec.Struct):
    """The entries of a manifest that are needed."""

    rollout: RolloutShape | None = None
    train: TrainShape | None = None


def training_of(places: Sequence[Path], notes: list[str]) -> dict[str, LoopCost]:
    """The cost of training in each place; adds a note for each unfinished one.

    `lacks_training` must find no fault in the places. Raises UsageError where tasks are
    taken from unlike sources, DataError for damaged files.
    """
    whole = {place: _whole_folders(place) for place in places}
    sources = {}
    for place, folders in whole.items():
        sources[str(place)] = _source(folders[0])
    _refuse_unlike(sources)
    alone = [place for place in places if not loop_folders(place)]
    if alone:
        notes.append(
            f"{alone[0]} is one rollout beside loops; compare what a leaf cost"
        )
    costs = {}
    for place, folders in whole.items():
        cost = training_cost([read_iteration(folder) for folder in folders])
        if loop_folders(place):
            _add_standing(cost, place, folders, notes)
        costs[str(place)] = cost
    return costs


def lacks_training(place: Path) -> str | None:
    """The reason why the cost of training is unknown in this place; None if known."""
    if _whole_folders(place):
        return None
    if loop_folders(place):
        return f"{place}: no iteration of its loop has ended yet"
    return f"{place} holds no rollout"


def read_iteration(folder: Path) -> Iteration:
    """One iteration: a rollout, and the training on it if there was one.

    Raises DataError where no rollout ended, and for damaged files.
    """
    entries = _entries(folder)
    rollout = entries.rollout
    train = entries.train
    if rollout is None:
        manifest = RunDirectory(folder).manifest_path
        raise DataError(f"{manifest}: no rollout that ended; go on with --resume")
    seconds: dict[str, float] = {}
    for name in ("policy", "environment"):
        if name in rollout.seconds:
            seconds[name] = rollout.seconds[name]
    iteration = Iteration(
        method=rollout.settings.rollout.method,
        credit=None,
        trees=rollout.counts.trees,
        leaves=rollout.counts.leaves,
        success=rollout.counts.success,
        errored=rollout.counts.errored,
        ledger=rollout.ledger,
        forks_by_depth=rollout.statistics.forks_by_depth,
        responses=None,
        updates=None,
        seconds=seconds,
    )
    if train is None:
        return iteration
    if "wall" in train.seconds:
        seconds["train"] = train.seconds["wall"]
    return msgspec.structs.replace(
        iteration,
        credit=_learned_from(train),
        responses=_responses(train.statistics),
        updates=train.statistics.updates,
    )


def _learned_from(train: TrainShape) -> str:
    """The credit that was read, else the objective."""
    for path in map(Path, train.inputs):
        if path.parent.name == "credit" and path.suffix == ".jsonl":
            return path.stem
    return train.settings.train.objective


def _responses(statistics: TrainStatisticsShape) -> Responses | None:
    rows = statistics.rows
    if rows is None:
        return None
    without_credit = statistics.rows_unassigned + statistics.rows_not_critical
    return Responses(
        updated=rows - statistics.rows_skipped, given=rows + without_credit
    )


def _entries(folder: Path) -> StagesShape:
    """The stages that ended in `folder`. Raises DataError."""
    run = RunDirectory(folder)
    stages = run.load_manifest().stages
    try:
        return msgspec.convert(stages, StagesShape, from_attributes=True)
    except msgspec.ValidationError as error:
        fault = str(error).replace("`$", "`$.stages", 1)
        raise DataError(f"{run.manifest_path}: {shown(fault)}") from error


def _whole_folders(place: Path) -> list[Path]:
    """The iterations of a loop that ended, or the folder of one rollout.

    A rollout that is not part of a loop need not have been trained on.
    """
    iterations = loop_folders(place)
    whole = []
    for folder in iterations or [place]:
        entries = _entries(folder)
        trained = entries.train is not None or not iterations
        if entries.rollout is not None and trained:
            whole.append(folder)
    return whole


def _add_standing(
    cost: LoopCost,
    place: Path,
    whole: Sequence[Path],
    notes: list[str],
) -> None:
    """Records how far the loop has come; adds a note unless it is finished."""
    folders = loop_folders(place)
    over = RunDirectory(place).finished("run")
    recorded = over.counts.get("iterations", 0) if over else 0
    wanted = max(len(folders), recorded)
    counted = len(whole)
    cost.iterations = counted
    cost.unfinished = wanted - counted
    cost.ended = over is not None
    if len(folders) < wanted:
        notes.append(
            f"{place}: iterations counted: {counted}, not the {wanted} of manifest.json"
        )
    elif over is None or counted < wanted:
        left_out = [
            f", {folder.name} left out" for folder in folders if folder not in whole
        ]
        notes.append(
            f"{place}: its loop has not ended; iterations counted: "
            f"{counted}{''.join(left_out)}; it goes on with the command that began it "
            "and --resume"
        )


def _source(folder: Path) -> TaskSource:
    rollout = _entries(folder).rollout
    assert rollout is not None
    return rollout.settings.environment


def _refuse_unlike(sources: Mapping[str, TaskSource]) -> None:
    """Raises UsageError for the first difference between a source and the first one."""
    first, *others = sources
    for other in others:
        for field in TaskSource.__struct_fields__:
            value = getattr(sources[other], field)
            reference = getattr(sources[first], field)
            if value != reference:
                raise UsageError(
                    f"{other}: its tasks are of another environment.{field} "
                    f"({shown(str(value))}) than those of {first} "
                    f"({shown(str(reference))}); what they cost is not alike"
                )
