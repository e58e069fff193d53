"""The list of games: task ids drawn from seed and settings, without making a game.

An id is the official relative path,
`<split>/<type>-<Object>-None-<Receptacle>-<scene>/trial_g<number>`. Together with the
settings' digest it determines the game. The shares of the task types are those of the
official splits, so the default counts come out exactly. Narrowed kinds or rooms share
the same totals among what remains.
"""

import random
from functools import lru_cache
from typing import NamedTuple

from agentcli.errors import UsageError
from agentcli.records.files import derive_seed
from agentcli.worlds.alfworld.layouts import (
    UNSEEN_SCENES,
    Room,
    constants,
    fits,
    room,
    training_scenes,
)
from agentcli.worlds.alfworld.options import (
    KINDS,
    OFFICIAL_GAMES,
    ROOMS,
    AlfworldOptions,
)


class Tool(NamedTuple):
    """How a task has its object treated before it is placed."""

    verb: str
    receptacle: str
    """Type of the receptacle that treats."""
    ability: str
    """alfworld's class of the objects that can be treated."""
    property: str
    """Predicate of an object that was treated."""


TOOLS = {
    "pick_clean_then_place_in_recep": Tool(
        "clean", "SinkBasin", "Cleanable", "isclean"
    ),
    "pick_heat_then_place_in_recep": Tool("heat", "Microwave", "Heatable", "ishot"),
    "pick_cool_then_place_in_recep": Tool("cool", "Fridge", "Coolable", "iscool"),
}
"""Task type -> its tool step."""
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
ROOM_NAMES = {
    "kitchen": "Kitchen",
    "living": "LivingRoom",
    "bedroom": "Bedroom",
    "bathroom": "Bathroom",
}
"""Room kind -> alfworld's name for it."""


class Name(NamedTuple):
    """The parts of a game's folder name."""

    kind: str
    object: str
    movable: str
    receptacle: str
    """The desk lamp's type for look_at_obj_in_light."""
    scene: int


def parse_name(folder: str) -> Name:
    """Takes `pick_heat_then_place_in_recep-Apple-None-Fridge-12` apart.

    Raises ValueError for any other name.
    """
    kind, thing, movable, receptacle, scene = folder.split("-")
    return Name(kind, thing, movable, receptacle, int(scene))


def name_of(task_id: str) -> Name:
    """The parts of a task's folder name."""
    return parse_name(task_id.split("/")[-2])


@lru_cache(maxsize=4096)
def choices(scene: int, kind: str) -> dict[str, tuple[str, ...]]:
    """Object type -> goal receptacle types that make a game of this kind in this room.

    Empty where there is none. The object must have somewhere to lie that is not the
    goal, and the goal must not be the tool itself.
    """
    here = room(scene)
    tool = TOOLS.get(kind)
    if not _suits(here, kind, tool):
        return {}
    things = here.objects
    no_goals: set[str] = set()
    if kind == "pick_two_obj_and_place":
        no_goals = SINGLE
    elif tool:
        able = constants().VAL_ACTION_OBJECTS[tool.ability]
        things = tuple(thing for thing in things if thing in able)
        no_goals = {tool.receptacle}
    goals_of: dict[str, tuple[str, ...]] = {}
    for thing in things:
        homes = [name for name in here.types if thing in fits()[name]]
        goals = [name for name in homes if name not in no_goals]
        if kind == "look_at_obj_in_light" and homes:
            goals_of[thing] = ("DeskLamp",)
        elif len(homes) > 1 and goals:
            goals_of[thing] = tuple(goals)
    return goals_of


def _suits(
    here: Room,
    kind: str,
    tool: Tool | None,
) -> bool:
    """Whether a room has the receptacles that a kind of task needs."""
    if ROOM_NAMES[here.kind] not in constants().GOALS_VALID[kind]:
        return False
    if kind == "look_at_obj_in_light":
        return here.lamp and not here.types.keys().isdisjoint(LAMP_STANDS)
    return tool is None or tool.receptacle in here.types


def scenes(options: AlfworldOptions, split: str) -> list[int]:
    """Floor plans that a split draws from, ascending."""
    allowed = options.rooms or ROOMS
    if split == "valid_unseen":
        return [scene for scene in UNSEEN_SCENES if room(scene).kind in allowed]
    kept = []
    for kind in allowed:
        plans = [scene for scene in training_scenes() if room(scene).kind == kind]
        # The sort is stable: of equally full plans the lower number comes first.
        plans.sort(key=lambda scene: sum(room(scene).types.values()))
        kept += plans[: options.scenes_per_room]
    return sorted(kept)


def shares(total: int, weights: list[int]) -> list[int]:
    """Splits `total` in proportion to `weights` by largest remainders.

    Of equal remainders the earlier one is rounded up.
    """
    whole = sum(weights)
    counts = [total * weight // whole for weight in weights]
    remainders = [total * weight % whole for weight in weights]
    order = sorted(range(len(weights)), key=lambda index: -remainders[index])
    for index in order[: total - sum(counts)]:
        counts[index] += 1
    return counts


def draw(options: AlfworldOptions, split: str) -> list[str]:
    """All task ids of train, valid_seen or valid_unseen, in the order they were drawn.

    Raises UsageError when a kind that was asked for cannot be played in any training
    room that was asked for.
    """
    scenes_of = _playable(options, split)
    kinds = [kind for kind in KINDS if kind in scenes_of]
    total = getattr(options.games, split)
    if not kinds or not total:
        return []
    rng = random.Random(derive_seed("alfworld", "draw", options.seed, split))
    official = dict(zip(KINDS, OFFICIAL_GAMES[split], strict=True))
    deck = []
    counts = shares(total, [official[kind] for kind in kinds])
    for kind, count in zip(kinds, counts, strict=True):
        deck += [kind] * count
    rng.shuffle(deck)
    ids = []
    for index, kind in enumerate(deck):
        scene = rng.choice(scenes_of[kind])
        goals_of = choices(scene, kind)
        thing = rng.choice(list(goals_of))
        goal = rng.choice(goals_of[thing])
        folder = f"{kind}-{thing}-None-{goal}-{scene}"
        ids.append(f"{split}/{folder}/trial_g{index:05d}")
    return ids


def _playable(options: AlfworldOptions, split: str) -> dict[str, list[int]]:
    """Task type -> the floor plans of a split where it can be played, if any."""
    places = scenes(options, split)
    scenes_of: dict[str, list[int]] = {}
    for kind in options.kinds or KINDS:
        playable = [scene for scene in places if choices(scene, kind)]
        if playable:
            scenes_of[kind] = playable
        # The unseen split has one room of each kind: some tasks may have none.
        elif options.kinds and split != "valid_unseen":
            rooms = ", ".join(options.rooms or ROOMS)
            raise UsageError(
                f"environment.options.kinds: {kind} cannot be played in these rooms "
                f"({rooms}); leave one out"
            )
    return scenes_of
