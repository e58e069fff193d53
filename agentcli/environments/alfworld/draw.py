"""Which games there are: task ids drawn from seed and settings, without making a game.

An id is the official relative path,
`<split>/<type>-<Object>-None-<Receptacle>-<scene>/trial_g<number>`; with the settings'
digest it determines the game. The shares of the task types are those of the official
splits, so that the default counts come out exactly; narrowed kinds or rooms share the
same totals among what remains.
"""

import random
from functools import lru_cache
from typing import NamedTuple

from agentcli.environments.alfworld.layouts import (
    UNSEEN_SCENES,
    Room,
    constants,
    fits,
    room,
    training_scenes,
)
from agentcli.environments.alfworld.options import (
    KINDS,
    OFFICIAL_GAMES,
    ROOMS,
    AlfworldOptions,
)
from agentcli.errors import UsageError
from agentcli.records.files import derive_seed

TOOLS = {
    "pick_clean_then_place_in_recep": ("SinkBasin", "Cleanable"),
    "pick_heat_then_place_in_recep": ("Microwave", "Heatable"),
    "pick_cool_then_place_in_recep": ("Fridge", "Coolable"),
}
"""Task type -> where the object is treated, and the class of objects that can be."""
SINGLE = {
    "CoffeeMachine",
    "HandTowelHolder",
    "StoveBurner",
    "Toaster",
    "ToiletPaperHanger",
    "TowelHolder",
}
"""Receptacles with room for one thing: no goal for two."""
LAMP_STANDS = ("CoffeeTable", "Desk", "DiningTable", "Dresser", "Shelf", "SideTable")
"""Where a desk lamp can stand."""


class Name(NamedTuple):
    """What the folder name of a game says."""

    kind: str
    object: str
    movable: str
    receptacle: str
    """The desk lamp's type for look_at_obj_in_light."""
    scene: int


def parse_name(folder: str) -> Name:
    """`pick_heat_then_place_in_recep-Apple-None-Fridge-12` in its parts. Raises
    ValueError for any other name.
    """
    kind, thing, movable, receptacle, scene = folder.split("-")
    return Name(kind, thing, movable, receptacle, int(scene))


@lru_cache(maxsize=4096)
def choices(scene: int, kind: str) -> dict[str, tuple[str, ...]]:
    """Object type -> goal receptacle types that make a game of this kind in this room;
    empty where none does.

    The object must have somewhere to lie that is not the goal, and the goal must not be
    the tool itself.
    """
    here = room(scene)
    if not _suits(here, kind):
        return {}
    found: dict[str, tuple[str, ...]] = {}
    for thing in here.objects:
        homes = [name for name in here.types if thing in fits()[name]]
        if kind == "look_at_obj_in_light":
            found[thing] = ("DeskLamp",) if homes else ()
            continue
        if (
            kind in TOOLS
            and thing not in constants().VAL_ACTION_OBJECTS[TOOLS[kind][1]]
        ):
            continue
        barred = (
            {TOOLS[kind][0]}
            if kind in TOOLS
            else SINGLE
            if kind == "pick_two_obj_and_place"
            else set()
        )
        found[thing] = tuple(
            name for name in homes if name not in barred and len(homes) > 1
        )
    return {thing: goals for thing, goals in found.items() if goals}


def _suits(here: Room, kind: str) -> bool:
    names = {
        "kitchen": "Kitchen",
        "living": "LivingRoom",
        "bedroom": "Bedroom",
        "bathroom": "Bathroom",
    }
    if names[here.kind] not in constants().GOALS_VALID[kind]:
        return False
    if kind == "look_at_obj_in_light":
        return here.lamp and any(name in here.types for name in LAMP_STANDS)
    return kind not in TOOLS or TOOLS[kind][0] in here.types


def scenes(options: AlfworldOptions, split: str) -> list[int]:
    """Floor plans that a split draws from, ascending."""
    allowed = options.rooms or ROOMS
    if split == "valid_unseen":
        return [scene for scene in UNSEEN_SCENES if room(scene).kind in allowed]
    kept = []
    for kind in allowed:
        mine = [scene for scene in training_scenes() if room(scene).kind == kind]
        mine.sort(key=lambda scene: (sum(room(scene).types.values()), scene))
        kept += mine[: options.scenes_per_room]
    return sorted(kept)


def shares(total: int, weights: list[int]) -> list[int]:
    """`total` split in proportion to `weights` by largest remainders (ties: the earlier
    one).
    """
    whole = sum(weights)
    counts = [total * weight // whole for weight in weights]
    order = sorted(
        range(len(weights)),
        key=lambda index: (-(total * weights[index] % whole), index),
    )
    for index in order[: total - sum(counts)]:
        counts[index] += 1
    return counts


def draw(options: AlfworldOptions, split: str) -> list[str]:
    """All task ids of train, valid_seen or valid_unseen, in the order they were drawn.

    Raises UsageError when a kind that was asked for cannot be played in any training
    room that was asked for.
    """
    places = scenes(options, split)
    playable = {
        kind: [scene for scene in places if choices(scene, kind)]
        for kind in options.kinds or KINDS
    }
    for kind, where in playable.items():
        if options.kinds and not where and split != "valid_unseen":
            rooms = ", ".join(options.rooms or ROOMS)
            raise UsageError(
                f"environment.options.kinds: {kind} cannot be played in these rooms "
                f"({rooms}); leave one out"
            )
    kinds = [kind for kind in KINDS if playable.get(kind)]
    total = getattr(options.games, split)
    if not kinds or not total:
        return []
    rng = random.Random(derive_seed("alfworld", "draw", options.seed, split))
    counts = shares(total, [OFFICIAL_GAMES[split][KINDS.index(kind)] for kind in kinds])
    deck = [
        kind for kind, count in zip(kinds, counts, strict=True) for _ in range(count)
    ]
    rng.shuffle(deck)
    ids = []
    for index, kind in enumerate(deck):
        scene = rng.choice(playable[kind])
        options_here = choices(scene, kind)
        thing = rng.choice(list(options_here))
        goal = rng.choice(options_here[thing])
        ids.append(f"{split}/{kind}-{thing}-None-{goal}-{scene}/trial_g{index:05d}")
    return ids
