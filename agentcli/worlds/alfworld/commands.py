"""The verdict on a typed command, the same for both backends."""

from collections.abc import Collection

NOTHING = "Nothing happens."
"""TextWorld's answer to a command that is not possible."""
LOOKS = ("look", "inventory")


def judge(
    command: str,
    listed: Collection[str],
    answer: str,
) -> tuple[bool, bool]:
    """Whether the game took the command, and whether it then only looked (RewardFlow C.1).

    `listed` are the actions that were shown before the command.
    """
    accepted = command in listed and answer != NOTHING
    looks = command in LOOKS or command.startswith("examine ")
    return accepted, accepted and looks
