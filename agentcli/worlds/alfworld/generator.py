"""Makes real ALFWorld games: what lies where, and the files the engine plays.

The rooms are real (draw.py); only the positions of objects are drawn. A game is the
same bytes wherever it is made: everything random comes from the settings' digest and
the task id. A game is written as one folder, renamed into place when complete, so
several processes may want the same one at once.

A traj_data.json lies beside every game, for alfworld's own loader and expert. The
official ones also hold the pictures, poses and human sentences of ALFRED. Here those
fields are there but empty, and the annotation repeats the task sentence.
"""

import json
import os
import random
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from agentcli.environments.cache import CACHE, cache_folder, keeping
from agentcli.records.files import derive_seed
from agentcli.records.scratch import publish
from agentcli.worlds.alfworld.dataset import game_file
from agentcli.worlds.alfworld.draw import (
    LAMP_STANDS,
    TOOLS,
    Name,
    Point,
    Receptacle,
    constants,
    fits,
    free_points,
    goals,
    name_of,
    receptacles,
    room,
    wheel,
)
from agentcli.worlds.alfworld.names import display_names, mangle
from agentcli.worlds.alfworld.options import AlfworldOptions
from agentcli.worlds.alfworld.planner import goal_of_task, plan
from agentcli.worlds.alfworld.statekey import Fact


def traj_data(
    task_id: str,
    name: Name,
    sentence: str,
    walkthrough: list[str],
) -> dict[str, Any]:
    """One game's record in the official field names."""
    look = name.kind == "look_at_obj_in_light"
    return {
        "task_id": task_id.rsplit("/", 1)[-1],
        "task_type": name.kind,
        "pddl_params": {
            "mrecep_target": "",
            "object_sliced": False,
            "object_target": name.object,
            "parent_target": "" if look else name.receptacle,
            "toggle_target": name.receptacle if look else "",
        },
        "scene": {
            "floor_plan": f"FloorPlan{name.scene}",
            "scene_num": name.scene,
            "object_poses": [],
            "object_toggles": [],
        },
        "plan": {"high_pddl": [], "low_actions": []},
        "images": [],
        "turk_annotations": {
            "anns": [
                {
                    "assignment_id": "generated",
                    "task_desc": sentence,
                    "high_descs": walkthrough,
                    "votes": [],
                }
            ]
        },
    }


class Thing(msgspec.Struct, frozen=True):
    """One object and where it lies."""

    id: str
    type: str
    where: Receptacle


class Scene(msgspec.Struct, frozen=True):
    """Everything drawn for one game."""

    name: Name
    start: Point
    receptacles: tuple[Receptacle, ...]
    things: tuple[Thing, ...]
    sentence: str


def arrange(task_id: str, options: AlfworldOptions) -> Scene:
    """Draws one game: where all lies, where the agent stands, how it is asked."""
    name = name_of(task_id)
    rng = random.Random(derive_seed("alfworld", "game", options.digest(), task_id))
    places = receptacles(name.scene)
    things = _things(name, places, options, rng)
    x, z = rng.choice(free_points(name.scene))
    start = (x, z, rng.randrange(4), 30)
    templates = goals()[name.kind]["templates"]
    sentence: str = rng.choice(templates).format(
        obj=name.object.lower(),
        recep=name.receptacle.lower(),
        toggle=name.receptacle.lower(),
    )
    return Scene(name, start, places, things, sentence)


def _things(
    name: Name,
    places: tuple[Receptacle, ...],
    options: AlfworldOptions,
    rng: random.Random,
) -> tuple[Thing, ...]:
    """Draws the task's own objects, its lamp, and the clutter."""
    things: list[Thing] = []
    wanted = 2 if name.kind == "pick_two_obj_and_place" else 1
    count = rng.randint(0, options.distractor_instances - 1) + wanted
    elsewhere = [place for place in places if place.type != name.receptacle]
    homes = _homes(name.object, elsewhere)
    _scatter(things, name.object, count, homes, rng)
    if name.kind == "look_at_obj_in_light":
        stand = rng.choice([place for place in places if place.type in LAMP_STANDS])
        _scatter(things, name.receptacle, 1, [stand], rng)
    others = [kind for kind in room(name.scene).objects if kind != name.object]
    for kind in rng.sample(others, min(options.clutter, len(others))):
        count = rng.randint(1, options.distractor_instances)
        _scatter(things, kind, count, _homes(kind, places), rng)
    return tuple(things)


def _homes(kind: str, places: Iterable[Receptacle]) -> list[Receptacle]:
    return [place for place in places if kind in fits()[place.type]]


def _scatter(
    things: list[Thing],
    kind: str,
    count: int,
    homes: list[Receptacle],
    rng: random.Random,
) -> None:
    """Adds `count` objects of one type, each in a receptacle drawn from `homes`."""
    taken = {thing.id for thing in things}
    for _ in range(count):
        where = rng.choice(homes)
        identifier = _id_near(kind, where, rng)
        # Two of a kind in one drawer may round to the same centimetres.
        while identifier in taken:
            identifier = _id_near(kind, where, rng)
        taken.add(identifier)
        things.append(Thing(identifier, kind, where))


def _id_near(kind: str, where: Receptacle, rng: random.Random) -> str:
    _, x, _, z, *_ = where.id.split("|")
    near_x = float(x) + rng.uniform(-0.3, 0.3)
    height = rng.uniform(0.1, 1.9)
    near_z = float(z) + rng.uniform(-0.3, 0.3)
    place = (near_x, height, near_z)
    return "|".join([kind, *(f"{number:+06.2f}" for number in place)])


def _location(point: Point) -> str:
    return "|".join(map(str, ("loc", *point)))


def initial_facts(scene: Scene) -> list[Fact]:
    """The initial facts under AI2-THOR ids, predicates as in alfred.pddl."""
    facts: list[Fact] = [("atLocation", "agent1", _location(scene.start))]
    for place in scene.receptacles:
        facts.append(("receptacleType", place.id, f"{place.type}Type"))
        facts.append(("receptacleAtLocation", place.id, _location(place.point)))
        if place.type in constants().OPENABLE_CLASS_SET:
            facts.append(("openable", place.id))
    for thing in scene.things:
        facts += _facts_of_thing(thing)
    facts += _capacities(scene)
    return facts


def _facts_of_thing(thing: Thing) -> Iterator[Fact]:
    actions = constants().VAL_ACTION_OBJECTS
    yield "objectType", thing.id, f"{thing.type}Type"
    yield "inReceptacle", thing.id, thing.where.id
    yield "objectAtLocation", thing.id, _location(thing.where.point)
    if thing.type in constants().MOVABLE_RECEPTACLES_SET:
        yield "isReceptacleObject", thing.id
    if thing.type not in actions["Toggleable"]:
        yield "pickupable", thing.id
    for label in sorted(actions):
        if thing.type in actions[label]:
            yield label.lower(), thing.id


def _capacities(scene: Scene) -> Iterator[Fact]:
    """Which types of receptacles can contain which types of things."""
    kinds = sorted({thing.type for thing in scene.things})
    for place_kind in sorted({place.type for place in scene.receptacles}):
        for kind in kinds:
            if kind in fits()[place_kind]:
                yield "canContain", f"{place_kind}Type", f"{kind}Type"


def _problem(task_id: str, scene: Scene, facts: list[Fact]) -> str:
    points = {scene.start, *(place.point for place in scene.receptacles)}
    # The domain names these types whether a room has them or not.
    kinds = {"Knife", "ButterKnife", *(thing.type for thing in scene.things)}
    place_kinds = {tool.receptacle for tool in TOOLS.values()}
    place_kinds.update(place.type for place in scene.receptacles)
    names_of = {
        "agent": ["agent1"],
        "object": [thing.id for thing in scene.things],
        "receptacle": [place.id for place in scene.receptacles],
        "location": [_location(point) for point in points],
        "otype": [f"{kind}Type" for kind in kinds],
        "rtype": [f"{kind}Type" for kind in place_kinds],
    }
    objects = [
        f"        {mangle(name)} - {kind}"
        for kind, names in names_of.items()
        for name in sorted(names)
    ]
    init = ["        (= (total-cost) 0)"]
    for predicate, *arguments in facts:
        words = " ".join([predicate, *map(mangle, arguments)])
        init.append(f"        ({words})")
    name = scene.name
    # alfworld's goal library writes # where PDDL has a hyphen.
    template = goals()[name.kind]["pddl"].replace("#", "-")
    goal = template.format(
        obj=name.object,
        recep=name.receptacle,
        toggle=name.receptacle,
    )
    lines = [
        f"(define (problem plan_{mangle(task_id.rsplit('/', 1)[-1])})",
        "    (:domain alfred)",
        "    (:objects",
        *objects,
        "    )",
        "    (:init",
        *init,
        "    )",
        goal,
    ]
    return "\n".join(lines)


def shown(facts: list[Fact]) -> list[Fact]:
    """The same facts as the engine reports them: words instead of ids."""
    mangled = set()
    for _, *arguments in facts:
        for word in arguments:
            # The ids of things hold three numbers; those of locations begin with loc.
            if word.count("|") >= 3 and not word.startswith("loc|"):
                mangled.add(mangle(word))
    words = display_names(sorted(mangled))
    readable: list[Fact] = []
    for predicate, *arguments in facts:
        spelled = [words.get(mangle(word), word) for word in arguments]
        readable.append((predicate.lower(), *spelled))
    return readable


@lru_cache
def _logic() -> dict[str, str]:
    """alfred.pddl and alfred.twl2 as the wheel ships them."""
    folder = wheel() / "data"
    names = ("alfred.pddl", "alfred.twl2")
    return {name: (folder / name).read_text(encoding="utf-8") for name in names}


def files(task_id: str, options: AlfworldOptions) -> dict[str, str]:
    """The files of one game by name, as texts."""
    scene = arrange(task_id, options)
    facts = initial_facts(scene)
    walkthrough = plan(shown(facts), goal_of_task(task_id))
    problem = _problem(task_id, scene, facts)
    game = {
        "pddl_domain": _logic()["alfred.pddl"],
        "grammar": _logic()["alfred.twl2"].replace("UNKNOWN GOAL", scene.sentence),
        "pddl_problem": problem,
        # Known without a search: the walkthrough above wins, or plan() has raised.
        "solvable": True,
        "walkthrough": walkthrough,
    }
    described = traj_data(task_id, scene.name, scene.sentence, walkthrough)
    return {
        "game.tw-pddl": json.dumps(game),
        "initial_state.pddl": problem,
        "traj_data.json": json.dumps(described, indent=1),
    }


def make(task_id: str, options: AlfworldOptions, root: Path) -> Path:
    """The game's game.tw-pddl below `root` (see `cache_root`), made if it is not there.

    Raises WriteError.
    """
    game = game_file(root, task_id)
    if game.exists():
        return game
    logic = root / "logic"
    # alfworld's own loader looks for the domain and the grammar in this folder.
    if not logic.exists():
        _publish(_logic(), logic, root)
    _publish(files(task_id, options), game.parent, root)
    return game


def _publish(texts: dict[str, str], folder: Path, root: Path) -> None:
    """Writes a whole folder or none of it. Raises WriteError."""

    def write(new: Path) -> None:
        for name, text in texts.items():
            (new / name).write_text(text, encoding="utf-8")

    with keeping(root, CACHE):
        publish(folder, write, root / "partial")


def cache_root(options: AlfworldOptions) -> Path:
    """The folder for the games of these options: one folder per digest."""
    return cache_folder(os.environ, "alfworld") / options.digest()
