"""Sokoban: levels that can be solved and belong to one split, rules as in gym-sokoban, exact forks, an expert, a tutor."""

import random

import msgspec
import pytest
from agentcli.environments.protocol import FINISHED, Context, Forkable, Observation, Solvable, Tutor
from agentcli.environments.registry import make_world
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.worlds.sokoban.rules import draw_level, read
from agentcli.worlds.sokoban.world import SokobanEngine, SokobanHabits, SokobanWorld
from refusal import refusal, refused

LEVEL = """\
# # # # # #
# P _ _ _ #
# _ X _ O #
# _ _ _ _ #
# _ _ _ _ #
# # # # # #"""
"""One box, two pushes to the right of its target."""


def world(**options: object) -> SokobanWorld:
    return SokobanWorld(EnvironmentSettings(name="sokoban", options=options))


def at(text: str) -> SokobanEngine:
    """An engine in the position that a grid shows."""
    engine = world().engine()
    engine.start(world().tasks("train")[0])
    engine._now = read(text), True, 0.0
    return engine


def context(task: Task, observation: Observation, *actions: str) -> Context:
    texts = (observation.text,) * (len(actions) + 1)
    return Context(task=task, instruction="", observations=texts, actions=actions, admissible=observation.actions)


def test_it_is_made_by_its_name_and_has_every_capability() -> None:
    made = make_world(EnvironmentSettings(name="sokoban"))
    engine = made.engine()
    assert isinstance(made, Tutor)
    assert isinstance(engine, Forkable)
    assert isinstance(engine, Solvable)


def test_what_is_drawn_is_read_back() -> None:
    assert read(LEVEL).draw() == LEVEL


def test_a_push_onto_the_target_is_paid_and_ends_the_episode() -> None:
    engine = at(LEVEL)
    rewards = [engine.step(action).reward for action in ("down", "right")]
    last = engine.step("right")
    assert rewards == [-0.1, -0.1]
    assert (last.reward, last.end, last.accepted) == (10.9, "success", True)
    assert "√" in last.text


def test_a_box_that_leaves_a_target_costs_one() -> None:
    engine = at(LEVEL.replace("# P", "# _").replace("_ X _ O", "P √ _ O"))
    assert engine.step("right").reward == -1.1


@pytest.mark.parametrize("action", ["up", "left", "jump", ""])
def test_what_moves_nothing_is_not_accepted(action: str) -> None:
    observation = at(LEVEL).step(action)
    assert (observation.text, observation.accepted, observation.reward, observation.end) == (LEVEL, False, -0.1, None)
    assert observation.actions == ("down", "right")


def test_a_box_against_a_box_or_a_wall_stays() -> None:
    stuck = at(LEVEL.replace("# P", "# _").replace("_ X _ O", "P X X O"))
    assert not stuck.step("right").accepted


def test_every_level_is_solved_by_its_plan_within_the_bounds() -> None:
    for options in ({}, {"boxes": 2, "longest": 25}, {"size": 7, "boxes": 3, "longest": 40}):
        made = world(**options)
        engine = made.engine()
        for task in made.tasks("train")[:10]:
            engine.start(task)
            plan = engine.plan()
            assert 4 <= len(plan) <= made.options.longest
            assert [engine.step(action).end for action in plan] == [None] * (len(plan) - 1) + ["success"]


def test_levels_follow_from_options_and_no_two_splits_share_one() -> None:
    made = world()
    levels = {
        split: [draw_level(made.options, split, index).draw() for index in range(60)]
        for split in ("train", "valid", "test")
    }
    assert not set(levels["train"]) & set(levels["test"])
    assert not set(levels["valid"]) & (set(levels["train"]) | set(levels["test"]))
    assert len(set(levels["train"])) > 55
    draw_level.cache_clear()
    assert [draw_level(made.options, "test", index).draw() for index in range(60)] == levels["test"]
    assert draw_level(world(seed=1).options, "test", 0).draw() != levels["test"][0]


def test_a_snapshot_restores_the_position_and_what_was_observed() -> None:
    made = world(boxes=2, longest=30)
    engine = made.engine()
    rng = random.Random(3)
    start = engine.start(made.tasks("train")[0]).observation
    kept = [(engine.snapshot(), start)]
    for _ in range(40):
        snapshot, observation = rng.choice(kept)
        assert engine.restore(snapshot) == observation
        observation = engine.step(rng.choice(("up", "down", "left", "right", "nonsense")))
        if observation.end is None:
            kept.append((engine.snapshot(), observation))


def test_a_stuck_box_has_no_plan_and_the_expert_rests() -> None:
    stuck = LEVEL.replace("P _ _ _", "X _ _ P").replace("X _ O", "_ _ O")
    with refusal(4, "box"):
        at(stuck).plan()
    observation = at(stuck).step("nonsense")
    assert world().next(context(world().tasks("train")[0], observation), 0, SokobanHabits()).sentence == FINISHED


def test_the_expert_wins_from_what_it_sees_and_overlooks_as_often_as_it_is_told() -> None:
    made = world()
    engine = made.engine()
    strays = 0
    for seed, task in enumerate(made.tasks("valid")[:30]):
        observation = engine.start(task).observation
        careless = made.next(context(task, observation), seed, SokobanHabits(overlook=0.5))
        strays += careless.action != engine.plan()[0]
        while observation.end is None:
            observation = engine.step(made.next(context(task, observation), seed, SokobanHabits()).action)
    assert 3 <= strays <= 20


def test_the_compact_prompt_says_where_box_and_target_lie_in_known_words() -> None:
    observation = at(LEVEL).step("nonsense")
    shown = world().compact(context(world().tasks("train")[0], observation))
    assert shown.split("\n")[0] == "box down 1 right 1 goal right 2"
    assert {"down 1", "right 1", "right 2"} <= set(world().vocabulary())


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"size": 3}, "size"),
        ({"boxes": 0}, "boxes"),
        ({"seed": "one"}, "seed"),
        ({"levels": {"train": -1}}, "levels.train"),
        ({"shortest": 16}, "shortest"),
    ],
)
def test_wrong_options_are_refused_by_name(options: dict[str, object], field: str) -> None:
    settings = EnvironmentSettings(name="sokoban", options=options)
    refused(lambda: make_world(settings), names=f"environment.options.{field}")


@pytest.mark.parametrize(
    ("options", "field", "near"),
    [
        ({"boxs": 1}, "boxs", "boxes"),
        ({"levels": {"trian": 1}}, "levels.trian", "train"),
        ({"balls": 1}, "balls", "blocks"),
    ],
)
def test_a_misspelt_option_is_refused_with_the_nearest_name(options: dict[str, object], field: str, near: str) -> None:
    settings = EnvironmentSettings(name="sokoban", options=options)
    refused(lambda: make_world(settings), names=f"environment.options.{field}", remedy=near)


def test_options_without_a_level_and_tasks_of_other_options_are_refused() -> None:
    crowded = world(size=5, boxes=4, blocks=0, longest=5)
    task = crowded.tasks("train")[0]
    line = refused(lambda: crowded.engine().start(task), names=(task.id, "environment.options"), remedy="lower")
    assert "raise size" not in line
    refused(lambda: world(seed=1).engine().start(world().tasks("train")[0]), 3, names="environment.options")


def test_after_an_unreadable_response_the_tutor_goes_by_the_last_grid() -> None:
    made = world()
    task = made.tasks("train")[0]
    observation = made.engine().start(task).observation
    before = context(task, observation)
    texts = (*before.observations, "The response held no readable action.")
    after = msgspec.structs.replace(before, observations=texts, actions=("",))
    assert made.next(after, 0, SokobanHabits()) == made.next(before, 0, SokobanHabits())
    assert made.compact(after) == made.compact(before).replace("start", "last nothing")
