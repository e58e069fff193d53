"""What --dry-run counts and checks, without writing anything."""

from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.errors import DataError, MissingError

if TYPE_CHECKING:
    from agentcli.records.settings import Settings


def panel_size(settings: "Settings") -> int:
    """Tasks that the settings select."""
    from agentcli.stages.environment import panel

    return len(panel(settings).tasks)


def count_trees(path: Path) -> int:
    """Trees in a file, each decoded and checked. Raises DataError for a damaged one, and where there is none."""
    from agentcli.records.files import read_records
    from agentcli.records.trees import validate_tree
    from agentcli.records.types import Tree

    count = 0
    for count, tree in enumerate(read_records(path, Tree), 1):
        validate_tree(tree, f"{path}:{count}")
    if count == 0:
        raise DataError(
            f"{path}: holds no trees; write some with: agentcli rollout (or demos) --resume -o {path.parent}"
        )
    return count


def iteration_size(settings: "Settings", iteration: int) -> int:
    """Tasks of one iteration of `run`. Raises UsageError for a panel that is smaller."""
    from agentcli.stages.environment import panel
    from agentcli.stages.panels import iteration_tasks

    tasks = panel(settings).tasks
    return len(iteration_tasks(tasks, settings.rollout.tasks_per_step, iteration, settings.seed))


def check_model(model: str | None) -> None:
    """Raises MissingError for a name that can only be a path (a hub id has at most one slash) where there is nothing, DataError for
    a directory whose weights are not whole."""
    from agentcli.policies.load import check_weights

    if model is None:
        return
    if (model.startswith((".", "/", "~")) or model.count("/") > 1) and not Path(model).is_dir():
        raise MissingError(
            f"policy.model: no directory {model}; make one with agentcli sft, or name another with --model"
        )
    check_weights(model)


def check_tracking(settings: "Settings", out: Path | None, overwrite: bool) -> None:
    """Raises MissingError and UsageError for a tracker that could not start in the run `out`."""
    if settings.tracking.to and out is not None:
        from agentcli.records.runs import RunDirectory
        from agentcli.training.loop.trackers import check_trackers

        check_trackers(settings.tracking, out if overwrite else RunDirectory(out).tracking)


def check_policy(settings: "Settings", kind: str) -> None:
    """Raises UsageError for an unknown kind of policy."""
    import msgspec

    from agentcli.environments.registry import make_world
    from agentcli.policies.registry import make_policy, policy_names

    if kind not in policy_names():
        policy = msgspec.structs.replace(settings.policy, kind=kind)
        settings = msgspec.structs.replace(settings, policy=policy)
        make_policy(settings, make_world(settings.environment), None, None)
