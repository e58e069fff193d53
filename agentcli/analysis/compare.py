"""compare: evaluations and rollouts of several runs side by side, against the first.

The tasks must be the same, in the same order. If a budget ended one of two runs early,
the tasks that both played are compared. Files must match their summary and manifest: a
truncated file is not a different panel. Whole loops are compared only by cost
(compare_training.py), because each loop plays its own tasks.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from glob import glob, has_magic
from pathlib import Path
from shlex import join
from typing import Any, NamedTuple

from agentcli.analysis.compare_training import lacks_training, training_of
from agentcli.errors import DataError, UsageError
from agentcli.evaluation.compare import RunComparison, over_benchmarks, side_by_side
from agentcli.evaluation.growth import Growth, TreeShape, totals
from agentcli.evaluation.record import EvaluationSummary
from agentcli.records.files import read_json, read_records
from agentcli.records.grouping import grouped
from agentcli.records.regular import is_there, refuse_irregular
from agentcli.records.runs import RunDirectory, loop_folders
from agentcli.records.types import Episode
from agentcli.reports.standing import Progress
from agentcli.stages.panels import panel_hash, panel_overlaps
from agentcli.stages.resolve import inherited


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
    check_places(places)
    names = [str(place) for place in places]
    notes: list[str] = []
    comparison = RunComparison(first=names[0], evaluations={})
    files = evaluations_of(places, labels, notes)
    # A generator, so that the episodes of all labels are never in memory at once.
    read = (
        (label, read_alike(dict(zip(names, paths, strict=True)), notes, len(files) > 1))
        for label, paths in files.items()
    )
    add_evaluations(comparison, read, notes)
    if not labels:
        # With evaluations to show, what else cannot be compared is only worth a note.
        optional = bool(comparison.evaluations)
        for add, what in ((_add_trees, "trees are"), (_add_training, TRAINING)):
            try:
                add(comparison, places, notes)
            except UsageError as error:
                if not optional:
                    raise
                notes.append(f"{what} left out: {error}")
    if not (comparison.evaluations or comparison.trees or comparison.training):
        raise nothing_in_common(names, "trees", places, notes)
    for note in notes:
        progress.note(note)
    return comparison


def nothing_in_common(
    names: Iterable[str], others: str, places: Sequence[Path], notes: Sequence[str]
) -> DataError:
    """The error where there is nothing to compare. `others`: what might have been."""
    why = f" ({'; '.join(notes)})" if notes else ""
    return DataError(
        f"{' and '.join(names)} have neither an evaluation label nor {others} in "
        f"common{why}; evaluate each with: {_evaluating(places)}"
    )


class Side(NamedTuple):
    """What stands on one side of a comparison."""

    name: str
    """As it was typed."""
    runs: list[Path]


def read_side(typed: Path) -> Side:
    """The side that a word names: a run, a list with commas, or a pattern.

    Raises UsageError for a word that is no list, and for one that can be read in two
    ways; DataError for a pattern without a run directory.
    """
    name = str(typed)
    parts = name.split(",")
    if len(parts) == 1 and not has_magic(name):
        return Side(name, [typed])
    found = [_runs_of(part) for part in parts]
    runs = [run for of_part in found for run in of_part]
    if is_there(typed):
        others = [run for run in runs if run != typed]
        if others and all(found) and all(map(is_there, others)):
            raise UsageError(
                f"{name}: is a run, and also means {', '.join(map(str, others))}; "
                "rename that run"
            )
        return Side(name, [typed])
    for part, of_part in zip(parts, found, strict=True):
        if not part:
            raise UsageError(
                f"{name}: a run is missing beside a comma; write runs/a-0,runs/a-1"
            )
        if not of_part:
            raise DataError(f"{part}: no run directory matches")
    return Side(name, runs)


def _runs_of(part: str) -> list[Path]:
    """The run directories of one part of a list, in the order of their names."""
    if has_magic(part):
        return [path for path in map(Path, sorted(glob(part))) if path.is_dir()]
    return [Path(part)] if part else []


def check_places(places: Sequence[Path]) -> None:
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
        # runs/latest is a link: it must not be compared with the run it points to.
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


def add_evaluations(
    comparison: RunComparison,
    evaluations: Iterable[tuple[str, Mapping[str, Sequence[Episode]]]],
    notes: list[str],
) -> None:
    """Compares the evaluations of every label, and tests over benchmarks.

    evaluations: label, and the episodes by name, the first name first.
    """
    panels: dict[str, set[str]] = {}
    for label, rows in evaluations:
        comparison.evaluations[label] = side_by_side(rows)
        first = next(iter(rows.values()))
        panels[label] = {row.task for row in first}
    notes.extend(panel_overlaps(panels))
    benchmarks = _benchmarks(panels, notes)
    if len(benchmarks) < 2:
        return
    comparison.benchmarks = benchmarks
    gains: dict[str, list[float]] = {}
    for label in benchmarks:
        for name, row in comparison.evaluations[label].items():
            if row.against:
                gains.setdefault(name, []).append(row.against.success.difference)
    comparison.wilcoxon = over_benchmarks(gains)


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
        # The signed-rank test takes its pairs to be independent.
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


def _add_trees(
    comparison: RunComparison, places: Sequence[Path], notes: list[str]
) -> None:
    """Compares the trees where all of `places` hold some."""
    lacking = [place for place in places if not holds_trees(place)]
    # Whole loops keep their trees in iterations; their costs are compared instead.
    loops = any(map(loop_folders, places))
    if not lacking:
        comparison.trees = trees_of(places)
    elif len(lacking) < len(places) and not loops:
        notes.append(f"trees are left out: {lacking[0]} holds none")


TRAINING = "what training cost is"


def _add_training(
    comparison: RunComparison, places: Sequence[Path], notes: list[str]
) -> None:
    """Compares the cost of training where one of `places` is a loop."""
    if not any(map(loop_folders, places)):
        return
    fault = next(filter(None, map(lacks_training, places)), None)
    if fault is None:
        comparison.training = training_of(places, notes)
    else:
        notes.append(f"{TRAINING} left out: {fault}")


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


EVALUATION = (".json", ".jsonl")
"""The two files of an evaluation: summary and episodes."""
NAMED = 5
"""Labels listed before "and N more"."""


def evaluations_of(
    places: Sequence[Path],
    labels: Sequence[str],
    notes: list[str],
) -> dict[str, list[Path]]:
    """The episode files by label, one for each place.

    An evaluation file stands for itself, and beside runs for the one label given.
    `notes` get what is left out. Raises UsageError where `labels` and `places` do not
    go together, DataError for a file that is missing.
    """
    files = [place for place in places if not place.is_dir()]
    if not files:
        chosen = list(dict.fromkeys(labels))
        if not chosen:
            chosen = _common_labels(places, notes)
        return {label: _files(places, label) for label in chosen}
    if len(files) == len(places) and labels:
        raise UsageError(
            "--label has no effect on evaluation files; leave it out, or name runs "
            f"in the place of {files[0]}"
        )
    if len(files) < len(places) and len(labels) != 1:
        raise UsageError(
            "beside an evaluation file, runs need one --label NAME: agentcli compare "
            "runs/a runs/b/evaluation/L0.json --label L0"
        )
    paths = _files(places, labels[0] if labels else "")
    stems = dict.fromkeys(path.stem for path in paths)
    return {" / ".join(stems): paths}


def _files(places: Sequence[Path], label: str) -> list[Path]:
    """The episode file of each place, which is a run or such a file itself."""
    paths = []
    for place in places:
        path = place
        if place.is_dir():
            path = RunDirectory(place).evaluation(label)
        paths.append(_episodes(path))
    return paths


def read_alike(
    paths: Mapping[str, Path], notes: list[str], more: bool
) -> dict[str, list[Episode]]:
    """The episodes by name.

    `notes` get what they were played with if that differs; `more`: these are not the
    only evaluations. Raises DataError as
    `read_whole` does, UsageError when panels are unlike.
    """
    summaries: dict[str, EvaluationSummary] = {}
    episodes: dict[str, list[Episode]] = {}
    walked: dict[str, WalkedTasks] = {}
    for name, path in paths.items():
        evaluation = read_whole(path)
        episodes[name] = evaluation.rows
        cut = evaluation.summary.budget is not None
        walked[name] = WalkedTasks(evaluation.tasks, cut)
        summaries[str(path)] = evaluation.summary
    labels = dict.fromkeys(path.stem for path in paths.values())
    refuse_unlike(walked, f"evaluation {' / '.join(labels)}", more)
    notes.extend(unlike_play(summaries))
    return episodes


def unlike_play(summaries: Mapping[str, EvaluationSummary]) -> Iterator[str]:
    """How evaluations were played, where that differs, and which are out of date.

    By their files. It may be what is asked about, and is no reason to refuse them.
    """
    played = {file: _played(Path(file), one) for file, one in summaries.items()}
    for name in ("temperature", "max_steps", "options"):
        values = grouped((of[name], file) for file, of in played.items() if name in of)
        if len(values) > 1:
            of_files = (f"{value} in {files[0]}" for value, files in values.items())
            yield f"evaluations are unlike: {name} is {', '.join(of_files)}"
    for file in map(Path, summaries):
        # A damaged manifest tells less.
        with suppress(DataError):
            if file.stem in RunDirectory(file.absolute().parents[1]).outdated():
                yield f"{file}: is of weights that were trained anew since"


def _played(file: Path, summary: EvaluationSummary) -> dict[str, str]:
    """What may be told of how an evaluation was played; a damaged manifest tells less."""
    told = {}
    if summary.model is not None:
        told["temperature"] = f"{summary.temperature:g}"
    with suppress(DataError, KeyError, TypeError):
        run = RunDirectory(file.absolute().parents[1])
        record = run.finished(f"evaluation/{file.stem}")
        if record is not None:
            environment = record.settings["environment"]
            told["max_steps"] = str(environment["max_steps"])
            # Not every world names in its tasks' ids which games its options make.
            told["options"] = json.dumps(environment["options"], sort_keys=True)
    return told


class WholeEvaluation(NamedTuple):
    """An evaluation whose two files belong together."""

    summary: EvaluationSummary
    rows: list[Episode]
    tasks: list[str]
    """Their ids, in the order of the panel."""


def read_whole(path: Path) -> WholeEvaluation:
    """The evaluation of which `path` is one of the two files.

    Raises DataError where one is missing, or the episodes are not those of the summary.
    """
    path = _episodes(path)
    summary = read_json(path.with_suffix(".json"), EvaluationSummary)
    rows = list(read_records(path, Episode))
    tasks = list(dict.fromkeys(row.task for row in rows))
    if len(rows) == summary.episodes and panel_hash(tasks) == summary.panel.sha256:
        return WholeEvaluation(summary, rows, tasks)
    fault = mismatch(len(rows), summary.episodes, "episodes", f"{path.stem}.json")
    again = join([*_evaluated_by(path.parent.parent, summary), "--resume"])
    raise DataError(f"{path}: {fault}; go on with: {again}")


def _evaluated_by(run: Path, summary: EvaluationSummary) -> list[str]:
    """The words of the command that evaluated a run, or the likeliest."""
    record = RunDirectory(run).finished(f"evaluation/{summary.label}")
    if record is not None and record.command:
        left_out = ("--resume", "--overwrite", "-q")
        return [word for word in record.command if word not in left_out]
    options = ["--split", summary.split, "--label", summary.label]
    return ["agentcli", summary.stage, str(run), *options]


def _common_labels(places: Sequence[Path], notes: list[str]) -> list[str]:
    """The labels of the evaluations that all runs hold finished, in natural order."""
    held = []
    for place in places:
        summaries = place.glob("evaluation/*.json")
        held.append({path.stem for path in summaries})
    common = set.intersection(*held)
    partial = set.union(*held) - common
    others = sorted(partial, key=_natural)
    if others:
        named = ", ".join(others[:NAMED])
        if len(others) > NAMED:
            named += f" and {len(others) - NAMED} more"
        notes.append(f"evaluations that not every run holds are left out: {named}")
    return sorted(common, key=_natural)


def _evaluating(places: Sequence[Path]) -> str:
    """The command that evaluates one run as another already was."""
    for place in places:
        for file in sorted(place.glob("evaluation/*.json")):
            rows = [other / "evaluation" / file.name for other in places]
            lacking = [path.parents[1] for path in rows if not is_there(path)]
            summary = read_json(file, EvaluationSummary)
            # Other stages that evaluate have options that this command would lack.
            if lacking and summary.stage == "eval":
                return join(_eval_words(lacking[0], place, summary))
    return "agentcli eval"


def _eval_words(run: Path, like: Path, summary: EvaluationSummary) -> list[str]:
    """The words that evaluate `run` as `summary` says that another was."""
    record = RunDirectory(like).finished(f"evaluation/{summary.label}")
    asked = {} if record is None else record.settings.get("evaluation", {})
    has_temperature = summary.model is not None
    world = {} if record is None else record.settings.get("environment", {})
    where = [f"{name}={','.join(of)}" for name, of in world.get("where", {}).items()]
    own = inherited(run) or {}
    horizon = world.get("max_steps")
    if horizon == own.get("environment", {}).get("max_steps"):
        horizon = None
    options = {
        "--split": None if world.get("panel") else summary.split,
        "--where": ",".join(where) or None,
        "--panel": world.get("panel"),
        "--tasks": asked.get("tasks"),
        "--max-steps": horizon,
        "--samples": summary.samples,
        "--temperature": f"{summary.temperature:g}" if has_temperature else None,
        "--label": summary.label,
    }
    words = ["agentcli", "eval", str(run)]
    for option, value in options.items():
        if value is not None:
            words += [option, str(value)]
    return words


def _natural(name: str) -> list[Any]:
    """A key to sort by: b2 before b10."""
    parts: list[str | int] = []
    for place, word in enumerate(re.split(r"(\d+)", name)):
        # Odd places of the split are the numbers.
        parts.append(int(word) if place % 2 else word)
    # b2 and b02 have equal parts: the name itself keeps their order fixed.
    return [parts, name]


def _episodes(path: Path) -> Path:
    """The .jsonl of an evaluation that ended. Raises DataError."""
    files = [path.with_suffix(suffix) for suffix in EVALUATION]
    missing = [file for file in files if not is_there(file)]
    if not missing:
        return path.with_suffix(".jsonl")
    if path.parent.name != "evaluation":
        raise DataError(
            f"{missing[0]}: no such file; an evaluation is two, "
            "RUN/evaluation/LABEL.json and LABEL.jsonl"
        )
    run = str(path.parent.parent)
    again = join(["agentcli", "eval", run, "--label", path.stem])
    raise DataError(f"{missing[0]}: no such file; write it with: {again}")


class WalkedTasks(NamedTuple):
    """The tasks of a panel that were played."""

    tasks: Sequence[str]
    """Ids, in their order."""
    cut: bool
    """Whether a budget may have ended the panel early."""


def refuse_unlike(
    walked: Mapping[str, WalkedTasks], subject: str, more: bool = False
) -> None:
    """Raises UsageError unless all played the same tasks as the first.

    It says how the other evaluations are compared, where there are `more` of them.
    If a budget ended one of two early, the shorter list must begin the longer one.
    """
    first, *others = walked
    reference = walked[first]
    for name in others:
        other = walked[name]
        lengths = (len(other.tasks), len(reference.tasks))
        compared = max(lengths)
        # Without a budget a shorter list is another panel, not an early end.
        if reference.cut or other.cut:
            compared = min(lengths)
        if reference.tasks[:compared] != other.tasks[:compared]:
            remedy = "do both with the same --split, --tasks and --where"
            if more:
                remedy += ", or compare the others alone with --label NAME"
            raise UsageError(
                f"{name}: its {subject} is of another panel ({lengths[0]} tasks) than "
                f"that of {first} ({lengths[1]} tasks); {remedy}"
            )


def mismatch(held: int, wanted: int, records: str, where: str) -> str:
    """The part of an error that says how a file differs from its description."""
    if held != wanted:
        return f"holds {held} {records}, not the {wanted} of {where}"
    return f"its {records} are not those of the tasks of {where}"
