"""The expert that searches: only from its own past, the same move for the same seed, and it wins."""

import pytest
from agentcli.environments.protocol import Context
from agentcli.records.types import Task
from agentcli.worlds.alfworld.search import AlfworldHabits, know, parse, search
from alfworld_games import game_cache, small_world, some_of_each_kind  # noqa: F401
from playing import play

TASK = Task(
    id="train/pick_clean_then_place_in_recep-Apple-None-Shelf-7/trial_g00000", world="alfworld", split="train", kind="x"
)
INTRO = (
    "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see a drawer 1, "
    "a fridge 1, a shelf 1, and a sinkbasin 1.\n\nYour task is to: put a clean apple in shelf."
)
GO = ("go to drawer 1", "go to fridge 1", "go to shelf 1", "go to sinkbasin 1")


def past(
    *steps: tuple[str, str], admissible: tuple[str, ...] = GO, instruction: str = "put a clean apple in shelf."
) -> Context:
    """A context from (action, observation) pairs after the intro."""
    return Context(
        task=TASK, instruction=instruction, observations=(INTRO, *(seen for _, seen in steps)),
        actions=tuple(action for action, _ in steps), admissible=admissible,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "events"),
    [
        ("You arrive at fridge 1. The fridge 1 is closed.", [("arrive", "fridge 1", ()), ("closed", "fridge 1", ())]),
        (
            "You open the fridge 1. The fridge 1 is open. In it, you see a apple 1, and a mug 12.",
            [("see", "fridge 1", ("apple 1", "mug 12")), ("open", "fridge 1", ())],
        ),
        ("On the desk 1, you see nothing.", [("see", "desk 1", ())]),
        (
            "You arrive at desk 1. On the desk 1, you see a pen 1.",
            [("arrive", "desk 1", ()), ("see", "desk 1", ("pen 1",))],
        ),
        ("You close the fridge 1.", [("close", "fridge 1", ())]),
        ("You pick up the apple 1 from the fridge 1.", [("take", "fridge 1", ("apple 1",))]),
        ("You move the apple 1 to the desk 1.", [("put", "desk 1", ("apple 1",))]),
        ("You put the apple 1 in/on the desk 1.", [("put", "desk 1", ("apple 1",))]),
        ("You clean the apple 1 using the sinkbasin 1.", [("clean", "sinkbasin 1", ("apple 1",))]),
        ("You turn on the desklamp 1.", [("use", "", ("desklamp 1",))]),
        ("You are carrying: a apple 1.", [("carry", "", ("apple 1",))]),
        ("You are not carrying anything.", [("empty", "", ())]),
        ("Nothing happens.", [("idle", "", ())]),
        (
            "You are facing the drawer 1, and shelf 2. Next to it, you see nothing.",
            [("facing", "", ("drawer 1", "shelf 2"))],
        ),
        ("This is a normal mug 1. In it, you see nothing.", []),
        ("There's nothing special about apple 1.", []),
    ],
)
def test_texts_are_parsed(text: str, events: list[object]) -> None:
    assert list(parse(text)) == events


def test_knowledge_follows_the_agents_own_changes() -> None:
    known = know(
        past(
            ("go to fridge 1", "You arrive at fridge 1. The fridge 1 is closed."),
            ("open fridge 1", "You open the fridge 1. The fridge 1 is open. In it, you see a apple 1."),
            ("take apple 1 from fridge 1", "You pick up the apple 1 from the fridge 1."),
            ("go to sinkbasin 1", "You arrive at sinkbasin 1. On the sinkbasin 1, you see nothing."),
            ("clean apple 1 with sinkbasin 1", "You clean the apple 1 using the sinkbasin 1."),
            ("dance", "Nothing happens."),
            ("move apple 1 to sinkbasin 1", "You move the apple 1 to the sinkbasin 1."),
        )
    )
    assert list(known.places) == ["drawer 1", "fridge 1", "shelf 1", "sinkbasin 1"]
    assert known.at == "sinkbasin 1"
    assert known.visited == {"fridge 1": 1, "sinkbasin 1": 4}
    assert known.contents == {"fridge 1": (), "sinkbasin 1": ("apple 1",)}
    assert known.holding == ""
    assert list(known.done) == [("clean", "apple 1")]
    assert known.moved == {"apple 1": "sinkbasin 1"}
    assert known.shut == set()


def test_what_was_taken_again_is_no_longer_placed() -> None:
    placed = ("move apple 1 to shelf 1", "You move the apple 1 to the shelf 1.")
    taken = ("take apple 1 from shelf 1", "You pick up the apple 1 from the shelf 1.")
    assert know(past(placed)).moved == {"apple 1": "shelf 1"}
    assert know(past(placed, taken)).moved == {}


def test_heat_and_cool_undo_each_other() -> None:
    known = know(
        past(
            ("heat apple 1 with microwave 1", "You heat the apple 1 using the microwave 1."),
            ("cool apple 1 with fridge 1", "You cool the apple 1 using the fridge 1."),
        )
    )
    assert list(known.done) == [("cool", "apple 1")]


def test_explore_until_seen_then_think() -> None:
    assert search(past(), 0, AlfworldHabits())[:2] == ("explore", "find apple")
    seen = past(
        ("go to shelf 1", "You arrive at shelf 1. On the shelf 1, you see nothing."),
        ("go to sinkbasin 1", "You arrive at sinkbasin 1. On the sinkbasin 1, you see a apple 1."),
        admissible=(*GO[:3], "take apple 1 from sinkbasin 1"),
    )
    assert search(seen, 0, AlfworldHabits()) == ("think", "take apple", "take apple 1 from sinkbasin 1")


def test_what_was_seen_before_is_remembered() -> None:
    context = past(
        ("go to sinkbasin 1", "You arrive at sinkbasin 1. On the sinkbasin 1, you see a apple 1."),
        ("go to drawer 1", "You arrive at drawer 1. The drawer 1 is closed."),
        admissible=(*GO[1:], "open drawer 1"),
    )
    assert search(context, 0, AlfworldHabits()) == ("think", "take apple", "go to sinkbasin 1")


def test_closed_places_are_opened_unless_overlooked() -> None:
    closed = past(
        ("go to fridge 1", "You arrive at fridge 1. The fridge 1 is closed."),
        admissible=(GO[0], GO[2], GO[3], "open fridge 1"),
    )
    assert search(closed, 0, AlfworldHabits())[2] == "open fridge 1"
    assert search(closed, 0, AlfworldHabits(overlook=1.0))[2].startswith("go to ")
    opened = sum(search(closed, seed, AlfworldHabits(overlook=0.5))[2] == "open fridge 1" for seed in range(400))
    assert 150 < opened < 250


def test_seeds_draw_the_order_and_nothing_else() -> None:
    first = {search(past(), seed, AlfworldHabits())[2] for seed in range(30)}
    assert first == {"go to fridge 1", "go to sinkbasin 1"}
    assert all(search(past(), seed, AlfworldHabits()) == search(past(), seed, AlfworldHabits()) for seed in range(5))


def test_an_unwanted_thing_is_put_down_first() -> None:
    context = past(
        ("take mug 1 from shelf 1", "You pick up the mug 1 from the shelf 1."),
        admissible=(*GO, "move mug 1 to shelf 1"),
    )
    assert search(context, 0, AlfworldHabits()) == ("think", "drop mug", "move mug 1 to shelf 1")


def test_forgetting_skips_the_tool_and_then_rests() -> None:
    held = (("take apple 1 from sinkbasin 1", "You pick up the apple 1 from the sinkbasin 1."),)
    assert search(past(*held), 0, AlfworldHabits()) == ("think", "clean apple", "go to sinkbasin 1")
    assert search(past(*held), 0, AlfworldHabits(forget=1.0)) == ("think", "put apple", "go to shelf 1")
    placed = (*held, ("move apple 1 to shelf 1", "You move the apple 1 to the shelf 1."))
    assert search(past(*placed), 0, AlfworldHabits(forget=1.0)) == ("think", "done", "look")
    assert search(past(*placed), 0, AlfworldHabits())[:2] == ("think", "take apple")
    two = past(*placed, instruction="put two apple in shelf.")
    assert search(two, 0, AlfworldHabits(forget=1.0)) == ("think", "done", "look")
    assert search(two, 0, AlfworldHabits())[:2] == ("explore", "find apple")


def test_a_shared_viewing_point_is_left_to_come_back() -> None:
    context = past(
        ("go to sinkbasin 1", "You arrive at sinkbasin 1. On the sinkbasin 1, you see nothing."),
        ("go to drawer 1", "You arrive at drawer 1. On the drawer 1, you see nothing."),
        ("go to fridge 1", "You arrive at fridge 1. On the fridge 1, you see nothing."),
        admissible=("go to drawer 1", "go to sinkbasin 1"),
    )
    assert search(context, 0, AlfworldHabits())[2] in ("go to drawer 1", "go to sinkbasin 1")


def test_it_wins_games_of_every_kind() -> None:
    world = small_world()
    engine = world.engine()
    steps = []
    for task in some_of_each_kind(world, 4):
        (*_, context), last = play(engine, task, lambda context: world.next(context, 3, AlfworldHabits())[2], limit=80)
        assert last.end == "success", task.id
        steps.append(len(context.actions))
    engine.close()
    assert sorted(steps)[len(steps) // 2] <= 20


def test_bad_habits_cost_what_they_should() -> None:
    world = small_world()
    engine = world.engine()
    for task in some_of_each_kind(world, 2):
        _, last = play(
            engine, task, lambda context: world.next(context, 3, AlfworldHabits(forget=1.0, overlook=0.5))[2], limit=80
        )
        free = task.kind in ("pick_and_place_simple", "look_at_obj_in_light")
        assert (last.end == "success") == free, task.id
    engine.close()


def test_without_wandering_places_are_visited_in_the_order_of_the_commands() -> None:
    """A plausible place first, and among those the first command; wandering draws other orders."""
    steady = AlfworldHabits(wander=0.0)
    assert {search(past(), seed, steady)[2] for seed in range(30)} == {"go to fridge 1"}
    turned = past(admissible=GO[::-1])
    assert {search(turned, seed, steady)[2] for seed in range(30)} == {"go to sinkbasin 1"}


def test_habits_belong_to_episodes() -> None:
    """Whether an episode forgets is drawn from its seed alone: the same at every step, and as often as it is set."""
    context = past(("take apple 1 from sinkbasin 1", "You pick up the apple 1 from the sinkbasin 1."))
    seeds = range(400)
    forgetful = [search(context, seed, AlfworldHabits(forget=0.7))[1] == "put apple" for seed in seeds]
    assert sum(forgetful) / 400 == pytest.approx(0.7, abs=0.07)
    assert forgetful == [
        search(context, seed, AlfworldHabits(forget=0.7, wander=0.0))[1] == "put apple" for seed in seeds
    ]
