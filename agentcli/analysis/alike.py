"""Whether files are of the same tasks, and hold as many records as is said of them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agentcli.errors import UsageError


class WalkedTasks(NamedTuple):
    """The tasks of a panel that were walked."""

    tasks: Sequence[str]
    """Ids, in their order."""
    cut: bool
    """Whether a budget may have ended the panel early."""


def refuse_unlike(walked: Mapping[str, WalkedTasks], subject: str) -> None:
    """Raises UsageError unless all walked the tasks of the first.

    Where a budget cut one of two, the shorter must begin the longer.
    """
    first, *others = walked
    reference = walked[first]
    for name in others:
        other = walked[name]
        lengths = (len(other.tasks), len(reference.tasks))
        compared = max(lengths)
        if reference.cut or other.cut:
            compared = min(lengths)
        if reference.tasks[:compared] != other.tasks[:compared]:
            raise UsageError(
                f"{name}: its {subject} is of another panel ({lengths[0]} tasks) than "
                f"that of {first} ({lengths[1]} tasks); do both with the same --split, "
                "--tasks and --where"
            )


def mismatch(held: int, wanted: int, records: str, where: str) -> str:
    """The part of an error that says how a file differs from its description."""
    if held != wanted:
        return f"holds {held} {records}, not the {wanted} of {where}"
    return f"its {records} are not those of the tasks of {where}"
