"""What a typed command is to the agent: whether the game took it, and whether it only
looked.

Both backends answer by these two functions, so that they agree.
"""

from collections.abc import Collection

NOTHING = "Nothing happens."
"""TextWorld's answer to a command that is not possible."""
LOOKS = frozenset({"look", "inventory"})


def is_accepted(command: str, listed: Collection[str], answer: str) -> bool:
    """Whether the command was among the actions listed before it, and something
    happened.
    """
    return command in listed and answer != NOTHING


def only_looks(command: str) -> bool:
    """Whether an accepted command changes nothing that matters: look, inventory,
    examine (002 B.2).
    """
    return command in LOOKS or command.startswith("examine ")
