"""What --dry-run counts and checks, without writing anything."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentcli.records.settings import Settings


def panel_size(settings: "Settings") -> int:
    """Tasks that the settings select."""
    from agentcli.stages.environment import panel

    return len(panel(settings).tasks)


def count_trees(path: Path) -> int:
    """Trees in a file, each decoded and checked. Raises DataError for a damaged one."""
    from agentcli.records.files import read_records
    from agentcli.records.trees import validate_tree
    from agentcli.records.types import Tree

    count = 0
    for count, tree in enumerate(read_records(path, Tree), 1):
        validate_tree(tree, f"{path}:{count}")
    return count


def check_method(settings: "Settings") -> None:
    """Raises UsageError for an unknown exploration method."""
    from agentcli.exploration.registry import make

    make(settings.rollout.method)


def check_credit(settings: "Settings") -> None:
    """Raises UsageError for an unknown credit method or a switch it does not have."""
    from agentcli.credit.registry import make

    make(settings.credit)
