"""The goal of an ALFWorld task, read from its sentence or from its folder name.

The sentences are those of alfworld's goal library. Free sentences by people (which the
official games do not use) have no goal here; the folder name then says it.
"""

import re
from functools import lru_cache

import msgspec

from agentcli.errors import DataError
from agentcli.worlds.alfworld.draw import (
    TOOLS,
    Tool,
    name_of,
)

_SENTENCES = {
    "pick_clean_then_place_in_recep": (
        r"put a clean (\w+) in (\w+)|clean some (\w+) and put it in (\w+)"
    ),
    "pick_heat_then_place_in_recep": (
        r"put a hot (\w+) in (\w+)|heat some (\w+) and put it in (\w+)"
    ),
    "pick_cool_then_place_in_recep": (
        r"put a cool (\w+) in (\w+)|cool some (\w+) and put it in (\w+)"
    ),
    "pick_two_obj_and_place": (
        r"put two (\w+) in (\w+)|find two (\w+) and put them in (\w+)"
    ),
    "look_at_obj_in_light": (
        r"look at (\w+) under the (\w+)|examine the (\w+) with the (\w+)"
    ),
    "pick_and_place_simple": r"put a (\w+) in (\w+)|put some (\w+) on (\w+)",
}
"""Task type -> its two sentences, each with the object and the place."""


class Goal(msgspec.Struct, frozen=True):
    """One task, in the words of the texts (lower case, without numbers)."""

    kind: str
    object: str
    place: str
    """The goal receptacle's type; the lamp's for look_at_obj_in_light."""

    @property
    def tool(self) -> Tool | None:
        """The tool step, where the task has one."""
        return TOOLS.get(self.kind)

    @property
    def count(self) -> int:
        """Objects wanted."""
        return 2 if self.kind == "pick_two_obj_and_place" else 1


@lru_cache(maxsize=8192)
def parse_instruction(text: str) -> Goal:
    """The goal a task sentence names.

    Raises DataError for a sentence that is not one of the goal library's.
    """
    lowered = text.lower()
    for kind, sentences in _SENTENCES.items():
        match = re.search(sentences, lowered)
        if match:
            thing, place = filter(None, match.groups())
            return Goal(kind, thing, place)
    raise DataError(
        f"task sentence {text!r}: not one of alfworld's; play it with a model, it has "
        "no expert"
    )


def goal_of_task(task_id: str) -> Goal:
    """The goal that a task id's folder name states."""
    name = name_of(task_id)
    return Goal(name.kind, name.object.lower(), name.receptacle.lower())
