"""What a page shows about whole runs: loops, trainings, evaluations and stages."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from agentcli.analysis.compare import read_whole
from agentcli.analysis.page.texts import visible
from agentcli.evaluation.record import EvaluationSummary, Rate, ResultsByKind
from agentcli.records.files import read_records
from agentcli.records.regular import is_there
from agentcli.records.runs import RunDirectory
from agentcli.reports.show.runs import (
    IterationOverview,
    LoopHeadline,
    StageOverview,
    headline,
    holdings,
)

FIGURES = {
    "loss": "Loss",
    "entropy": "Policy entropy, nats",
    "clip_fraction": "Clipped, share of tokens",
    "grad_norm": "Gradient norm",
    "gap_mean": "Sampler-trainer gap, nats",
    "kl": "KL to the reference, nats",
    "token_accuracy": "Token accuracy",
    "accuracy": "Pairs in order, share",
    "value_loss": "Value loss",
    "explained_variance": "Explained variance",
}
"""The figures of metrics.jsonl that are drawn, with their titles."""
MOST_POINTS = 200
"""Points of a curve; a longer training is shown by means of as many parts."""
COLLAPSED = 1 / 3
"""A warning is shown if entropy falls below this share of its first value."""


class PageIteration(msgspec.Struct, kw_only=True):
    """One iteration of a loop."""

    source: str
    success: Rate
    results: ResultsByKind
    tokens: int
    """Generated so far."""
    steps: int
    """Environment steps so far."""
    seconds: float
    """Of sampling and training, so far."""
    evaluated: dict[str, float]


class Curve(msgspec.Struct, kw_only=True):
    """One figure over a training."""

    name: str
    title: str
    places: list[int]
    """Iterations from 0, or updates from 1."""
    values: list[float]


class PageRun(msgspec.Struct, kw_only=True):
    """One run."""

    name: str
    path: str
    """As a command names it."""
    stages: list[StageOverview]
    unfinished: list[str]
    iterations: list[PageIteration]
    headline: LoopHeadline | None
    """Of its iterations, where there are any."""
    curves: list[Curve]
    """Over the iterations of a loop, or the updates of a training."""
    evaluations: list[EvaluationSummary]
    warnings: list[str]


def page_run(place: Path, name: str) -> PageRun:
    """The facts of a run, without its trees.

    Raises DataError for a damaged file, and for an evaluation that lacks episodes.
    """
    held = holdings(place)
    for evaluation in held.evaluations:
        read_whole(RunDirectory(place).evaluation(evaluation.label))
    for stage in held.stages:
        stage.name = visible(stage.name)
        stage.method = None if stage.method is None else visible(stage.method)
        stage.model = None if stage.model is None else shown_path(stage.model)
    for evaluation in held.evaluations:
        # A page may be given away, and this is a path of the machine.
        evaluation.model = None
    curves = _curves_of_loop(held.iterations) or _curves_of_training(place)
    warnings = _warnings(curves)
    for label in map(visible, held.outdated):
        warnings.append(f"{label} is of weights that were trained anew since")
    return PageRun(
        name=name,
        path=shown_path(str(place)),
        stages=held.stages,
        unfinished=[visible(name) for name in held.unfinished],
        iterations=_iterations(held.iterations, name),
        headline=headline(held.iterations) if held.iterations else None,
        curves=curves,
        evaluations=held.evaluations,
        warnings=warnings,
    )


def shown_path(path: str) -> str:
    """A path without the folders that are private to this machine."""
    whole = Path(path)
    if not whole.is_absolute():
        return visible(path)
    if whole.is_relative_to(Path.cwd()):
        return visible(str(whole.relative_to(Path.cwd())))
    # Three names hold runs/NAME/checkpoint.
    return visible("/".join(whole.parts[-3:]))


def _iterations(
    overviews: Sequence[IterationOverview], name: str
) -> list[PageIteration]:
    rows: list[PageIteration] = []
    tokens = steps = 0
    seconds = 0.0
    for one in overviews:
        tokens += one.tokens
        steps += one.steps
        seconds += _seconds(Path(one.folder))
        row = PageIteration(
            source=f"{name}/{Path(one.folder).name}",
            success=one.results.success,
            results=one.results,
            tokens=tokens,
            steps=steps,
            seconds=seconds,
            evaluated=one.evaluated,
        )
        rows.append(row)
    return rows


def _seconds(folder: Path) -> float:
    stages = RunDirectory(folder).load_manifest().stages.values()
    return sum(stage.seconds.get("wall", 0.0) for stage in stages)


def _figures(folder: Path) -> list[dict[str, Any]]:
    file = RunDirectory(folder).metrics
    if not is_there(file):
        return []
    lines = list(read_records(file, dict[str, Any]))
    # A loop's own metrics have a line for each iteration instead.
    return [line for line in lines if "update" in line]


def _curves_of_loop(overviews: Sequence[IterationOverview]) -> list[Curve]:
    """The means over the updates of every iteration that was trained on."""
    groups = {}
    for place, one in enumerate(overviews):
        lines = _figures(Path(one.folder))
        if lines:
            groups[place] = lines
    return _curves(groups)


def _curves_of_training(place: Path) -> list[Curve]:
    lines = _figures(place)
    # Rounded up, or there were more points; range() refuses a step of 0.
    part = -(-len(lines) // MOST_POINTS) or 1
    groups = {}
    for start in range(0, len(lines), part):
        group = lines[start : start + part]
        groups[int(group[-1]["update"])] = group
    return _curves(groups)


def _curves(groups: Mapping[int, Sequence[dict[str, Any]]]) -> list[Curve]:
    """A curve for each figure that every line has, a point for each group of lines."""
    curves = []
    lines = [line for group in groups.values() for line in group]
    for name, title in FIGURES.items():
        if not lines or any(not isinstance(line.get(name), float) for line in lines):
            continue
        values = [fmean(line[name] for line in group) for group in groups.values()]
        if any(values):
            curve = Curve(name=name, title=title, places=list(groups), values=values)
            curves.append(curve)
    return curves


def _warnings(curves: Sequence[Curve]) -> list[str]:
    for curve in curves:
        first, last = curve.values[0], curve.values[-1]
        if curve.name == "entropy" and last < first * COLLAPSED:
            return [
                f"the policy's entropy fell from {first:.3g} to {last:.3g} nats: it "
                "may be collapsing"
            ]
    return []
