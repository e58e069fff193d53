"""Makes real ALFWorld games: given a task id and settings, what lies where and the
files the engine plays.

The rooms are real (see layouts); only the positions of objects are drawn. A game is the
same bytes wherever it is made: everything random comes from the settings' digest and
the task id. A game is written as one folder, renamed into place when complete, so that
several processes may want the same one at once.
"""

import json
import os
import random
import shutil
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import msgspec

from agentcli.environments.alfworld.draw import LAMP_STANDS, Name, parse_name
from agentcli.environments.alfworld.goal import goal_of_task
from agentcli.environments.alfworld.keeping import CACHE, keeping
from agentcli.environments.alfworld.layouts import (
    Point,
    Receptacle,
    constants,
    fits,
    free_points,
    goals,
    receptacles,
    room,
    wheel,
)
from agentcli.environments.alfworld.names import display_names, mangle
from agentcli.environments.alfworld.options import AlfworldOptions
from agentcli.environments.alfworld.planner import Fact, plan
from agentcli.environments.alfworld.traj_data import traj_data
from agentcli.records.files import derive_seed


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
    """Draw one game: where everything lies, where the agent stands, how the task is
    worded.
    """
    name = parse_name(task_id.split("/")[-2])
    rng = random.Random(derive_seed("alfworld", "game", options.digest(), task_id))
    places = receptacles(name.scene)
    things: list[Thing] = []
    own = rng.randint(0, options.distractor_instances - 1) + (
        2 if name.kind == "pick_two_obj_and_place" else 1
    )
    homes = [
        place
        for place in places
        if name.object in fits()[place.type] and place.type != name.receptacle
    ]
    _scatter(things, name.object, own, homes, rng)
    if name.kind == "look_at_obj_in_light":
        stand = rng.choice([place for place in places if place.type in LAMP_STANDS])
        _scatter(things, name.receptacle, 1, [stand], rng)
    others = [kind for kind in room(name.scene).objects if kind != name.object]
    for kind in rng.sample(others, min(options.clutter, len(others))):
        homes = [place for place in places if kind in fits()[place.type]]
        _scatter(things, kind, rng.randint(1, options.distractor_instances), homes, rng)
    x, z = rng.choice(free_points(name.scene))
    templates = goals()[name.kind]["templates"]
    assert isinstance(templates, list)
    words = {
        "obj": name.object.lower(),
        "recep": name.receptacle.lower(),
        "toggle": name.receptacle.lower(),
    }
    return Scene(
        name,
        (x, z, rng.randrange(4), 30),
        places,
        tuple(things),
        rng.choice(templates).format(**words),
    )


def _scatter(
    things: list[Thing],
    kind: str,
    count: int,
    homes: list[Receptacle],
    rng: random.Random,
) -> None:
    """Add `count` objects of one type, each in a receptacle drawn from `homes`, under
    ids that no other has.
    """
    taken = {thing.id for thing in things}
    for _ in range(count):
        where = rng.choice(homes)
        identifier = _id_near(kind, where, rng)
        while identifier in taken:
            identifier = _id_near(kind, where, rng)
        taken.add(identifier)
        things.append(Thing(identifier, kind, where))


def _id_near(kind: str, where: Receptacle, rng: random.Random) -> str:
    x, _, z = where.id.split("|")[1:4]
    spot = (
        float(x) + rng.uniform(-0.3, 0.3),
        rng.uniform(0.1, 1.9),
        float(z) + rng.uniform(-0.3, 0.3),
    )
    return "|".join([kind, *(f"{value:+06.2f}" for value in spot)])


def _location(point: Point) -> str:
    return "loc|{}|{}|{}|{}".format(*point)


def initial_facts(scene: Scene) -> list[Fact]:
    """The initial facts under AI2-THOR ids, predicates as in alfred.pddl."""
    actions = constants().VAL_ACTION_OBJECTS
    openable = constants().OPENABLE_CLASS_SET
    movable = constants().MOVABLE_RECEPTACLES_SET
    facts: list[Fact] = [("atLocation", "agent1", _location(scene.start))]
    for place in scene.receptacles:
        facts.append(("receptacleType", place.id, f"{place.type}Type"))
        facts.append(("receptacleAtLocation", place.id, _location(place.point)))
        if place.type in openable:
            facts.append(("openable", place.id))
    for thing in scene.things:
        facts.append(("objectType", thing.id, f"{thing.type}Type"))
        facts.append(("inReceptacle", thing.id, thing.where.id))
        facts.append(("objectAtLocation", thing.id, _location(thing.where.point)))
        if thing.type in movable:
            facts.append(("isReceptacleObject", thing.id))
        if thing.type not in actions["Toggleable"]:
            facts.append(("pickupable", thing.id))
        facts += [
            (label.lower(), thing.id)
            for label in sorted(actions)
            if thing.type in actions[label]
        ]
    held = sorted({thing.type for thing in scene.things})
    for kind in sorted({place.type for place in scene.receptacles}):
        facts += [
            ("canContain", f"{kind}Type", f"{thing}Type")
            for thing in held
            if thing in fits()[kind]
        ]
    return facts


def _problem(task_id: str, scene: Scene, facts: list[Fact]) -> str:
    """The PDDL problem. The domain names some types whether a room has them or not, so
    they are always declared.
    """
    points = {
        _location(scene.start),
        *(_location(place.point) for place in scene.receptacles),
    }
    kinds = {thing.type for thing in scene.things} | {"Knife", "ButterKnife"}
    places = {place.type for place in scene.receptacles} | {
        "Microwave",
        "SinkBasin",
        "Fridge",
    }
    declared = [
        ("agent", ["agent1"]),
        ("object", [thing.id for thing in scene.things]),
        ("receptacle", [place.id for place in scene.receptacles]),
        ("location", list(points)),
        ("otype", [f"{kind}Type" for kind in kinds]),
        ("rtype", [f"{kind}Type" for kind in places]),
    ]
    objects = "\n".join(
        f"        {mangle(name)} - {kind}"
        for kind, names in declared
        for name in sorted(names)
    )
    init = "\n".join(
        f"        ({' '.join([fact[0], *map(mangle, fact[1:])])})" for fact in facts
    )
    name = scene.name
    goal = str(goals()[name.kind]["pddl"]).replace("#", "-")
    goal = goal.format(obj=name.object, recep=name.receptacle, toggle=name.receptacle)
    title = "plan_" + mangle(task_id.rsplit("/", 1)[-1])
    return (
        f"(define (problem {title})\n    (:domain alfred)\n    "
        f"(:objects\n{objects}\n    )\n    (:init\n        (= (total-cost) "
        f"0)\n{init}\n    )\n{goal}"
    )


def shown(facts: list[Fact]) -> list[Fact]:
    """The same facts as the engine reports them: lower-case predicates, words instead
    of ids.
    """
    names = sorted(
        {
            mangle(word)
            for fact in facts
            for word in fact[1:]
            if word.count("|") >= 3 and word[:4] != "loc|"
        }
    )
    words = display_names(names)
    return [
        (fact[0].lower(), *(words.get(mangle(word), word) for word in fact[1:]))
        for fact in facts
    ]


@lru_cache
def _logic() -> tuple[str, str]:
    """alfred.pddl and alfred.twl2 as the wheel ships them."""
    data = wheel() / "data"
    return (data / "alfred.pddl").read_text(encoding="utf-8"), (
        data / "alfred.twl2"
    ).read_text(encoding="utf-8")


def files(task_id: str, options: AlfworldOptions) -> dict[str, str]:
    """The files of one game by name, as texts."""
    scene = arrange(task_id, options)
    facts = initial_facts(scene)
    walkthrough = plan(shown(facts), goal_of_task(task_id))
    problem = _problem(task_id, scene, facts)
    domain, grammar = _logic()
    game = {
        "pddl_domain": domain,
        "grammar": grammar.replace("UNKNOWN GOAL", scene.sentence),
        "pddl_problem": problem,
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
    """The game's game.tw-pddl below `root` (see `cache_root`), made first if it is not
    there. Raises WriteError.
    """
    folder = root / "json_2.1.1" / task_id
    game = folder / "game.tw-pddl"
    if game.exists():
        return game
    logic = root / "logic"
    if not logic.exists():
        domain, grammar = _logic()
        _publish({"alfred.pddl": domain, "alfred.twl2": grammar}, logic, root)
    _publish(files(task_id, options), folder, root)
    return game


def _publish(texts: dict[str, str], folder: Path, root: Path) -> None:
    """Write a whole folder or none of it; if another process was first, its folder
    stays. Raises WriteError.
    """
    with keeping(root, CACHE):
        (root / "partial").mkdir(parents=True, exist_ok=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=root / "partial"))
        try:
            for name, text in texts.items():
                (partial / name).write_text(text, encoding="utf-8")
            partial.chmod(0o755)
            partial.rename(folder)
        except OSError:
            shutil.rmtree(partial)
            if not folder.is_dir():
                raise


def cache_folder(environ: Mapping[str, str]) -> Path:
    """The folder for all generated games: below $AGENTCLI_CACHE, or the platform's
    cache folder.
    """
    base = environ.get(CACHE)
    if base:
        return Path(base) / "alfworld"
    platform = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return platform / "agentcli" / "alfworld"


def cache_root(options: AlfworldOptions) -> Path:
    """The folder for the games of these options: one folder per digest."""
    return cache_folder(os.environ) / options.digest()
