"""Groups loops that differ only in their seed: a plot has one line for each group."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentcli.errors import DataError, UsageError, word_of
from agentcli.evaluation.record import EvaluationSummary, Rate
from agentcli.records.runs import RunDirectory, loop_folders
from agentcli.reports.plots.figures import Course
from agentcli.reports.show.runs import IterationOverview, evaluations, iterations

APART = ("seed", "tracking", "threads", "demos", "sft", "evaluation")
"""Settings in which loops of one group may differ."""


def loops_by_group(runs: Sequence[Path]) -> dict[str, list[Course]]:
    """The courses of loops, by the name of their group.

    Loops are one group when their settings are equal but for the seed and the model
    that they began with. Raises DataError for a run that is not a loop, UsageError for
    one that is named twice.
    """
    if len({run.resolve() for run in runs}) < len(runs):
        raise UsageError(f"a run is named twice among {', '.join(map(str, runs))}")
    groups: dict[str, list[tuple[Path, Course]]] = {}
    for run in runs:
        rows = iterations(run)
        if not rows:
            raise DataError(
                f"{run}: holds no iterations of a loop; make one with: agentcli run "
                f"--preset PRESET -o {run}"
            )
        groups.setdefault(_settings_of(run), []).append((run, _course(rows)))
    return _named(groups)


def _course(rows: Sequence[IterationOverview]) -> Course:
    """Steps and success of each iteration, and of each kind of task in it."""
    rates = [_rates_by_kind(row) for row in rows]
    kinds = sorted({kind for of_iteration in rates for kind in of_iteration})
    return Course(
        steps=[row.steps for row in rows],
        values=[100 * row.success for row in rows],
        kinds={kind: [row.get(kind, math.nan) for row in rates] for kind in kinds},
    )


def _rates_by_kind(row: IterationOverview) -> dict[str, float]:
    kinds = row.results.kinds
    return {kind: 100 * results.success.rate for kind, results in kinds.items()}


def by_kind(
    loops: Mapping[str, Sequence[Course]],
) -> dict[str, dict[str, list[Course]]]:
    """The courses of each kind of task: kind -> group -> those loops that met it."""
    kinds: dict[str, dict[str, list[Course]]] = {}
    for name, courses in loops.items():
        for course in courses:
            for kind, values in course.kinds.items():
                of_kind = Course(steps=course.steps, values=values)
                kinds.setdefault(kind, {}).setdefault(name, []).append(of_kind)
    return dict(sorted(kinds.items()))


def unequal_lengths(loops: Mapping[str, Sequence[Course]]) -> Iterator[str]:
    """A line for each group that is drawn only as far as its shortest loop goes."""
    for name, courses in loops.items():
        lengths = [len(course.steps) for course in courses]
        if min(lengths) < max(lengths):
            yield (
                f"{name}: drawn up to iteration {min(lengths)}, where the shortest of "
                f"its loops ends; the longest has {max(lengths)}"
            )


def _settings_of(run: Path) -> str:
    """The settings of a loop's first iteration, without what may differ in a group."""
    folder, *_ = loop_folders(run)
    rollout = RunDirectory(folder).load_manifest().stages["rollout"]
    settings = {
        name: value for name, value in rollout.settings.items() if name not in APART
    }
    # Loops of one group begin with models of their own seeds.
    policy = settings.get("policy")
    if isinstance(policy, dict):
        settings["policy"] = {**policy, "model": None}
    return json.dumps(settings, sort_keys=True)


def _named(groups: dict[str, list[tuple[Path, Course]]]) -> dict[str, list[Course]]:
    """The groups by method and credit, where that tells them apart, else by a run."""
    names = [_methods(json.loads(settings)) for settings in groups]
    if len(set(names)) < len(names):
        names = [str(members[0][0]) for members in groups.values()]
    courses = [[course for _, course in members] for members in groups.values()]
    return dict(zip(names, courses, strict=True))


def _methods(settings: dict[str, Any]) -> str:
    """The exploration and the credit method: "spark + grpo"."""
    names = []
    for section in ("rollout", "credit"):
        values = settings.get(section)
        method = values.get("method") if isinstance(values, dict) else None
        names.append(str(method))
    return " + ".join(names)


def rates_by_label(
    runs: Sequence[Path], labels: Sequence[str]
) -> dict[str, dict[str, Rate]]:
    """Success by label and run; without `labels` of all that there are.

    Raises DataError for a run without evaluations, UsageError for an unknown label.
    """
    rates: dict[str, dict[str, Rate]] = {}
    for run in runs:
        for summary in _evaluations_of(run):
            rates.setdefault(summary.label, {})[str(run)] = summary.success
    for label in labels:
        for run in runs:
            if str(run) not in rates.get(label, {}):
                raise UsageError(
                    f"--label {label}: {run} has no such evaluation; there are "
                    f"{', '.join(sorted(rates))}"
                )
    return {label: rates[label] for label in labels or sorted(rates)}


def chances_by_run(runs: Sequence[Path]) -> dict[str, dict[str, Rate]]:
    """pass@k by run. Raises DataError for a run without one."""
    chances = {}
    for run in runs:
        known = [one for one in _evaluations_of(run) if one.pass_at_k]
        if not known:
            raise DataError(
                f"{run}: has no pass@k; write it with: agentcli pass-at-k {word_of(run)}"
            )
        for summary in known:
            chances[f"{run} {summary.label}"] = summary.pass_at_k or {}
    return chances


def _evaluations_of(run: Path) -> list[EvaluationSummary]:
    summaries = evaluations(run)
    if not summaries:
        raise DataError(
            f"{run}: has no evaluation; write one with: agentcli eval {word_of(run)}"
        )
    return summaries
