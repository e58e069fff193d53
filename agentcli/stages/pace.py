"""The cost of a tree in an earlier stage with the same settings, for estimates."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from agentcli.errors import AgentCliError
from agentcli.records.runs import RunDirectory, loop_folders
from agentcli.records.settings import Settings
from agentcli.records.types import StageRecord
from agentcli.stages.plan import plain, without

OF_ONE_RUN = {
    "environment": ("tasks", "shard", "where", "panel"),
    "policy": ("model", "adapter"),
    "rollout": ("iteration", "budget", "tasks_per_step"),
    "train": ("credit", "reference", "learning_rate"),
}
"""Settings that may differ in the earlier stage."""
SAMPLED_BY = ("environment", "policy", "prompt", "rollout")
"""Settings that affect the time of a tree."""
LOOK_BACK = 4
"""Number of a loop's iterations that are averaged."""


class Pace(NamedTuple):
    """The cost of a tree in an earlier stage."""

    seconds: float
    bytes: float
    run: str


def pace_of(settings: Settings, out: Path, stage: str, *sections: str) -> Pace | None:
    """The cost of a tree in the newest `stage` with the same settings near `out`."""
    wanted = _compared(plain(settings), sections)
    for run in _newest_runs(out.parent):
        same = []
        for folder in (run, *loop_folders(run)):
            record = _record(folder, stage)
            if record and _compared(record.settings, sections) == wanted:
                same.append((folder, record))
        if same:
            return _pace(run, same[-LOOK_BACK:])
    return None


def _newest_runs(folder: Path) -> Iterator[Path]:
    manifests = [path for path in folder.glob("*/manifest.json") if path.is_file()]
    loops = folder.glob("*/iteration_000/manifest.json")
    runs = {path.parent for path in manifests}
    runs |= {path.parent.parent for path in loops}
    runs = {run for run in runs if not run.is_symlink()}
    yield from sorted(runs, key=lambda run: run.stat().st_mtime, reverse=True)


def _record(folder: Path, stage: str) -> StageRecord | None:
    try:
        return RunDirectory(folder).finished(stage)
    except (AgentCliError, OSError):
        return None


def _compared(settings: dict[str, Any], sections: Sequence[str]) -> dict[str, Any]:
    """The sections without the settings in OF_ONE_RUN."""
    chosen = {section: settings.get(section) for section in sections}
    return without(chosen, OF_ONE_RUN)


def _pace(run: Path, stages: Sequence[tuple[Path, StageRecord]]) -> Pace | None:
    """The mean over some stages of one run."""
    seconds = []
    sizes = []
    for folder, record in stages:
        trees = record.counts.get("trees") or record.statistics.get("trees")
        file = RunDirectory(folder).trees
        if not isinstance(trees, int) or trees == 0 or "wall" not in record.seconds:
            continue
        seconds.append(record.seconds["wall"] / trees)
        if file.exists():
            sizes.append(file.stat().st_size / trees)
    if not seconds:
        return None
    return Pace(fmean(seconds), fmean(sizes) if sizes else 0.0, str(run))
