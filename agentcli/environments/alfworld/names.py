"""How AI2-THOR ids become PDDL names, and PDDL names the words of the texts.

alfworld writes ids into PDDL with a character map of its own, and its demangler numbers
the things of one type over the sorted lower-case names, the first getting the highest
number. The generator needs the same words for its walkthroughs.
"""

import re

_MANGLE = str.maketrans(
    {
        "-": "_minus_",
        "#": "-",
        "|": "_bar_",
        "+": "_plus_",
        ".": "_dot_",
        ",": "_comma_",
    }
)


def mangle(identifier: str) -> str:
    """An AI2-THOR id as a PDDL name: `Fridge|+00.97|..` ->
    `Fridge_bar__plus_00_dot_97..`.
    """
    return identifier.translate(_MANGLE)


def display_names(mangled: list[str]) -> dict[str, str]:
    """PDDL name -> words shown to the agent (`fridge 1`), for all receptacles and
    objects of one game.
    """
    kinds = {name: _kind(name.lower()) for name in mangled}
    left: dict[str, int] = {}
    for kind in kinds.values():
        left[kind] = left.get(kind, 0) + 1
    shown = {}
    for name in sorted(mangled, key=str.lower):
        kind = kinds[name]
        shown[name] = f"{kind} {left[kind]}"
        left[kind] -= 1
    return shown


def _kind(lowered: str) -> str:
    base = lowered.split("_bar_", 1)[0]
    return base + "basin" if "basin" in lowered else base


_NUMBER = re.compile(r" \d+$")


def type_of(entity: str) -> str:
    """`sinkbasin 2` -> `sinkbasin`."""
    return _NUMBER.sub("", entity)
