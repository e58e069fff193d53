"""compare: evaluations and rollouts of several runs side by side, against the first; reads files, writes none.

Only like is compared with like: the tasks must be the same, in the same order. Where a budget ended one of two early, the part
that both walked is compared. What the files hold must be what summary and manifest say: a cut file is no other panel. Of whole
loops costs are compared and nothing else (compare_training.py): each walks tasks of its own.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from shlex import join
from typing import Any

from agentcli.analysis.compare_training import lacks_training, loop_folders, training_of
from agentcli.errors import DataError, UsageError
from agentcli.evaluation.compare import hides_moves, over_benchmarks, side_by_side
from agentcli.evaluation.growth import TreeShape, totals
from agentcli.evaluation.record import EvaluationSummary
from agentcli.records.files import read_json, read_records
from agentcli.records.runs import RunDirectory
from agentcli.records.types import Episode, StageRecord, Task
from agentcli.stages.panels import make_panel
from agentcli.stages.progress import Progress

GROWN_BY = ("rollout", "demos")
"""Stages that grow trees."""
EVALUATION = (".json", ".jsonl")
"""Its two files: summary and episodes."""
LEFT_OUT = {"trees": "trees are", "training": "what training cost is"}
"""How a note begins."""


def compare(places: Sequence[Path], labels: Sequence[str], progress: Progress) -> dict[str, Any]:
    """Everything about `places` (run directories, or evaluation files) against the first of them.

    `evaluations`: by label, by place (see evaluation.compare); `wilcoxon`: by place, over the labels under `benchmarks`, where
    there are several panels without a common task. When no label was asked for, `trees`: by place, when all are runs that hold
    trees (see `trees_of`); `training`: by place, when some are loops and the others hold a rollout (see compare_training). What
    some runs hold and others lack is left out with a note, and so is from the test a label that shares tasks with an earlier one;
    another note tells of shares of unlike wholes. Raises UsageError and DataError, naming the place, when there is nothing to
    compare, something is missing or damaged, or panels are unlike.
    """
    _check_places(places)
    names, notes = [str(place) for place in places], list[str]()
    found = {
        label: dict(zip(names, paths, strict=True)) for label, paths in evaluations_of(places, labels, notes).items()
    }
    result: dict[str, Any] = {"first": names[0], "evaluations": {}}
    panels: dict[str, set[str]] = {}
    untold: dict[str, list[str]] = {name: [] for name in names}
    for label, paths in found.items():
        rows = read_alike(paths)
        result["evaluations"][label] = side_by_side(rows)
        panels[label] = {row.task for row in rows[names[0]]}
        older = [name for name, own in rows.items() if hides_moves(own)]
        for name in older if len(older) < len(names) else ():
            untold[name].append(label)
    benchmarks = _benchmarks(panels, notes)
    if len(benchmarks) > 1:
        result |= {"benchmarks": benchmarks, "wilcoxon": _wilcoxon(result["evaluations"], benchmarks, names)}
    notes += _of_responses(untold)
    sampled = {} if labels else _sampled(places, bool(found), notes)
    if not found and not sampled:
        why = f" ({'; '.join(notes)})" if notes else ""
        raise DataError(
            f"{' and '.join(names)} have neither an evaluation label nor trees in common{why}; evaluate each with: agentcli eval"
        )
    result |= sampled
    for note in notes:
        progress.note(note)
    return result


def _check_places(places: Sequence[Path]) -> None:
    """Raises UsageError for too few places and for one named twice, DataError for what is no run and no evaluation."""
    if len(places) < 2:
        raise UsageError("compare needs two runs or more, each named once: agentcli compare runs/a runs/b")
    seen: dict[Path, Path] = {}
    for place in places:
        if not place.is_dir() and place.suffix not in EVALUATION:
            fault = "is no evaluation" if place.exists() else "no such run directory"
            raise DataError(f"{place}: {fault}; name a run directory, or one of its evaluation/*.json")
        itself = place.resolve() if place.is_dir() else place.resolve().with_suffix(".json")
        if itself in seen:
            again = "is named twice" if place == seen[itself] else f"is the same as {seen[itself]}"
            raise UsageError(f"{place} {again}; compare needs two runs or more, each named once")
        seen[itself] = place


def evaluations_of(places: Sequence[Path], labels: Sequence[str], notes: list[str]) -> dict[str, list[Path]]:
    """By label the episode files, one for each place. A file stands for itself, beside runs for the one label given. What is left
    out is added to `notes`."""
    files = [place for place in places if not place.is_dir()]
    if not files:
        chosen = list(dict.fromkeys(labels)) or _common_labels(places, notes)
        return {label: [_episodes(RunDirectory(place).evaluation(label)) for place in places] for label in chosen}
    if len(files) == len(places) and labels:
        raise UsageError(
            f"--label has no effect on evaluation files; leave it out, or name runs in the place of {files[0]}"
        )
    if len(files) < len(places) and len(labels) != 1:
        raise UsageError(
            "beside an evaluation file, runs need one --label NAME: agentcli compare runs/a runs/b/evaluation/L0.json"
        )
    paths = [RunDirectory(place).evaluation(labels[0]) if place.is_dir() else place for place in places]
    return {" / ".join(dict.fromkeys(path.stem for path in paths)): [_episodes(path) for path in paths]}


def _common_labels(places: Sequence[Path], notes: list[str]) -> list[str]:
    """Labels of the evaluations that all runs hold finished, in natural order."""
    held = [{path.stem for path in place.glob("evaluation/*.json")} for place in places]
    common = set.intersection(*held)
    rest = sorted(set.union(*held) - common, key=_natural)
    if rest:
        more = f" and {len(rest) - 5} more" if len(rest) > 5 else ""
        notes.append(f"evaluations that not every run holds are left out: {', '.join(rest[:5])}{more}")
    return sorted(common, key=_natural)


def _natural(name: str) -> list[Any]:
    """A key to sort by: b2 before b10."""
    parts = re.split(r"(\d+)", name)
    return [[int(part) if place % 2 else part for place, part in enumerate(parts)], name]


def _episodes(path: Path) -> Path:
    """The .jsonl of an evaluation that ended. Raises DataError."""
    for file in map(path.with_suffix, EVALUATION):
        if not file.exists():
            if path.parent.name != "evaluation":
                raise DataError(
                    f"{file}: no such file; an evaluation is two, RUN/evaluation/LABEL.json and LABEL.jsonl"
                )
            again = join(["agentcli", "eval", str(path.parent.parent), "--label", path.stem])
            raise DataError(f"{file}: no such file; write it with: {again}")
    return path.with_suffix(".jsonl")


def read_alike(paths: Mapping[str, Path]) -> dict[str, list[Episode]]:
    """The episodes by name. Raises DataError for a file that is not what its summary says, UsageError when panels are unlike."""
    rows, walked, cut = {}, {}, set()
    for name, path in paths.items():
        summary = read_json(path.with_suffix(".json"), EvaluationSummary)
        rows[name] = list(read_records(path, Episode))
        walked[name] = list(dict.fromkeys(row.task for row in rows[name]))
        if len(rows[name]) != summary.episodes or _hash(walked[name]) != summary.panel.sha256:
            fault = _not_those(len(rows[name]), summary.episodes, "episodes", f"{path.stem}.json")
            options = ["--split", summary.split, "--label", path.stem, "--resume"]
            again = join(["agentcli", summary.stage, str(path.parent.parent), *options])
            raise DataError(f"{path}: {fault}; go on with: {again}")
        if summary.budget:
            cut.add(name)
    refuse_unlike(walked, cut, "evaluation")
    return rows


def _not_those(held: int, wanted: int, what: str, where: str) -> str:
    """How records differ from what is said of them."""
    count = f"holds {held} {what}, not the {wanted}" if held != wanted else f"its {what} are not those of the tasks"
    return f"{count} that {where} tells of"


def _hash(tasks: Iterable[str]) -> str:
    """The hash of a panel of these ids."""
    return make_panel("", "", [Task(id=name, world="", split="", kind="") for name in tasks]).sha256


def refuse_unlike(walked: Mapping[str, list[str]], cut: set[str], what: str) -> None:
    """Raises UsageError unless all task lists are the first's; where a budget cut one of two, the shorter must begin the
    longer."""
    first, *others = walked
    for other in others:
        length = min(len(walked[first]), len(walked[other])) if {first, other} & cut else None
        if walked[first][:length] != walked[other][:length]:
            tasks = {name: f"{len(walked[name])} tasks" for name in (first, other)}
            raise UsageError(
                f"{other}: its {what} is of another panel ({tasks[other]}) than that of {first} ({tasks[first]}); do both with the "
                "same --split, --tasks and --where"
            )


def _benchmarks(panels: Mapping[str, set[str]], notes: list[str]) -> list[str]:
    """Labels without a common task, first come, first served; one of `notes` for the others if there is a test to leave them out
    of."""
    chosen: list[str] = []
    left_out: dict[str, str] = {}
    for label, tasks in panels.items():
        earlier = next((other for other in chosen if tasks & panels[other]), None)
        if earlier is None:
            chosen.append(label)
        else:
            left_out[label] = earlier
    if left_out and len(chosen) > 1:
        told = ", ".join(f"{label} (it shares tasks with {earlier})" for label, earlier in left_out.items())
        notes.append(f"left out of the Wilcoxon test over {', '.join(chosen)}: {told}")
    return chosen


def _of_responses(untold: Mapping[str, Sequence[str]]) -> list[str]:
    """A note on the labels, by place, whose shares are of another whole than those beside them; none without any."""
    older = ", ".join(f"{name} ({', '.join(labels)})" for name, labels in untold.items() if labels)
    told = "older evaluations do not tell their moves, so that repetitive % and inadmissible % are shares of responses there"
    return [f"{told} and of moves beside them: {older}; evaluate again to compare these"] if older else []


def _wilcoxon(
    evaluations: Mapping[str, Any], benchmarks: Sequence[str], names: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """The test over benchmarks, of the gains over the first on the tasks that both walked."""
    first, *others = names
    gains = {
        name: [evaluations[label][name]["against"]["success"]["difference"] for label in benchmarks] for name in others
    }
    return over_benchmarks({first: [0.0] * len(benchmarks), **gains})


def _sampled(places: Sequence[Path], optional: bool, notes: list[str]) -> dict[str, Any]:
    """`trees` and `training`, each where all of `places` hold it. With `optional`, unlike panels are one of `notes`."""
    ways: dict[str, Callable[[], dict[str, Any]]] = {}
    lacking = [place for place in places if not holds_trees(place)]
    loops = [place for place in places if loop_folders(place)]
    if not lacking:
        ways["trees"] = partial(trees_of, places)
    elif len(lacking) < len(places) and not loops:
        notes.append(f"trees are left out: {lacking[0]} holds none")
    if loops:
        fault = next(filter(None, map(lacks_training, places)), None)
        if fault is None:
            ways["training"] = partial(training_of, places, notes)
        else:
            notes.append(f"what training cost is left out: {fault}")
    found = {}
    for name, way in ways.items():
        try:
            found[name] = way()
        except UsageError as error:
            if not optional:
                raise
            notes.append(f"{LEFT_OUT[name]} left out: {error}")
    return found


def holds_trees(place: Path) -> bool:
    """Whether a stage that grows trees ended there."""
    return place.is_dir() and _grown(place) is not None


def trees_of(places: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """By place: what evaluation.growth says, with the number of tasks, and seconds. Raises DataError for trees that are not those
    of the manifest, UsageError for unlike panels."""
    found, walked, cut = {}, {}, set()
    for place in places:
        grown = _grown(place)
        assert grown is not None
        stage, record = grown
        trees, name = RunDirectory(place).existing_trees(), str(place)
        own = totals(read_records(trees, TreeShape))
        walked[name] = own["tasks"]
        count = record.counts.get("trees", len(walked[name]))
        if len(walked[name]) != count or (stage == "rollout" and _hash(walked[name]) != record.panel):
            fault = _not_those(len(walked[name]), count, "trees", "manifest.json")
            raise DataError(f"{trees}: {fault}; go on with: {join(['agentcli', stage, '--resume', '-o', name])}")
        found[name] = {**own, "tasks": len(walked[name]), "seconds": record.seconds}
        if "budget" in record.statistics:
            cut.add(name)
    refuse_unlike(walked, cut, "rollout")
    return found


def _grown(place: Path) -> tuple[str, StageRecord] | None:
    """The stage that wrote the trees there, and its entry."""
    stages = RunDirectory(place).load_manifest().stages
    return next(((name, stages[name]) for name in GROWN_BY if name in stages), None)
