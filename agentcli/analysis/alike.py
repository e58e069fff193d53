"""Whether files are of the same tasks, and hold as many records as is said of them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agentcli.errors import UsageError
from agentcli.records.types import Task
from agentcli.stages.panels import make_panel


class WalkedTasks(NamedTuple):
    """The tasks of a panel that were walked."""

    tasks: Sequence[str]
    """Ids, in their order."""
    cut: bool
    """Whether a budget may have ended the panel early."""


def refuse_unlike(walked: Mapping[str, WalkedTasks], what: str) -> None:
    """Raises UsageError unless all walked the tasks of the first.

    Where a budget cut one of two, the shorter must begin the longer.
    """
    first, *others = walked
    reference = walked[first]
    for name in others:
        other = walked[name]
        length = None
        if reference.cut or other.cut:
            length = min(len(reference.tasks), len(other.tasks))
        if reference.tasks[:length] != other.tasks[:length]:
            raise UsageError(
                f"{name}: its {what} is of another panel ({len(other.tasks)} tasks) "
                f"than that of {first} ({len(reference.tasks)} tasks); do both with "
                "the same --split, --tasks and --where"
            )


def panel_hash(tasks: Sequence[str]) -> str:
    """The hash of a panel of these ids."""
    return make_panel(
        "", "", [Task(id=name, world="", split="", kind="") for name in tasks]
    ).sha256


def mismatch(held: int, wanted: int, what: str, where: str) -> str:
    """The part of an error that says how a file differs from its description."""
    if held != wanted:
        return f"holds {held} {what}, not the {wanted} that {where} tells of"
    return f"its {what} are not those of the tasks that {where} tells of"
