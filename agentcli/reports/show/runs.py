"""The runs in a folder, and what one run holds, from their manifests."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec

from agentcli.errors import AgentCliError, DataError
from agentcli.evaluation.record import EvaluationSummary, ResultsByKind
from agentcli.evaluation.training import course
from agentcli.records.files import read_json
from agentcli.records.regular import is_there
from agentcli.records.runs import RunDirectory, loop_folders
from agentcli.records.types import StageRecord
from agentcli.reports.show.trees import TreeOverview

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Success(msgspec.Struct, frozen=True, kw_only=True):
    """A share of trajectories that succeeded, and which trajectories these are."""

    rate: float
    measured_on: str
    """The label of an evaluation, or the stage that sampled them."""


class StageOverview(msgspec.Struct, kw_only=True):
    """One stage of a run."""

    name: str
    finished: str
    """UTC time, ISO 8601."""
    seconds: float | None
    model: str | None
    """The model it began with."""
    method: str | None
    """Exploration method, credit method or objective: what the stage is named by."""
    success: float | None


class RunOverview(msgspec.Struct, kw_only=True):
    """One run directory, in a line."""

    path: str
    stages: list[str] = []
    """In the order in which they ended."""
    unfinished: list[str] = []
    """Stages that were begun and have not ended."""
    model: str | None = None
    """The model that the newest stage which asks a policy began with."""
    success: Success | None = None
    """The newest one that was measured."""
    finished: str | None = None
    """When the newest stage ended."""
    problem: str | None = None
    """Why it cannot be read."""


class IterationOverview(msgspec.Struct, kw_only=True):
    """One iteration of a loop."""

    folder: str
    trees: int
    leaves: int
    success: float
    steps: int
    tokens: int
    trained: bool
    results: ResultsByKind
    evaluated: dict[str, Share] = {}
    """Success of the updated policy, by the label of an evaluation."""


class LoopHeadline(msgspec.Struct, frozen=True, kw_only=True):
    """How far a loop came, in two shares of success.

    One iteration has too few tasks of its own to say that.
    """

    first: float
    last: float
    measured_on: str


class LoopSuccess(msgspec.Struct):
    """The part of a loop's statistics that is shown."""

    success: list[Share] = []


class MeasuredRate(msgspec.Struct):
    """A share of success."""

    rate: Share


class EvaluationSuccess(msgspec.Struct):
    """The part of an evaluation's statistics that is shown."""

    success: MeasuredRate | None = None


class RunHoldings(msgspec.Struct, kw_only=True):
    """Everything that a run holds, in overviews."""

    run: str
    stages: list[StageOverview]
    unfinished: list[str]
    """Stages that were begun and have not ended."""
    iterations: list[IterationOverview]
    evaluations: list[EvaluationSummary]
    outdated: list[str] = []
    """Labels of evaluations whose weights were trained anew since."""
    trees: list[TreeOverview] | None = []
    """None where it holds none."""
    forks_by_depth: list[float] = []
    """Share of these trees' forks after the first step, after the second, and so on."""


def holdings(path: Path) -> RunHoldings:
    """What a run holds, without its trees. Raises DataError for a damaged file."""
    stages = stage_overviews(path)
    return RunHoldings(
        run=str(path),
        stages=stages,
        unfinished=RunDirectory(path).unfinished,
        iterations=iterations(path),
        evaluations=evaluations(path),
        outdated=RunDirectory(path).outdated(),
    )


def runs_below(folder: Path) -> list[RunOverview]:
    """Every run directory in `folder`, the newest last; `latest` is not named twice.

    A damaged one is listed with its fault, so that the others can be seen.
    """
    runs = []
    for path in sorted(folder.iterdir()):
        if path.is_symlink():
            continue
        try:
            if is_run(path):
                runs.append(overview(path))
        except (AgentCliError, OSError) as error:
            runs.append(RunOverview(path=str(path), problem=str(error)))
    # A run that has not ended is the newest.
    return sorted(runs, key=lambda run: run.finished or "9999")


def counterpart(run: Path, trees: Path) -> Path | None:
    """The newest run beside `run` that has such a file of trees, of the same tasks."""
    place = trees.relative_to(run)
    stage = "rollout" if trees.parent == run else f"evaluation/{trees.stem}"
    itself = RunDirectory(run).finished(stage)
    newest = None
    for other in runs_below(run.parent):
        path = Path(other.path)
        # A damaged run is listed without stages.
        if stage not in other.stages or path.samefile(run):
            continue
        record = RunDirectory(path).finished(stage)
        if itself is None or record is None or record.panel != itself.panel:
            continue
        if is_there(path / place):
            newest = path
    return newest


def is_run(path: Path) -> bool:
    """Whether a stage has ended or begun there."""
    return is_there(path / "manifest.json") or (path / "settings").is_dir()


def overview(path: Path) -> RunOverview:
    """One run in a line. Raises DataError for a damaged manifest."""
    stages = stage_overviews(path)
    asking = [stage for stage in stages if asks(stage.name)]
    return RunOverview(
        path=str(path),
        stages=[stage.name for stage in stages],
        unfinished=RunDirectory(path).unfinished,
        model=asking[-1].model if asking else None,
        success=newest_success(path, stages),
        finished=stages[-1].finished if stages else None,
    )


def stage_overviews(path: Path) -> list[StageOverview]:
    """The stages that ended in a run, in the order in which they did.

    Raises DataError for an entry whose time or success is none.
    """
    directory = RunDirectory(path)
    overviews = []
    for name, record in directory.load_manifest().stages.items():
        try:
            finished = datetime.fromisoformat(record.finished).astimezone(UTC)
            success = success_of(name, record)
        except (ValueError, OverflowError) as error:
            raise DataError(
                f"{directory.manifest_path}: stages.{name}: {error}"
            ) from error
        stage = StageOverview(
            name=name,
            finished=finished.isoformat(),
            seconds=record.seconds.get("wall"),
            model=model_of(record) if asks(name) else None,
            method=method_of(name, record),
            success=success,
        )
        overviews.append(stage)
    # All are UTC, so their texts sort as the times do.
    return sorted(overviews, key=lambda stage: stage.finished)


def asks(stage: str) -> bool:
    """Whether a stage has a policy to ask or to train."""
    return stage != "import" and not stage.startswith("credit/")


def model_of(record: StageRecord) -> str | None:
    """The model that a stage began with; the kind of policy where there was none."""
    policy = record.settings.get("policy")
    if not isinstance(policy, dict):
        return None
    model = policy.get("adapter") or policy.get("model") or policy.get("kind")
    return str(model) if model is not None else None


def method_of(name: str, record: StageRecord) -> str | None:
    """The method that distinguishes this stage from others of its name."""
    section, key = {
        "rollout": ("rollout", "method"),
        "run": ("rollout", "method"),
        "train": ("train", "objective"),
    }.get(name, ("", ""))
    values = record.settings.get(section)
    if isinstance(values, dict) and key in values:
        return str(values[key])
    return None


def success_of(name: str, record: StageRecord) -> float | None:
    """The share of success of what a stage sampled; None for one that samples nothing.

    For a loop it is the mean of its last quarter. Raises ValidationError for statistics
    that no stage writes.
    """
    if name == "run":
        shares = msgspec.convert(record.statistics, LoopSuccess).success
        return course(shares)[-1] if shares else None
    if name.startswith("evaluation/"):
        measured = msgspec.convert(record.statistics, EvaluationSuccess).success
        return None if measured is None else measured.rate
    leaves = record.counts.get("leaves")
    if name == "rollout" and leaves:
        return record.counts.get("success", 0) / leaves
    return None


def newest_success(path: Path, stages: Sequence[StageOverview]) -> Success | None:
    """What is known last of how well the policy does."""
    for stage in reversed(stages):
        if stage.success is not None:
            label = stage.name.rpartition("/")[2]
            return Success(rate=stage.success, measured_on=label)
    shares = [one.success for one in iterations(path)]
    if not shares:
        return None
    return Success(rate=course(shares)[-1], measured_on="run")


def headline(iterations: Sequence[IterationOverview]) -> LoopHeadline:
    """The first and the last evaluation, else the means of the outer quarters."""
    evaluated = [one.evaluated for one in iterations if one.evaluated]
    for label in evaluated[-1] if evaluated else ():
        shares = [of_labels[label] for of_labels in evaluated if label in of_labels]
        if len(shares) > 1:
            words = f"evaluation {label}, first and last"
            return LoopHeadline(first=shares[0], last=shares[-1], measured_on=words)
    quarters = course([one.success for one in iterations])
    words = "sampled, means of the first and the last quarter"
    return LoopHeadline(first=quarters[0], last=quarters[-1], measured_on=words)


def iterations(path: Path) -> list[IterationOverview]:
    """The iterations of a loop whose rollout has ended."""
    overviews = []
    for folder in loop_folders(path):
        run = RunDirectory(folder)
        stages = run.load_manifest().stages
        rollout = stages.get("rollout")
        if rollout is None or rollout.ledger is None:
            continue
        leaves = rollout.counts.get("leaves", 0)
        iteration = IterationOverview(
            folder=str(folder),
            trees=rollout.counts.get("trees", 0),
            leaves=leaves,
            success=rollout.counts.get("success", 0) / max(1, leaves),
            steps=rollout.ledger.steps,
            tokens=rollout.ledger.generated_tokens,
            trained="train" in stages,
            results=_results(run, rollout),
            evaluated={one.label: one.success.rate for one in evaluations(folder)},
        )
        overviews.append(iteration)
    return overviews


def _results(run: RunDirectory, rollout: StageRecord) -> ResultsByKind:
    """The results of a rollout. Raises DataError for what no stage writes."""
    try:
        return msgspec.convert(rollout.statistics.get("results"), ResultsByKind)
    except msgspec.ValidationError as error:
        raise DataError(
            f"{run.manifest_path}: stages.rollout.statistics.results: {error}"
        ) from error


def evaluations(path: Path) -> list[EvaluationSummary]:
    """The summaries of all evaluations of a run, by label."""
    files = sorted((path / "evaluation").glob("*.json"))
    return [read_json(file, EvaluationSummary) for file in files]
