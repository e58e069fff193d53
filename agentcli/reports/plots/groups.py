"""Groups loops that differ only in their seed: a plot has one line for each group."""

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from agentcli.errors import DataError, UsageError, word_of
from agentcli.evaluation.record import EvaluationSummary
from agentcli.records.runs import RunDirectory, loop_folders
from agentcli.reports.plots.figures import Course, Loops, Rates
from agentcli.reports.show.runs import IterationOverview, evaluations, iterations

APART = ("seed", "tracking", "threads", "cluster", "demos", "sft", "evaluation")
"""Settings in which loops of one group may differ."""
MODELS = (
    *("policy.model", "policy.adapter", "rollout.critic", "rollout.prm"),
    *("train.reference", "train.options.critic"),
)
"""Loops of one group begin with models of their own seeds."""


def loops_by_group(runs: Sequence[Path]) -> Loops:
    """The courses of loops, by the name of their group.

    Loops are one group when their settings are equal but for the seed and the model
    that they began with. Raises DataError for a run that is not a loop, UsageError for
    one that is named twice.
    """
    if len({run.resolve() for run in runs}) < len(runs):
        raise UsageError(f"a run is named twice among {', '.join(map(str, runs))}")
    groups: Loops = defaultdict(list)
    first_runs: dict[str, str] = {}
    for run in runs:
        rows = iterations(run)
        if not rows:
            raise DataError(
                f"{run}: holds no iterations of a loop; make one with: agentcli run "
                f"--preset PRESET -o {run}"
            )
        settings = _settings_of(run)
        first_runs.setdefault(settings, str(run))
        groups[settings].append(_course(rows))
    names = list(map(_methods, groups))
    # The methods may not tell the groups apart.
    if len(set(names)) < len(names):
        names = list(first_runs.values())
    return dict(zip(names, groups.values(), strict=True))


def _course(rows: Sequence[IterationOverview]) -> Course:
    """Steps and success of each iteration, and of each kind of task in it."""
    results = [row.results.kinds for row in rows]
    kinds: dict[str, list[float]] = {}
    for kind in sorted(set[str]().union(*results)):
        rates = kinds[kind] = [math.nan] * len(rows)
        for place, by_kind in enumerate(results):
            if kind in by_kind:
                rates[place] = 100 * by_kind[kind].success.rate
    return Course(
        steps=[row.steps for row in rows],
        values=[100 * row.success for row in rows],
        kinds=kinds,
    )


def by_kind(loops: Loops) -> dict[str, Loops]:
    """The courses of each kind of task: kind -> group -> those loops that met it."""
    kinds: dict[str, Loops] = {}
    for name, courses in loops.items():
        for course in courses:
            for kind, values in course.kinds.items():
                of_kind = Course(steps=course.steps, values=values)
                groups = kinds.setdefault(kind, {})
                groups.setdefault(name, []).append(of_kind)
    return dict(sorted(kinds.items()))


def unequal_lengths(loops: Loops) -> Iterator[str]:
    """A line for each group that is drawn only as far as its shortest loop goes."""
    for name, courses in loops.items():
        lengths = [len(course.steps) for course in courses]
        shortest = min(lengths)
        longest = max(lengths)
        if shortest < longest:
            yield (
                f"{name}: drawn up to iteration {shortest}, where the shortest of "
                f"its loops ends; the longest has {longest}"
            )


def _settings_of(run: Path) -> str:
    """The settings of a loop's first iteration, without what may differ in a group."""
    folder, *_ = loop_folders(run)
    rollout = RunDirectory(folder).load_manifest().stages["rollout"]
    settings = {
        name: value for name, value in rollout.settings.items() if name not in APART
    }
    for path in MODELS:
        *sections, name = path.split(".")
        values = settings
        for section in sections:
            values = values.get(section) or {}
        if name in values:
            values[name] = None
    return json.dumps(settings, sort_keys=True)


def _methods(text: str) -> str:
    """The exploration and the credit method of settings: "spark + grpo"."""
    settings = json.loads(text)
    names = []
    for section in ("rollout", "credit"):
        values = settings.get(section)
        method = None
        if isinstance(values, dict):
            method = values.get("method")
        names.append(str(method))
    return " + ".join(names)


def rates_by_label(runs: Sequence[Path], labels: Sequence[str]) -> Rates:
    """Success by label and run; without `labels` of all that there are.

    Raises DataError for a run without evaluations, UsageError for an unknown label.
    """
    rates: Rates = {}
    for run in runs:
        for summary in _evaluations_of(run):
            of_label = rates.setdefault(summary.label, {})
            of_label[str(run)] = summary.success
    for label in labels:
        for run in runs:
            if str(run) not in rates.get(label, {}):
                raise UsageError(
                    f"--label {label}: {run} has no such evaluation; there are "
                    f"{', '.join(sorted(rates))}"
                )
    return {label: rates[label] for label in labels or sorted(rates)}


def chances_by_run(runs: Sequence[Path]) -> Rates:
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
