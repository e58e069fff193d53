"""compare for whole loops: the cost of training.

It is read from the manifests of the iterations, not from trees. If a loop is still
running or was killed, only iterations whose rollout and training ended are summed, and
a note says so. A single rollout can be compared with loops too, including the training
on it, if any.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from agentcli.errors import DataError, UsageError
from agentcli.evaluation.training import Iteration, LoopCost, TaskSource, training_cost
from agentcli.records.faults import shown
from agentcli.records.runs import RunDirectory, loop_folders


def training_of(places: Sequence[Path], notes: list[str]) -> dict[str, LoopCost]:
    """The cost of training in each place; adds a note for each unfinished one.

    `lacks_training` must find no fault in the places. Raises UsageError where tasks are
    taken from unlike sources, DataError for damaged files.
    """
    whole = {place: _whole_folders(place) for place in places}
    read = {}
    for place, folders in whole.items():
        read[str(place)] = [read_iteration(folder) for folder in folders]
    _refuse_unlike(read)
    alone = [place for place in places if not loop_folders(place)]
    if alone:
        notes.append(
            f"{alone[0]} is one rollout beside loops; compare what a leaf cost"
        )
    costs = {name: training_cost(iterations) for name, iterations in read.items()}
    for place, folders in whole.items():
        if loop_folders(place):
            _add_progress(costs[str(place)], place, folders, notes)
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
    run = RunDirectory(folder)
    stages = run.load_manifest().stages
    try:
        return msgspec.convert(stages, Iteration, from_attributes=True)
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
        ended = RunDirectory(folder).load_manifest().stages
        if "rollout" in ended and ("train" in ended or not iterations):
            whole.append(folder)
    return whole


def _add_progress(
    cost: LoopCost,
    place: Path,
    whole: Sequence[Path],
    notes: list[str],
) -> None:
    """Records how far the loop has come; adds a note unless it is finished."""
    folders = loop_folders(place)
    over = RunDirectory(place).finished("run")
    recorded = over.counts.get("iterations", 0) if over else 0
    # A folder may have been removed after the loop recorded its number.
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


def _refuse_unlike(loops: Mapping[str, Sequence[Iteration]]) -> None:
    """Raises UsageError where a loop's first tasks are not of the first one's kind."""
    first, *others = loops
    reference = loops[first][0].rollout.settings.environment
    for other in others:
        source = loops[other][0].rollout.settings.environment
        for field in TaskSource.__struct_fields__:
            value = getattr(source, field)
            wanted = getattr(reference, field)
            if value != wanted:
                raise UsageError(
                    f"{other}: its tasks are of another environment.{field} "
                    f"({shown(str(value))}) than those of {first} "
                    f"({shown(str(wanted))}); what they cost is not alike"
                )
