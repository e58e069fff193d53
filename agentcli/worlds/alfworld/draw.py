"""The rooms that the alfworld wheel ships, and the games that are drawn in them.

A room is its receptacles with their viewing points and the types of object that occur
in it. `import alfworld` would create a folder in the user's home, so its data files are
found by path, and its constants (plain Python data) are run as files of their own. The
wheel's table of viewing points lacks some receptacles of a room: stove burners, coffee
machines, towel holders. They get an id and a free viewing point here, the same ones
every time.

A task id is the official relative path,
`<split>/<type>-<Object>-None-<Receptacle>-<scene>/trial_g<number>`. Together with the
settings' digest it determines the game. The shares of the task types are those of the
official splits, so the default counts come out exactly. Narrowed kinds or rooms share
the same totals among what remains.
"""

import importlib.util
import random
import runpy
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec

from agentcli.errors import MissingError, UsageError
from agentcli.records.files import derive_seed
from agentcli.worlds.alfworld.options import (
    KINDS,
    OFFICIAL_GAMES,
    ROOMS,
    AlfworldOptions,
    RoomKind,
)

UNSEEN_SCENES = (10, 219, 308, 424)
"""The rooms of the official valid_unseen split."""
STEP = 0.25
"""Metres between two points of the floor grid (AI2-THOR)."""
INSTANCES = {"StoveBurner": 4}
"""How many of a receptacle a room gets where the wheel names none; else one."""

Spot = tuple[int, int]
"""x and z in grid steps."""
Point = tuple[int, int, int, int]
"""A spot, quarter turns, degrees of horizon: where one stands to see something."""


class View(NamedTuple):
    """A point as the wheel has it, in metres and degrees."""

    x: float
    z: float
    rotation: float
    horizon: float

    def point(self) -> Point:
        """The point in steps and turns."""
        turns = round(self.rotation / 90)
        return *_spot(self.x, self.z), turns, round(self.horizon)


def _spot(x: float, z: float) -> Spot:
    return round(x / STEP), round(z / STEP)


_VIEWS = msgspec.json.Decoder(dict[str, View])


class Receptacle(msgspec.Struct, frozen=True):
    """One receptacle of a room, under its AI2-THOR id."""

    id: str
    type: str
    point: Point


class Room(msgspec.Struct, frozen=True):
    """The receptacles and objects of one floor plan."""

    scene: int
    kind: RoomKind
    types: dict[str, int]
    """Receptacle types and how many of each."""
    objects: tuple[str, ...]
    """Object types that occur and fit into a receptacle here, sorted; no lamps."""
    lamp: bool
    """Whether a desk lamp occurs."""


def wheel() -> Path:
    """Folder of the installed alfworld package. Raises MissingError without one."""
    spec = importlib.util.find_spec("alfworld")
    if spec is None or not spec.submodule_search_locations:
        raise MissingError(
            "alfworld is not installed: pip install 'agentcli[alfworld]'"
        )
    return Path(spec.submodule_search_locations[0])


@lru_cache
def constants() -> Any:
    """alfworld.gen.constants: what fits where, can be heated, suits which room."""
    return SimpleNamespace(**runpy.run_path(str(wheel() / "gen" / "constants.py")))


@lru_cache
def goals() -> dict[str, dict[str, Any]]:
    """alfworld.gen.goal_library: goal PDDL and task sentences by task type."""
    library = runpy.run_path(str(wheel() / "gen" / "goal_library.py"))
    table: dict[str, dict[str, Any]] = library["gdict"]
    return table


@lru_cache
def fits() -> dict[str, frozenset[str]]:
    """Receptacle type -> object types that it can hold; only what does not move."""
    movable = constants().MOVABLE_RECEPTACLES_SET
    table = {}
    for name, held in sorted(constants().VAL_RECEPTACLE_OBJECTS.items()):
        if name not in movable:
            table[name] = frozenset(held)
    return table


def room_kind(scene: int) -> RoomKind:
    """The kind of a floor plan.

    Kitchens are 1-30, living rooms 201-230, bedrooms 301-330, bathrooms 401-430.
    """
    return ROOMS[max(0, scene // 100 - 1)]


def training_scenes() -> list[int]:
    """Floor plans of train and valid_seen, ascending."""
    return sorted(set(constants().TRAIN_SCENE_NUMBERS) - set(UNSEEN_SCENES))


def receptacle_type(identifier: str) -> str:
    """The type of an AI2-THOR id: `Drawer|..` a Drawer, `Sink|..|SinkBasin` a basin."""
    parts = identifier.split("|")
    return parts[-1] if parts[-1].endswith("Basin") else parts[0]


def _file(scene: int, suffix: str) -> Path:
    return wheel() / "gen" / "layouts" / f"FloorPlan{scene}-{suffix}"


def _views(scene: int) -> dict[str, View]:
    """Receptacle id -> where one stands to see it."""
    return _VIEWS.decode(_file(scene, "openable.json").read_bytes())


@lru_cache(maxsize=256)
def room(scene: int) -> Room:
    """A floor plan, viewing points left out (see `receptacles`)."""
    occurring = set(msgspec.json.decode(_file(scene, "objects.json").read_bytes()))
    types = Counter(map(receptacle_type, _views(scene)))
    # They occur in the room, yet its table says not where one stands to see them.
    for kind in (occurring & fits().keys()) - types.keys():
        types[kind] = INSTANCES.get(kind, 1)
    objects: set[str] = set()
    for kind in types:
        objects |= fits().get(kind, frozenset())
    return Room(
        scene=scene,
        kind=room_kind(scene),
        types=dict(sorted(types.items())),
        objects=tuple(sorted((occurring & objects) - fits().keys())),
        lamp="DeskLamp" in occurring,
    )


@lru_cache(maxsize=256)
def receptacles(scene: int) -> tuple[Receptacle, ...]:
    """All receptacles of a floor plan with their viewing points, sorted by id."""
    places = []
    for identifier, view in _views(scene).items():
        kind = receptacle_type(identifier)
        places.append(Receptacle(identifier, kind, view.point()))
    known = {place.type for place in places}
    # From the floor plan alone: every game in this room has them in the same place.
    rng = random.Random(derive_seed("alfworld", "synthetic receptacles", scene))
    spots = _free(scene, places)
    rng.shuffle(spots)
    for kind, count in room(scene).types.items():
        if kind not in known:
            places += [_synthetic(kind, spots.pop(), rng) for _ in range(count)]
    return tuple(sorted(places, key=lambda place: place.id))


def free_points(scene: int) -> list[Spot]:
    """Spots of the floor from which no receptacle is viewed, sorted."""
    return _free(scene, receptacles(scene))


def _free(scene: int, places: Iterable[Receptacle]) -> list[Spot]:
    import numpy as np

    floor = np.load(_file(scene, "layout.npy"), allow_pickle=False)
    spots = {_spot(x, z) for x, z in floor.tolist()}
    return sorted(spots.difference(place.point[:2] for place in places))


def _synthetic(kind: str, spot: Spot, rng: random.Random) -> Receptacle:
    x, z = spot
    height = rng.uniform(0.1, 1.5)
    metres = (x * STEP, height, z * STEP)
    place = "|".join(f"{number:+06.2f}" for number in metres)
    parent = kind.removesuffix("Basin")
    identifier = f"{parent}|{place}"
    # The basin of a sink is a part of it.
    if parent != kind:
        identifier += f"|{kind}"
    return Receptacle(identifier, kind, (x, z, rng.randrange(4), 30))


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
        # With one home, the object would lie in its goal from the start.
        elif len(homes) > 1 and goals:
            goals_of[thing] = tuple(goals)
    return goals_of


def _suits(here: Room, kind: str, tool: Tool | None) -> bool:
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
    # Kinds mixed by index, so that the first N tasks of a panel hold all of them.
    rng.shuffle(deck)
    ids = []
    for index, kind in enumerate(deck):
        scene = rng.choice(scenes_of[kind])
        goals_of = choices(scene, kind)
        # Objects equally often, then their goals: else a mug with ten homes would be
        # frequent.
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
