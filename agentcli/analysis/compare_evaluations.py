"""compare, of evaluations: finds the files that are meant, and reads their episodes.

Also checks that runs played the same tasks, and wrote as many records as they should.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import join
from typing import Any, NamedTuple

from agentcli.errors import DataError, UsageError
from agentcli.evaluation.record import EvaluationSummary
from agentcli.records.files import read_json, read_records
from agentcli.records.regular import is_there
from agentcli.records.runs import RunDirectory
from agentcli.records.types import Episode
from agentcli.stages.panels import panel_hash

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


def read_alike(paths: Mapping[str, Path]) -> dict[str, list[Episode]]:
    """The episodes by name.

    Raises DataError as `read_whole` does, UsageError when panels are unlike.
    """
    episodes: dict[str, list[Episode]] = {}
    walked: dict[str, WalkedTasks] = {}
    for name, path in paths.items():
        evaluation = read_whole(path)
        episodes[name] = evaluation.rows
        cut = evaluation.summary.budget is not None
        walked[name] = WalkedTasks(evaluation.tasks, cut)
    refuse_unlike(walked, "evaluation")
    return episodes


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
    run = str(path.parent.parent)
    options = ["--split", summary.split, "--label", path.stem, "--resume"]
    again = join(["agentcli", summary.stage, run, *options])
    raise DataError(f"{path}: {fault}; go on with: {again}")


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


def evaluating(places: Sequence[Path]) -> str:
    """The command that evaluates one run as another already was."""
    for place in places:
        for file in sorted(place.glob("evaluation/*.json")):
            rows = [other / "evaluation" / file.name for other in places]
            lacking = [path.parents[1] for path in rows if not is_there(path)]
            summary = read_json(file, EvaluationSummary)
            if lacking and summary.stage == "eval":
                return join(_eval_words(lacking[0], place, summary))
    return "agentcli eval"


def _eval_words(run: Path, like: Path, summary: EvaluationSummary) -> list[str]:
    """The words that evaluate `run` as `summary` says that another was."""
    record = RunDirectory(like).finished(f"evaluation/{summary.label}")
    asked = {} if record is None else record.settings.get("evaluation", {})
    has_temperature = summary.model is not None
    options = {
        "--split": summary.split,
        "--tasks": asked.get("tasks"),
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


def refuse_unlike(walked: Mapping[str, WalkedTasks], subject: str) -> None:
    """Raises UsageError unless all played the same tasks as the first.

    If a budget ended one of two early, the shorter list must begin the longer one.
    """
    first, *others = walked
    reference = walked[first]
    for name in others:
        other = walked[name]
        lengths = (len(other.tasks), len(reference.tasks))
        compared = max(lengths)
        if reference.cut or other.cut:
            compared = min(lengths)
        if reference.tasks[:compared] != other.tasks[:compared]:
            raise UsageError(
                f"{name}: its {subject} is of another panel ({lengths[0]} tasks) than "
                f"that of {first} ({lengths[1]} tasks); do both with the same --split, "
                "--tasks and --where"
            )


def mismatch(held: int, wanted: int, records: str, where: str) -> str:
    """The part of an error that says how a file differs from its description."""
    if held != wanted:
        return f"holds {held} {records}, not the {wanted} of {where}"
    return f"its {records} are not those of the tasks of {where}"
