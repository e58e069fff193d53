"""What an ALFWorld task asks for, read from its sentence or from its folder name.

The sentences are those of alfworld's goal library. Free sentences by people (which the
official games do not use) have no goal here; the folder name then says it.
"""

import re
from functools import lru_cache

import msgspec

from agentcli.environments.alfworld.draw import parse_name
from agentcli.environments.alfworld.options import KINDS
from agentcli.errors import DataError

TREATMENTS = {
    "pick_clean_then_place_in_recep": ("clean", "sinkbasin"),
    "pick_heat_then_place_in_recep": ("heat", "microwave"),
    "pick_cool_then_place_in_recep": ("cool", "fridge"),
}
"""Task type -> (verb, receptacle type) of its tool step."""

_PATTERNS = tuple(
    (KINDS[number - 1], re.compile(pattern))
    for number, pattern in (
        (
            3,
            r"put a clean (?P<thing>\w+) in (?P<goal>\w+)"
            r"|clean some (?P<thing2>\w+) and put it in (?P<goal2>\w+)",
        ),
        (
            4,
            r"put a hot (?P<thing>\w+) in (?P<goal>\w+)"
            r"|heat some (?P<thing2>\w+) and put it in (?P<goal2>\w+)",
        ),
        (
            5,
            r"put a cool (?P<thing>\w+) in (?P<goal>\w+)"
            r"|cool some (?P<thing2>\w+) and put it in (?P<goal2>\w+)",
        ),
        (
            6,
            r"put two (?P<thing>\w+) in (?P<goal>\w+)"
            r"|find two (?P<thing2>\w+) and put them in (?P<goal2>\w+)",
        ),
        (
            2,
            r"look at (?P<thing>\w+) under the (?P<goal>\w+)"
            r"|examine the (?P<thing2>\w+) with the (?P<goal2>\w+)",
        ),
        (
            1,
            r"put a (?P<thing>\w+) in (?P<goal>\w+)|put some (?P<thing2>\w+) on (?P<goal2>\w+)",
        ),
    )
)


class Goal(msgspec.Struct, frozen=True):
    """One task, in the words of the texts (lower case, without numbers)."""

    kind: str
    object: str
    place: str
    """The goal receptacle's type; the lamp's for look_at_obj_in_light."""

    @property
    def treatment(self) -> tuple[str, str] | None:
        """(verb, receptacle type) of the tool step, where the task has one."""
        return TREATMENTS.get(self.kind)

    @property
    def count(self) -> int:
        """Objects wanted."""
        return 2 if self.kind == "pick_two_obj_and_place" else 1


@lru_cache(maxsize=8192)
def parse_instruction(text: str) -> Goal:
    """The goal a task sentence names. Raises DataError for a sentence that is none of
    the goal library's.
    """
    lowered = text.lower()
    for kind, pattern in _PATTERNS:
        match = pattern.search(lowered)
        if match:
            found = match.groupdict()
            return Goal(
                kind, found["thing"] or found["thing2"], found["goal"] or found["goal2"]
            )
    raise DataError(
        f"task sentence {text!r}: not one of alfworld's; play it with a model, it has "
        "no expert"
    )


def goal_of_task(task_id: str) -> Goal:
    """The goal that a task id's folder name states."""
    name = parse_name(task_id.split("/")[-2])
    return Goal(name.kind, name.object.lower(), name.receptacle.lower())
