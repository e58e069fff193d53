"""compare: evaluations and rollouts of several runs side by side, against the first.

The tasks must be the same, in the same order. If a budget ended one of two runs early,
the tasks that both played are compared. Files must match their summary and manifest: a
truncated file is not a different panel. Whole loops are compared only by cost
(compare_training.py), because each loop plays its own tasks.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from agentcli.analysis.compare_evaluations import (
    EVALUATION,
    WalkedTasks,
    evaluating,
    evaluations_of,
    mismatch,
    read_alike,
    refuse_unlike,
)
from agentcli.analysis.compare_training import lacks_training, training_of
from agentcli.errors import DataError, UsageError
from agentcli.evaluation.compare import (
    ComparedEvaluation,
    RunComparison,
    SignedRankTest,
    over_benchmarks,
    side_by_side,
)
from agentcli.evaluation.growth import Growth, TreeShape, totals
from agentcli.evaluation.training import LoopCost
from agentcli.records.files import read_records
from agentcli.records.regular import is_there, refuse_irregular
from agentcli.records.runs import RunDirectory, loop_folders
from agentcli.reports.standing import Progress
from agentcli.stages.overlap import of_panels
from agentcli.stages.panels import panel_hash


def compare(
    places: Sequence[Path],
    labels: Sequence[str],
    progress: Progress,
) -> RunComparison:
    """Compares run directories, or evaluation files, with the first of them.

    Trees are compared if all places have some; training if some are loops and the
    others have a rollout; neither if labels were requested. Notes list what only some
    runs have, and what is left out. Raises UsageError and DataError, naming the place,
    if there is nothing to compare, something is missing or damaged, or panels differ.
    """
    _check_places(places)
    names = [str(place) for place in places]
    notes: list[str] = []
    comparison = RunComparison(first=names[0], evaluations={})
    _add_evaluations(
        comparison,
        evaluations_of(places, labels, notes),
        names,
        notes,
    )
    if not labels:
        optional = bool(comparison.evaluations)
        try:
            comparison.trees = _trees(places, notes)
        except UsageError as error:
            if not optional:
                raise
            notes.append(f"trees are left out: {error}")
        try:
            comparison.training = _training(places, notes)
        except UsageError as error:
            if not optional:
                raise
            notes.append(f"what training cost is left out: {error}")
    if not (comparison.evaluations or comparison.trees or comparison.training):
        why = f" ({'; '.join(notes)})" if notes else ""
        raise DataError(
            f"{' and '.join(names)} have neither an evaluation label nor trees in "
            f"common{why}; evaluate each with: {evaluating(places)}"
        )
    for note in notes:
        progress.note(note)
    return comparison


def _check_places(places: Sequence[Path]) -> None:
    """Raises UsageError for too few places, and for a place that is named twice.

    Raises DataError for a place that is neither a run nor an evaluation.
    """
    if len(places) < 2:
        raise UsageError(
            "compare needs two runs or more, each named once: agentcli compare "
            "runs/a runs/b"
        )
    names: dict[Path, Path] = {}
    for place in places:
        if not place.is_dir() and place.suffix not in EVALUATION:
            fault = (
                "is not an evaluation" if is_there(place) else "no such run directory"
            )
            raise DataError(
                f"{place}: {fault}; name a run directory, or one of its "
                "evaluation/*.json"
            )
        if not place.is_dir():
            refuse_irregular(place)
        itself = place.resolve()
        if not place.is_dir():
            # The two files of an evaluation are one place.
            itself = itself.with_suffix(".json")
        if itself in names:
            former = names[itself]
            again = f"is the same as {former}"
            if place == former:
                again = "is named twice"
            raise UsageError(
                f"{place} {again}; compare needs two runs or more, each named once"
            )
        names[itself] = place


def _add_evaluations(
    comparison: RunComparison,
    files: Mapping[str, Sequence[Path]],
    names: Sequence[str],
    notes: list[str],
) -> None:
    """Compares the evaluations of every label, and tests over benchmarks.

    `files` are by label, one a name.
    """
    panels: dict[str, set[str]] = {}
    for label, paths in files.items():
        rows = read_alike(dict(zip(names, paths, strict=True)))
        comparison.evaluations[label] = side_by_side(rows)
        panels[label] = {row.task for row in rows[names[0]]}
    notes.extend(of_panels(panels))
    benchmarks = _benchmarks(panels, notes)
    if len(benchmarks) > 1:
        comparison.benchmarks = benchmarks
        comparison.wilcoxon = _wilcoxon(comparison.evaluations, benchmarks, names[1:])


def _benchmarks(
    panels: Mapping[str, set[str]],
    notes: list[str],
) -> list[str]:
    """The labels without a common task, first come, first served.

    A note names the others, if there is a test without them.
    """
    chosen: list[str] = []
    others: list[str] = []
    for label, tasks in panels.items():
        earlier = [other for other in chosen if tasks & panels[other]]
        if earlier:
            others.append(f"{label} (it shares tasks with {earlier[0]})")
        else:
            chosen.append(label)
    if others and len(chosen) > 1:
        notes.append(
            f"left out of the Wilcoxon test over {', '.join(chosen)}: "
            f"{', '.join(others)}"
        )
    return chosen


def _wilcoxon(
    evaluations: Mapping[str, Mapping[str, ComparedEvaluation]],
    benchmarks: Sequence[str],
    names: Sequence[str],
) -> dict[str, SignedRankTest]:
    """The test over benchmarks; gains are over the tasks that both runs played."""
    gains: dict[str, list[float]] = {name: [] for name in names}
    for label in benchmarks:
        for name in names:
            against = evaluations[label][name].against
            if against:
                gains[name].append(against.success.difference)
    return over_benchmarks(gains)


def _trees(places: Sequence[Path], notes: list[str]) -> dict[str, Growth]:
    """The trees where all of `places` hold some, else none."""
    lacking = [place for place in places if not holds_trees(place)]
    if not lacking:
        return trees_of(places)
    # Whole loops keep their trees in iterations; their costs are compared instead.
    loops = any(map(loop_folders, places))
    if len(lacking) < len(places) and not loops:
        notes.append(f"trees are left out: {lacking[0]} holds none")
    return {}


def _training(places: Sequence[Path], notes: list[str]) -> dict[str, LoopCost]:
    """The cost of training where one of `places` is a loop, else none."""
    if not any(map(loop_folders, places)):
        return {}
    for place in places:
        fault = lacks_training(place)
        if fault is not None:
            notes.append(f"what training cost is left out: {fault}")
            return {}
    return training_of(places, notes)


def holds_trees(place: Path) -> bool:
    """Whether a stage that grows trees has ended in this place."""
    return place.is_dir() and RunDirectory(place).grown() is not None


def trees_of(places: Sequence[Path]) -> dict[str, Growth]:
    """The sums over the trees of each place that `holds_trees`.

    Raises DataError for trees that are not those of the manifest, UsageError for unlike
    panels.
    """
    growths: dict[str, Growth] = {}
    walked: dict[str, WalkedTasks] = {}
    for place in places:
        run = RunDirectory(place)
        grown = run.grown()
        assert grown is not None
        stage, record = grown
        name = str(place)
        trees = run.existing_trees()
        tasks: list[str] = []
        growth = totals(_noting_tasks(trees, tasks))
        held = len(tasks)
        fault = run.lost_trees(held)
        if fault is not None:
            raise DataError(f"{trees}: {fault}")
        # Demonstrations need not be of every task.
        if stage == "rollout" and panel_hash(tasks) != record.panel:
            fault = mismatch(held, held, "trees", "manifest.json")
            raise DataError(f"{trees}: {fault}; go on with: {run.resuming(stage)}")
        growth.seconds = record.seconds
        growths[name] = growth
        cut = "budget" in record.statistics
        walked[name] = WalkedTasks(tasks, cut)
    refuse_unlike(walked, "rollout")
    return growths


def _noting_tasks(trees: Path, tasks: list[str]) -> Iterator[TreeShape]:
    """The trees, one at a time; adds their ids to `tasks`."""
    for tree in read_records(trees, TreeShape):
        tasks.append(tree.task.id)
        yield tree
