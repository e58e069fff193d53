"""How the simulator reads actions, and how it refuses them."""

import re

FORMS = {
    "open OBJ": "open a container",
    "close OBJ": "close a container",
    "activate OBJ": "activate a device",
    "deactivate OBJ": "deactivate a device",
    "connect OBJ to OBJ": "connect electrical components",
    "disconnect OBJ": "disconnect electrical components",
    "use OBJ [on OBJ]": "use a device or item",
    "look around": "describe the current room",
    "look at OBJ": "describe an object in detail",
    "look in OBJ": "describe the contents of a container",
    "read OBJ": "read a note or book",
    "move OBJ to OBJ": "move an object into a container",
    "pick up OBJ": "move an object into the inventory",
    "put down OBJ": "drop an object of the inventory",
    "pour OBJ into OBJ": "pour a liquid into a container",
    "dunk OBJ into OBJ": "dunk a container into a liquid",
    "mix OBJ": "mix the contents of a container chemically",
    "go to LOC": "move to a neighbouring location",
    "eat OBJ": "eat food",
    "flush OBJ": "flush a toilet",
    "focus on OBJ": "show that this is the object of the task",
    "wait": "do nothing for 10 ticks of time",
    "wait1": "do nothing for 1 tick of time",
    "task": "repeat the task",
    "inventory": "list what you carry",
}
"""The 25 templates of the papers' prompt (DPEPO Figure 17) and what each does."""

UNKNOWN = "No known action matches that input."
"""The simulator's answer to what it cannot read; no time passes."""
AMBIGUOUS = "Ambiguous request"
"""Begins its answer to what could mean several things; a number answers it."""
OUTSIDE = ("help", "objects", "task")
"""Commands that the simulator answers outside its world."""
LOOKS = ("look", "examine", "inventory", "read", *OUTSIDE)
"""First words of actions that only look."""
LONGEST = 500
"""Characters of an action that is shown to the simulator; none it knows is longer."""
REFUSAL = re.compile(
    r"^(?:"
    r"No known action|Unknown action|I'm not sure|It'?s not clear|<ERROR>|ERROR"
    r"|You can't|That can't|That (?:object|is) .*already|Something can't"
    r"|You must disconnect|That object does not appear|The door doesn't appear"
    r"|The .* (?:is not|isn't|are not|aren't|can't|does not contain)\b"
    r"|The .* is (?:already (?:open|closed|activated|deactivated)|empty, so)"
    r")",
    re.DOTALL,
)
"""The simulator's answers to actions that did nothing (src/.../actions/*.scala)."""


def readable(action: str) -> bool:
    """Whether the simulator should see an action at all."""
    return len(action) <= LONGEST and action.isprintable()


def accepted(text: str) -> bool:
    """Whether the simulator took the action that it answered so."""
    return REFUSAL.match(text) is None


def first_word(action: str) -> str:
    """The first word of an action, lower case."""
    words = action.lower().split(maxsplit=1)
    return words[0] if words else ""
