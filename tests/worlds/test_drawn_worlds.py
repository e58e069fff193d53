"""Worlds that draw: the text gives nothing away, the picture everything, and all else is as in text."""

from io import BytesIO
from typing import Any

import msgspec
import pytest
from agentcli.environments.protocol import Forkable, Observation, Picture, World
from agentcli.environments.registry import make_world
from agentcli.records.pictures import fault_of
from agentcli.records.settings import EnvironmentSettings
from agentcli.worlds.ezpoints import draw_cards, read_cards
from agentcli.worlds.sokoban.rules import FLOOR, PLAYER, TARGET
from agentcli.worlds.sokoban.world import draw_room, read_room
from PIL import Image
from playing import opened
from refusal import refused

WORLDS = ("sokoban", "ezpoints")
ROOM = "# # # #\n# P X #\n# S √ #\n# O _ #\n# # # #"


def made(name: str, **options: Any) -> World:
    return make_world(EnvironmentSettings(name=name, options=options))


def solved(world: World, index: int = 0) -> list[Observation]:
    """The observations of the expert in one task."""
    engine: Any = world.engine()
    first = engine.start(world.tasks("train")[index]).observation
    return [first, *map(engine.step, engine.plan())]


@pytest.mark.parametrize("name", WORLDS)
def test_only_text_and_pictures_differ_from_the_world_in_words(name: str) -> None:
    drawn, written = made(name, pictures=True), made(name)
    assert drawn.tasks("train") == written.tasks("train")
    for one, other in zip(solved(drawn), solved(written), strict=True):
        assert (one.state, one.reward, one.end) == (other.state, other.reward, other.end)
        assert (len(one.pictures), other.pictures) == (1, ())
        assert fault_of(one.pictures[0].png) is None
        assert other.text not in one.text


def test_no_sign_of_the_room_is_in_the_text() -> None:
    texts = {observation.text for observation in solved(made("sokoban", pictures=True))}
    assert len(texts) == 1
    assert not set("#√") & set(texts.pop())


def test_the_actions_do_not_say_which_ways_are_free() -> None:
    """RewardFlow App. B.3: all four, wherever the player stands."""
    listed = {observation.actions for observation in solved(made("sokoban", pictures=True))}
    assert listed == {("up", "down", "left", "right")}
    assert {observation.actions for observation in solved(made("sokoban"))} != listed


def test_a_listed_way_that_is_blocked_is_not_accepted() -> None:
    engine: Any = made("sokoban", pictures=True).engine()
    free: Any = made("sokoban").engine()
    task = made("sokoban").tasks("train")[0]
    engine.start(task)
    blocked = {"up", "down", "left", "right"} - set(free.start(task).observation.actions)
    assert blocked
    for action in blocked:
        assert not engine.step(action).accepted


def test_no_card_is_in_the_text() -> None:
    world = made("ezpoints", pictures=True)
    first, second = (solved(world, index)[0] for index in (0, 1))
    assert first.text == second.text
    assert first.pictures != second.pictures


@pytest.mark.parametrize("name", WORLDS)
def test_pictures_are_the_same_for_one_state_and_differ_with_it(name: str) -> None:
    world = made(name, pictures=True)
    engine: Any = world.engine()
    assert isinstance(engine, Forkable)
    first = engine.start(world.tasks("train")[0]).observation
    snapshot = engine.snapshot()
    after = [engine.step(action) for action in engine.plan()]
    assert engine.restore(snapshot) == first
    assert solved(world) == [first, *after]
    shown = {first.state: first.pictures} | {each.state: each.pictures for each in after}
    # The formula is in words, so the cards stay.
    assert len(set(shown.values())) == (len(shown) if name == "sokoban" else 1)


@pytest.mark.parametrize("name", WORLDS)
def test_the_tutor_reads_the_picture_as_it_reads_the_words(name: str) -> None:
    advice = []
    for options in ({"pictures": True}, {}):
        world: Any = made(name, **options)
        task = world.tasks("train")[3]
        context = opened(world.engine(), task)
        advice.append(world.next(context, 7, world.habits()))
        if options:
            assert not any(sign in world.compact(context) for sign in ("box", "cards"))
    # What the words do not say is said first: where things are.
    pictured, worded = sorted(advice, key=lambda one: len(one.sentence), reverse=True)
    assert pictured._replace(sentence=worded.sentence) == worded
    assert pictured.sentence.endswith(worded.sentence)


@pytest.mark.parametrize("name", [*WORLDS, "tunnel", "tool_qa"])
def test_a_task_of_no_split_is_refused(name: str) -> None:
    world = made(name)
    task = world.tasks("train")[0]
    foreign = msgspec.structs.replace(task, id=task.id.replace("/train/", "/seen/"))
    refused(lambda: world.engine().start(foreign), 3, names=(foreign.id, "environment.options"), remedy="panel")


@pytest.mark.parametrize("pixels", [6, 7, 8, 16, 33])
def test_a_room_is_read_back(pixels: int) -> None:
    png = draw_room(ROOM, pixels)
    assert Image.open(BytesIO(png)).size == (4 * pixels, 5 * pixels)
    assert read_room(png, pixels) == ROOM


@pytest.mark.parametrize("pixels", [1, 2, 5])
def test_cards_are_read_back(pixels: int) -> None:
    cards = (("10", "hearts"), ("Q", "spades"), ("9", "clubs"), ("2", "diamonds"))
    assert tuple(read_cards(draw_cards(cards, pixels), pixels)) == cards


def test_every_sign_and_pixel_size_has_its_own_tile() -> None:
    rooms = {draw_room(sign, 6) for sign in ("#", FLOOR, TARGET, "X", "√", PLAYER, "S")}
    assert len(rooms) == 7
    assert Picture(draw_room(FLOOR, 6)).name != Picture(draw_room(FLOOR, 7)).name


@pytest.mark.parametrize(("name", "pixels"), [("sokoban", 3), ("ezpoints", 0), ("sokoban", 1000)])
def test_a_size_that_cannot_be_drawn_is_refused(name: str, pixels: int) -> None:
    refused(lambda: made(name, pixels=pixels), names="environment.options.pixels")
