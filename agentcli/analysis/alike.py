"""Checks that files have the same tasks, and as many records as they should have."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from agentcli.errors import UsageError


class WalkedTasks(NamedTuple):
    """The tasks of a panel that were played."""

    tasks: Sequence[str]
    """Ids, in their order."""
    cut: bool
    """Whether a budget may have ended the panel early."""


def refuse_unlike(walked: Mapping[str, WalkedTasks], subject: str) -> None:
    """Raises UsageError unless all played the same tasks as the first.

    If a budget ended one of two early, the shorter list must begin the longer one.
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
