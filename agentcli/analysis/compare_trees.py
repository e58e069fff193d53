"""compare, of trees: what rollouts, or demonstrations, of the same tasks cost and
brought.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import join

from agentcli.analysis.alike import WalkedTasks, mismatch, panel_hash, refuse_unlike
from agentcli.errors import DataError
from agentcli.evaluation.growth import Growth, TreeShape, totals
from agentcli.records.files import read_records
from agentcli.records.runs import RunDirectory
from agentcli.records.types import StageRecord

GROWN_BY = ("rollout", "demos")
"""Stages that grow trees."""


def holds_trees(place: Path) -> bool:
    """Whether a stage that grows trees ended there."""
    return place.is_dir() and _grown(place) is not None


def trees_of(places: Sequence[Path]) -> dict[str, Growth]:
    """The sums over the trees of each place that `holds_trees`.

    Raises DataError for trees that are not those of the manifest, UsageError for unlike
    panels.
    """
    growths: dict[str, Growth] = {}
    walked: dict[str, WalkedTasks] = {}
    for place in places:
        grown = _grown(place)
        assert grown is not None
        stage, record = grown
        name = str(place)
        trees = RunDirectory(place).existing_trees()
        tasks: list[str] = []
        growth = totals(_noting_tasks(trees, tasks))
        count = record.counts.get("trees", len(tasks))
        if len(tasks) != count or (
            stage == "rollout" and panel_hash(tasks) != record.panel
        ):
            fault = mismatch(len(tasks), count, "trees", "manifest.json")
            raise DataError(
                f"{trees}: {fault}; go on with: "
                f"{join(['agentcli', stage, '--resume', '-o', name])}"
            )
        growth.seconds = record.seconds
        growths[name] = growth
        walked[name] = WalkedTasks(tasks, cut="budget" in record.statistics)
    refuse_unlike(walked, "rollout")
    return growths


def _noting_tasks(trees: Path, tasks: list[str]) -> Iterator[TreeShape]:
    """The trees, one at a time. `tasks` get their ids."""
    for tree in read_records(trees, TreeShape):
        tasks.append(tree.task.id)
        yield tree


def _grown(place: Path) -> tuple[str, StageRecord] | None:
    """The stage that wrote the trees there, and its entry."""
    stages = RunDirectory(place).load_manifest().stages
    return next(((name, stages[name]) for name in GROWN_BY if name in stages), None)
