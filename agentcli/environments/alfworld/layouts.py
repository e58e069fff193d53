"""The 120 real rooms that the alfworld wheel ships, read without importing alfworld.

A room is its receptacles with their viewing points and the types of object that occur
in it. `import alfworld` would create a folder in the user's home, so its data files are
found by path and its constants (plain Python data) are loaded as a module of their own.
Receptacles that a room has but the wheel's table of viewing points lacks (stove
burners, coffee machines, towel holders, ...) get an id and a free viewing point here,
the same ones every time.
"""

import importlib.util
import random
from functools import lru_cache
from pathlib import Path
from types import ModuleType

import msgspec

from agentcli.environments.alfworld.options import ROOMS, RoomKind
from agentcli.errors import MissingError
from agentcli.records.files import derive_seed

UNSEEN_SCENES = (10, 219, 308, 424)
"""The rooms of the official valid_unseen split."""
STEP = 0.25
"""Metres between two points of the floor grid (AI2-THOR)."""
INSTANCES = {"StoveBurner": 4}
"""How many of a receptacle a room gets where the wheel names none; else one."""

Point = tuple[int, int, int, int]
"""x and z in grid steps, quarter turns, degrees of horizon: where one stands to see
something.
"""


class Receptacle(msgspec.Struct, frozen=True):
    """One receptacle of a room, under its AI2-THOR id."""

    id: str
    type: str
    point: Point


class Room(msgspec.Struct, frozen=True):
    """What one floor plan offers."""

    scene: int
    kind: RoomKind
    types: dict[str, int]
    """Receptacle types and how many of each."""
    objects: tuple[str, ...]
    """Object types that occur and can lie in one of the receptacles, sorted; no lamps.
    """
    lamp: bool
    """Whether a desk lamp occurs."""


def wheel() -> Path:
    """Folder of the installed alfworld package. Raises MissingError when there is none."""
    spec = importlib.util.find_spec("alfworld")
    if spec is None or not spec.submodule_search_locations:
        raise MissingError(
            "alfworld is not installed: pip install 'agentcli[alfworld]'"
        )
    return Path(spec.submodule_search_locations[0])


@lru_cache
def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        f"agentcli_alfworld_{name}", wheel() / "gen" / f"{name}.py"
    )
    if spec is None or spec.loader is None:
        raise MissingError(
            f"alfworld has no gen/{name}.py: pip install 'alfworld>=0.4.2,<0.5'"
        )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def constants() -> ModuleType:
    """alfworld.gen.constants: what fits where, what can be heated, which task suits
    which room.
    """
    return _module("constants")


def goals() -> dict[str, dict[str, object]]:
    """alfworld.gen.goal_library: goal PDDL and task sentences by task type."""
    library: dict[str, dict[str, object]] = _module("goal_library").gdict
    return library


@lru_cache
def fits() -> dict[str, frozenset[str]]:
    """Receptacle type -> object types that it can hold, for the receptacles that do not
    move.
    """
    table = constants().VAL_RECEPTACLE_OBJECTS
    movable = constants().MOVABLE_RECEPTACLES_SET
    return {
        name: frozenset(held)
        for name, held in sorted(table.items())
        if name not in movable
    }


def room_kind(scene: int) -> RoomKind:
    """Kitchens are floor plans 1-30, living rooms 201-230, bedrooms 301-330, bathrooms
    401-430.
    """
    return ROOMS[max(0, scene // 100 - 1)]


def training_scenes() -> list[int]:
    """Floor plans of train and valid_seen: alfworld's training scenes without the
    unseen rooms, ascending.
    """
    return sorted(set(constants().TRAIN_SCENE_NUMBERS) - set(UNSEEN_SCENES))


def receptacle_type(identifier: str) -> str:
    """Type of an AI2-THOR id: `Sink|..|SinkBasin` is a SinkBasin, `Drawer|..` a Drawer."""
    parts = identifier.split("|")
    return parts[-1] if parts[-1].endswith("Basin") else parts[0]


def _table(scene: int, what: str) -> bytes:
    return (wheel() / "gen" / "layouts" / f"FloorPlan{scene}-{what}.json").read_bytes()


@lru_cache(maxsize=256)
def room(scene: int) -> Room:
    """What floor plan `scene` offers, viewing points left out (see `receptacles`)."""
    found = set(msgspec.json.decode(_table(scene, "objects")))
    points = msgspec.json.decode(_table(scene, "openable"))
    types: dict[str, int] = {}
    for identifier in points:
        kind = receptacle_type(identifier)
        types[kind] = types.get(kind, 0) + 1
    for kind in sorted((found & fits().keys()) - types.keys()):
        types[kind] = INSTANCES.get(kind, 1)
    placeable = set().union(*(fits().get(kind, frozenset()) for kind in types))
    return Room(
        scene=scene,
        kind=room_kind(scene),
        types=dict(sorted(types.items())),
        objects=tuple(sorted(found & placeable - fits().keys())),
        lamp="DeskLamp" in found,
    )


@lru_cache(maxsize=256)
def receptacles(scene: int) -> tuple[Receptacle, ...]:
    """All receptacles of a floor plan with their viewing points, sorted by id."""
    found = []
    for identifier, (x, z, rotation, horizon) in msgspec.json.decode(
        _table(scene, "openable")
    ).items():
        point = (round(x / STEP), round(z / STEP), round(rotation / 90), round(horizon))
        found.append(Receptacle(identifier, receptacle_type(identifier), point))
    known = {receptacle.type for receptacle in found}
    rng = random.Random(derive_seed("alfworld", "synthetic receptacles", scene))
    free = _free(scene, {receptacle.point[:2] for receptacle in found})
    rng.shuffle(free)
    for kind, count in room(scene).types.items():
        if kind not in known:
            found += [_synthetic(kind, free.pop(), rng) for _ in range(count)]
    return tuple(sorted(found, key=lambda receptacle: receptacle.id))


def free_points(scene: int) -> list[tuple[int, int]]:
    """Points of the floor from which no receptacle is viewed, as grid steps (x, z),
    sorted.
    """
    return _free(scene, {receptacle.point[:2] for receptacle in receptacles(scene)})


def _free(scene: int, taken: set[tuple[int, int]]) -> list[tuple[int, int]]:
    import numpy as np

    floor = np.load(
        wheel() / "gen" / "layouts" / f"FloorPlan{scene}-layout.npy", allow_pickle=False
    )
    return sorted(
        {(round(x / STEP), round(z / STEP)) for x, z in floor.tolist()} - taken
    )


def _synthetic(kind: str, spot: tuple[int, int], rng: random.Random) -> Receptacle:
    x, z = spot
    place = f"{x * STEP:+06.2f}|{rng.uniform(0.1, 1.5):+06.2f}|{z * STEP:+06.2f}"
    parent = kind.removesuffix("Basin")
    identifier = f"{kind}|{place}" if parent == kind else f"{parent}|{place}|{kind}"
    return Receptacle(identifier, kind, (x, z, rng.randrange(4), 30))
