"""The 120 real rooms that the alfworld wheel ships, read without importing alfworld.

A room is its receptacles with their viewing points and the types of object that occur
in it. `import alfworld` would create a folder in the user's home, so its data files are
found by path, and its constants (plain Python data) are run as files of their own.

The wheel's table of viewing points lacks some receptacles of a room: stove burners,
coffee machines, towel holders. They get an id and a free viewing point here, the same
ones every time.
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

from agentcli.errors import MissingError
from agentcli.records.files import derive_seed
from agentcli.worlds.alfworld.options import ROOMS, RoomKind

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
def goals() -> dict[str, dict[str, object]]:
    """alfworld.gen.goal_library: goal PDDL and task sentences by task type."""
    library = runpy.run_path(str(wheel() / "gen" / "goal_library.py"))
    table: dict[str, dict[str, object]] = library["gdict"]
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


def _synthetic(
    kind: str,
    spot: Spot,
    rng: random.Random,
) -> Receptacle:
    x, z = spot
    height = rng.uniform(0.1, 1.5)
    place = f"{x * STEP:+06.2f}|{height:+06.2f}|{z * STEP:+06.2f}"
    parent = kind.removesuffix("Basin")
    identifier = f"{parent}|{place}"
    # The basin of a sink is a part of it.
    if parent != kind:
        identifier += f"|{kind}"
    return Receptacle(identifier, kind, (x, z, rng.randrange(4), 30))
