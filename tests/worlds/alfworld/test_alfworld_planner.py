"""The expert that knows: it wins from any moment of an episode, and no plan is longer than need be."""

import random
import time

import pytest
from agentcli.worlds.alfworld.planner import Goal, plan
from agentcli.worlds.alfworld.statekey import Fact
from alfworld_games import game_cache, small_world, some_of_each_kind  # noqa: F401
from refusal import refusal, refused

ROOM: list[Fact] = [
    ("atLocation", "agent1 ", "loc 9"),
    ("receptacleAtLocation", "shelf 1", "loc 1"),
    ("receptacleAtLocation", "drawer 1", "loc 1"),
    ("receptacleAtLocation", "fridge 1", "loc 2"),
    ("receptacleAtLocation", "microwave 1", "loc 3"),
    ("receptacleAtLocation", "sinkbasin 1", "loc 4"),
    ("receptacleAtLocation", "desk 1", "loc 5"),
    *(("openable", name) for name in ("drawer 1", "fridge 1", "microwave 1")),
    *(("canContain", f"{name}Type ", "AppleType ") for name in ("Shelf", "Drawer", "Fridge", "SinkBasin", "Desk")),
    ("canContain", "DrawerType", "MugType"),
]
"""Shelf and drawer share a viewing point; the agent starts where no receptacle is."""
APPLE_IN_FRIDGE: Fact = ("inReceptacle", "apple 1", "fridge 1")
HOLDING: Fact = ("holds", "agent1 ", "apple 1")


@pytest.mark.parametrize(
    ("extra", "goal", "expected"),
    [
        (
            [APPLE_IN_FRIDGE], "put a apple in shelf.",
            "go to fridge 1, open fridge 1, take apple 1 from fridge 1, go to shelf 1, move apple 1 to shelf 1",
        ),
        ([APPLE_IN_FRIDGE], "put some apple on fridge.", ""),
        (
            [HOLDING], "heat some apple and put it in drawer.",
            "go to microwave 1, heat apple 1 with microwave 1, go to drawer 1, open drawer 1, move apple 1 to drawer 1",
        ),
        ([HOLDING, ("isHot", "apple 1")], "put a hot apple in desk.", "go to desk 1, move apple 1 to desk 1"),
        (
            [APPLE_IN_FRIDGE, ("opened", "fridge 1")], "put a cool apple in fridge.",
            "go to fridge 1, take apple 1 from fridge 1, cool apple 1 with fridge 1, move apple 1 to fridge 1",
        ),
        ([APPLE_IN_FRIDGE, ("isCool", "apple 1")], "cool some apple and put it in fridge.", ""),
        (
            [APPLE_IN_FRIDGE, ("inReceptacle", "apple 2", "desk 1")], "put a clean apple in sinkbasin.",
            "go to desk 1, take apple 2 from desk 1, go to sinkbasin 1, clean apple 2 with sinkbasin 1, "
            "move apple 2 to sinkbasin 1",
        ),
        (
            [("holds", "agent1", "mug 1"), ("inReceptacle", "apple 1", "shelf 1")], "put a apple in desk.",
            "go to drawer 1, open drawer 1, move mug 1 to drawer 1, take apple 1 from shelf 1, go to desk 1, "
            "move apple 1 to desk 1",
        ),
        (
            [HOLDING, ("inReceptacle", "apple 2", "shelf 1")], "put two apple in shelf.",
            "go to shelf 1, move apple 1 to shelf 1",
        ),
        (
            [("inReceptacle", "apple 1", "shelf 1"), ("inReceptacle", "apple 2", "drawer 1")],
            "find two apple and put them in shelf.",
            "go to drawer 1, open drawer 1, take apple 2 from drawer 1, move apple 2 to shelf 1",
        ),
        (
            [("inReceptacle", "apple 1", "shelf 1"), ("inReceptacle", "apple 2", "shelf 1")], "put two apple in shelf.", "",
        ),
        (
            [HOLDING, ("inReceptacle", "desklamp 1", "desk 1")], "look at apple under the desklamp.",
            "go to desk 1, use desklamp 1",
        ),
        (
            [HOLDING, ("inReceptacle", "desklamp 1", "desk 1"), ("isToggled", "desklamp 1")],
            "examine the apple with the desklamp.", "go to desk 1",
        ),
    ],
)  # fmt: skip
def test_half_done_work_is_used(extra: list[Fact], goal: str, expected: str) -> None:
    assert plan([*ROOM, *extra], goal) == (expected.split(", ") if expected else [])


def test_sharing_a_viewing_point_needs_no_step() -> None:
    there: list[Fact] = [fact for fact in ROOM if fact[0] != "atLocation"]
    there += [("atLocation", "agent1", "loc 1"), HOLDING]
    assert plan(there, "put a apple in drawer.") == ["open drawer 1", "move apple 1 to drawer 1"]


def test_an_open_place_is_preferred_to_a_shut_one() -> None:
    drawers: list[Fact] = [
        ("receptacleAtLocation", "drawer 2", "loc 6"),
        ("openable", "drawer 2"),
        ("opened", "drawer 2"),
    ]
    assert plan([*ROOM, *drawers, HOLDING], "put a apple in drawer.") == ["go to drawer 2", "move apple 1 to drawer 2"]


def test_what_cannot_be_done_is_said() -> None:
    with refusal(4):
        plan(ROOM, Goal("pick_and_place_simple", "apple", "desk"))
    with refusal(4, "receptacle"):
        plan([*ROOM, APPLE_IN_FRIDGE], "put a apple in bed.")
    refused(lambda: plan(ROOM, "tidy up"), 3, names="tidy up")


def test_it_wins_from_wherever_a_random_agent_got_to() -> None:
    world = small_world()
    engine = world.engine()
    rng = random.Random(4)
    lengths = []
    seconds = 0.0
    for task in some_of_each_kind(world, 4):
        observation = engine.start(task).observation
        for _ in range(rng.choice([0, 5, 15, 30])):
            verbs = sorted(
                {action.split()[0] for action in observation.actions} - {"help", "look", "inventory", "examine"}
            )
            verb = rng.choice(verbs)
            observation = engine.step(rng.choice([a for a in observation.actions if a.startswith(verb)]))
        began = time.perf_counter()
        actions = engine.plan()
        seconds += time.perf_counter() - began
        lengths.append(len(actions))
        for action in actions:
            assert action in observation.actions
            assert observation.end is None
            observation = engine.step(action)
        assert observation.end or not actions
    engine.close()
    assert max(lengths) <= 16
    assert len([length for length in lengths if length]) >= 20
    assert seconds / len(lengths) < 0.05
