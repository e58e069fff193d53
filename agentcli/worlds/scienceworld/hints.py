"""Some of the actions that are possible now: those about what the agent sees.

All actions that the simulator would take are hundreds, and listing them costs more than
a step. These are enough to walk, to look at things, to carry them and to name one.
"""

import re
from collections.abc import Sequence

ROOMS = (
    "art studio",
    "bathroom",
    "bedroom",
    "foundry",
    "greenhouse",
    "hallway",
    "kitchen",
    "living room",
    "outside",
    "workshop",
)
LOOK_AT = "look at "
GO_TO = "go to "
_DOOR = re.compile(r"A door to the ([a-z ]+) \(that is (open|closed)\)")
_CARRIED = re.compile(r"^\tan? (?:substance called )?(.+?)(?: \(|,|$)", re.MULTILINE)
_PLACES = ("agent", "air", "door", "inventory", *ROOMS)


def hints(room: str, inventory: str, things: Sequence[str]) -> tuple[str, ...]:
    """Actions in a fixed order: ways out, each thing in sight, each thing carried.

    `room` and `inventory` are the simulator's texts, `things` its names for what is in
    sight.
    """
    listed = ["look around", "inventory"]
    for name, state in _DOOR.findall(room):
        listed.append(f"{GO_TO}{name}" if state == "open" else f"open door to {name}")
    named = [thing for thing in things if not _is_place(thing)]
    boxes = [thing for thing in named if thing.endswith(" box")]
    for thing in named:
        listed += [f"{LOOK_AT}{thing}", f"focus on {thing}"]
        if thing not in boxes:
            listed.append(f"pick up {thing}")
    for thing in _CARRIED.findall(inventory):
        listed += [f"{LOOK_AT}{thing}", f"focus on {thing}", f"put down {thing}"]
        listed += [f"move {thing} to {box}" for box in boxes]
    return tuple(listed)


def things_of(hinted: Sequence[str]) -> list[str]:
    """The things that hints are about."""
    looks = [action for action in hinted if action.startswith(LOOK_AT)]
    return [action.removeprefix(LOOK_AT) for action in looks]


def _is_place(thing: str) -> bool:
    return thing in _PLACES or thing.startswith("door ") or thing.endswith(" door")
