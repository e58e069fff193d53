"""How AI2-THOR ids become PDDL names, and PDDL names the words of the texts.

alfworld has a character map of its own. Its demangler numbers the things of one type
over the sorted lower-case names, and the first gets the highest number.
"""

import re
from collections import Counter
from collections.abc import Collection

_CODES = {
    "-": "_minus_",
    "+": "_plus_",
    ".": "_dot_",
    ",": "_comma_",
}
_MANGLE = str.maketrans({**_CODES, "#": "-", "|": "_bar_"})
_NUMBER = re.compile(r" \d+$")


def mangle(identifier: str) -> str:
    """Writes an AI2-THOR id as a PDDL name: `Cup|+01.5` -> `Cup_bar__plus_01_dot_5`."""
    return identifier.translate(_MANGLE)


def unmangle(name: str) -> str:
    """Puts the characters of a number back into a PDDL name; bars stay words."""
    for character, code in _CODES.items():
        name = name.replace(code, character)
    return name


def display_names(mangled: list[str]) -> dict[str, str]:
    """PDDL name -> the words the agent sees (`cup 1`), for the things of one game."""
    remaining = Counter(map(_kind, mangled))
    words = {}
    # Counting down, as alfworld's demangler does.
    for name in sorted(mangled, key=str.lower):
        kind = _kind(name)
        words[name] = f"{kind} {remaining[kind]}"
        remaining[kind] -= 1
    return words


def _kind(mangled: str) -> str:
    lowered = mangled.lower()
    base = lowered.split("_bar_", 1)[0]
    # alfworld calls Sink_bar_.._bar_SinkBasin a sinkbasin, apart from the sink.
    return base + "basin" if "basin" in lowered else base


def type_of(entity: str) -> str:
    """The type of a numbered thing: `sinkbasin 2` -> `sinkbasin`."""
    return _NUMBER.sub("", entity)


NOTHING = "Nothing happens."
"""TextWorld's answer to a command that is not possible."""
LOOKS = ("look", "inventory")


def judge(command: str, listed: Collection[str], answer: str) -> tuple[bool, bool]:
    """Whether the game took the command, and whether it then only looked (RewardFlow C.1).

    `listed` are the actions that were shown before the command.
    """
    # Some listed commands do nothing, and what is not listed may still be parsed.
    accepted = command in listed and answer != NOTHING
    looks = command in LOOKS or command.startswith("examine ")
    return accepted, accepted and looks
