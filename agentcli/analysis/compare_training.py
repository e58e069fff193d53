"""compare, of whole loops: what training cost, from the manifests of the iterations; reads files, writes none.

A loop that is going on, or was killed, is told as such: only iterations whose rollout and training ended are summed. One rollout
may stand beside loops, with what was trained on it, if anything. Trees are not read.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from agentcli.errors import DataError, UsageError
from agentcli.evaluation.training import Iteration, Responses, training_cost
from agentcli.records.faults import shown
from agentcli.records.runs import RunDirectory
from agentcli.records.types import Count, Ledger


class Source(msgspec.Struct):
    """Which kind of tasks: the parts of `environment` that say so. How many of them were walked is no part of it."""

    name: str
    split: str
    panel: str | None = None
    where: dict[str, Any] = {}


class Grown(msgspec.Struct):
    """Of settings.rollout."""

    method: str


class Learned(msgspec.Struct):
    """Of settings.train."""

    objective: str


class RolloutSettingsShape(msgspec.Struct):
    """Those that are needed."""

    environment: Source
    rollout: Grown


class TrainSettingsShape(msgspec.Struct):
    """The one that is needed."""

    train: Learned


class Sampled(msgspec.Struct):
    """Of a rollout's counts."""

    trees: Count
    leaves: Count
    success: Count
    errored: Count


class Trained(msgspec.Struct):
    """Of a training's statistics. `rows`: None for dpo, which learns from pairs."""

    updates: Count
    rows: Count | None = None
    rows_skipped: Count = 0
    rows_unassigned: Count = 0
    rows_not_critical: Count = 0


class RolloutShape(msgspec.Struct):
    """The part of a rollout's entry that is needed."""

    settings: RolloutSettingsShape
    counts: Sampled
    ledger: Ledger
    seconds: dict[str, float]


class TrainShape(msgspec.Struct):
    """The part of a training's entry that is needed."""

    settings: TrainSettingsShape
    inputs: dict[str, str]
    statistics: Trained
    seconds: dict[str, float]


class StagesShape(msgspec.Struct):
    """The entries that are needed."""

    rollout: RolloutShape | None = None
    train: TrainShape | None = None


ALONE = {"iterations": None, "unfinished": None, "ended": None}
"""How a rollout that is no loop stands."""


def training_of(places: Sequence[Path], notes: list[str]) -> dict[str, dict[str, Any]]:
    """By place: evaluation.training_cost, and beside it iterations (how many are summed), unfinished (how many others were begun,
    or are missing) and ended (whether the loop is over), all three None for a rollout that is no loop.

    places: runs in which `lacks_training` finds no fault. `notes` get what is unfinished. Raises UsageError where tasks are taken
    from unlike sources, DataError for damaged files.
    """
    folders = {place: loop_folders(place) for place in places}
    whole = {
        place: [folder for folder in own or [place] if _is_whole(_entries(folder), bool(own))]
        for place, own in folders.items()
    }
    _refuse_unlike({str(place): _source(own[0]) for place, own in whole.items()})
    alone = next((place for place, own in folders.items() if not own), None)
    if alone is not None:
        notes.append(f"{alone} is one rollout beside loops; compare what a leaf cost")
    return {
        str(place): {
            **(_standing(place, folders[place], own, notes) if folders[place] else ALONE),
            **training_cost([read_iteration(folder) for folder in own]),
        }
        for place, own in whole.items()
    }


def loop_folders(place: Path) -> list[Path]:
    """The iterations that were begun there, in order; none where no loop was run."""
    named = ((path.name.removeprefix("iteration_"), path) for path in place.glob("iteration_*") if path.is_dir())
    return [path for _, path in sorted((int(number), path) for number, path in named if number.isdecimal())]


def lacks_training(place: Path) -> str | None:
    """Why what training cost there cannot be told, None where it can."""
    folders = loop_folders(place)
    if any(_is_whole(_entries(folder), bool(folders)) for folder in folders or [place]):
        return None
    return f"{place}: no iteration of its loop has ended yet" if folders else f"{place} holds no rollout"


def read_iteration(folder: Path) -> Iteration:
    """What a rollout, and the training on it if there was one, left in `folder`. Raises DataError where no rollout ended, and for
    damaged files."""
    entries = _entries(folder)
    rollout, train = entries.rollout, entries.train
    if rollout is None:
        raise DataError(f"{RunDirectory(folder).manifest_path}: no rollout that ended; go on with --resume")
    seconds = {name: value for name, value in rollout.seconds.items() if name in ("policy", "environment")}
    if train is not None and "wall" in train.seconds:
        seconds["train"] = train.seconds["wall"]
    counts = rollout.counts
    return Iteration(
        method=rollout.settings.rollout.method,
        credit=None if train is None else _learned_from(train),
        trees=counts.trees,
        leaves=counts.leaves,
        success=counts.success,
        errored=counts.errored,
        ledger=rollout.ledger,
        responses=None if train is None else _responses(train.statistics),
        updates=None if train is None else train.statistics.updates,
        seconds=seconds,
    )


def _learned_from(train: TrainShape) -> str:
    """The credit that was read, else the objective."""
    read = (Path(path) for path in train.inputs)
    found = (path.stem for path in read if path.parent.name == "credit" and path.suffix == ".jsonl")
    return next(found, train.settings.train.objective)


def _responses(told: Trained) -> Responses | None:
    if told.rows is None:
        return None
    return Responses(
        updated=told.rows - told.rows_skipped, given=told.rows + told.rows_unassigned + told.rows_not_critical
    )


def _entries(folder: Path) -> StagesShape:
    """Of the stages that ended in `folder`. Raises DataError."""
    run = RunDirectory(folder)
    try:
        return msgspec.convert(run.load_manifest().stages, StagesShape, from_attributes=True)
    except msgspec.ValidationError as error:
        raise DataError(f"{run.manifest_path}: {shown(str(error).replace('`$', '`$.stages', 1))}") from error


def _is_whole(entries: StagesShape, in_loop: bool) -> bool:
    """Whether all of it ended; what is no loop need not have been trained on."""
    return entries.rollout is not None and (entries.train is not None or not in_loop)


def _standing(place: Path, folders: Sequence[Path], whole: Sequence[Path], notes: list[str]) -> dict[str, Any]:
    """iterations, unfinished, ended; one of `notes` unless all is done."""
    over = RunDirectory(place).finished("run")
    wanted = max(len(folders), over.counts.get("iterations", 0) if over else 0)
    if len(folders) < wanted:
        notes.append(f"{place}: iterations counted: {len(whole)}, not the {wanted} that manifest.json tells of")
    elif over is None or len(whole) < wanted:
        left_out = "".join(f", {folder.name} left out" for folder in folders if folder not in whole)
        notes.append(
            f"{place}: its loop has not ended; iterations counted: {len(whole)}{left_out}; it goes on with the command that began "
            "it and --resume"
        )
    return {"iterations": len(whole), "unfinished": wanted - len(whole), "ended": over is not None}


def _source(folder: Path) -> Source:
    rollout = _entries(folder).rollout
    assert rollout is not None
    return rollout.settings.environment


def _refuse_unlike(sources: dict[str, Source]) -> None:
    """Raises UsageError for the first part in which one is not the first's."""
    first, *others = sources
    for other in others:
        for field in Source.__struct_fields__:
            own, reference = (getattr(sources[name], field) for name in (other, first))
            if own != reference:
                raise UsageError(
                    f"{other}: its tasks are of another environment.{field} ({shown(str(own))}) than those of {first} "
                    f"({shown(str(reference))}); what they cost is not alike"
                )
