"""compare for trees: the cost and the success of rollouts or demonstrations."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from agentcli.analysis.alike import WalkedTasks, mismatch, refuse_unlike
from agentcli.errors import DataError
from agentcli.evaluation.growth import Growth, TreeShape, totals
from agentcli.records.files import read_records
from agentcli.records.runs import RunDirectory
from agentcli.stages.panels import panel_hash


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
