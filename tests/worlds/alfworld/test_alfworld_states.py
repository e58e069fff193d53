"""The two texts of an ALFWorld state: the exact key and the papers' canonical state (RewardFlow B.1, Fig. 11), in real games."""

import random
from collections import defaultdict
from collections.abc import Iterator

import pytest
from agentcli.environments.protocol import Observation
from agentcli.records.types import Task
from agentcli.worlds.alfworld.engine import AlfworldEngine
from agentcli.worlds.alfworld.statekey import inventory
from alfworld_games import game_cache, small_world, some_of_each_kind  # noqa: F401

HELD = ("holds", "agent", "apple 1")


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ([], " You are not carrying anything."),
        ([HELD], " You are carrying: an apple 1."),
        ([("holds", "agent", "mug 2"), ("opened", "fridge 1")], " You are carrying: a mug 2."),
        ([HELD, ("isclean", "apple 1")], " You are carrying: an apple 1 [cleaned]."),
        ([HELD, ("isclean", "apple 1"), ("ishot", "apple 1")], " You are carrying: an apple 1 [cleaned] [heated]."),
        ([("iscool", "egg 1")], " You are not carrying anything. Elsewhere: egg 1 [cooled]."),
        ([HELD, ("iscool", "egg 1")], " You are carrying: an apple 1. Elsewhere: egg 1 [cooled]."),
    ],
)
def test_inventory_and_properties_as_the_paper_writes_them(facts: list[tuple[str, ...]], text: str) -> None:
    assert inventory(facts) == text
    assert inventory(reversed(facts)) == text


@pytest.fixture(scope="module")
def clean_game() -> Task:
    return next(task for task in some_of_each_kind(small_world(), 1) if "clean" in task.kind)


@pytest.fixture
def engine() -> Iterator[AlfworldEngine]:
    world = small_world()
    engine = world.engine()
    yield engine
    engine.close()


def won(engine: AlfworldEngine, task: Task) -> list[tuple[str, Observation]]:
    """The expert's episode: (action, what came back), the start with action ''."""
    moments = [("", engine.start(task).observation)]
    for action in engine.plan():
        moments.append((action, engine.step(action)))
    return moments


def test_a_canonical_state_is_the_text_with_what_is_held_and_done(engine: AlfworldEngine, clean_game: Task) -> None:
    held, cleaned = "", False
    for action, seen in won(engine, clean_game):
        if action.startswith("take "):
            held = action.removeprefix("take ").split(" from ")[0]
        elif action.startswith(("move ", "put ")):
            held = ""
        cleaned = cleaned or action.startswith("clean ")
        article = "an" if held[:1] in "aeiou" else "a"
        mark = " [cleaned]" if cleaned else ""
        carried = f"You are carrying: {article} {held}{mark}." if held else "You are not carrying anything."
        elsewhere = "" if held or not cleaned else " Elsewhere: "
        assert seen.canonical is not None
        assert seen.canonical.startswith(f"{seen.text} {carried}{elsewhere}")


def test_what_changes_nothing_leaves_the_exact_key_and_not_the_text(engine: AlfworldEngine, clean_game: Task) -> None:
    before = engine.start(clean_game).observation
    for action in ("look", "dance", "inventory", "go to nowhere 1"):
        after = engine.step(action)
        assert after.state == before.state
        assert after.canonical != before.canonical
    assert before.text not in before.state


def test_detours_meet_again_in_the_canonical_state_and_not_in_the_exact_one(
    engine: AlfworldEngine, clean_game: Task
) -> None:
    """A door that was opened on the way is out of sight afterwards: the agent's situation is the same, the world's is not."""
    start = engine.start(clean_game).observation
    closed = next(
        action
        for action in start.actions
        if action.startswith("go to ") and "is closed" in engine_text(engine, clean_game, action)
    )
    other = next(
        action
        for action in start.actions
        if action.startswith("go to ")
        and action != closed
        and "is closed" not in engine_text(engine, clean_game, action)
    )
    engine.start(clean_game)
    straight = engine.step(other)
    engine.start(clean_game)
    engine.step(closed)
    engine.step(f"open {closed.removeprefix('go to ')}")
    round_about = engine.step(other)
    assert round_about.canonical == straight.canonical
    assert round_about.state != straight.state


def engine_text(engine: AlfworldEngine, task: Task, action: str) -> str:
    engine.start(task)
    return engine.step(action).text


def test_equal_exact_keys_never_hide_a_difference_in_what_is_held_or_was_done(
    engine: AlfworldEngine, clean_game: Task
) -> None:
    """Along the expert's path and back at every step: an exact key determines what the canonical state adds to the text."""
    added: dict[str, set[str]] = defaultdict(set)
    for _, seen in won(engine, clean_game):
        assert seen.canonical is not None
        added[seen.state].add(seen.canonical.removeprefix(seen.text))
    assert all(len(texts) == 1 for texts in added.values())


LOOKS = ("look", "inventory", "examine ")
NONSENSE = ("", "examine nothing", "open the pod bay doors", "look around")


def test_a_step_that_only_looks_is_marked_as_the_papers_prune_it(engine: AlfworldEngine) -> None:
    """Steps marked are those that RewardFlow's word list names, where the game took them."""
    rng = random.Random(5)
    looked = 0
    for task in some_of_each_kind(small_world(), 1):
        observation = engine.start(task).observation
        for _ in range(30):
            action = rng.choice((*NONSENSE, *observation.actions, *observation.actions))
            listed = action in observation.actions
            observation = engine.step(action)
            assert observation.accepted == listed, action
            assert observation.looked == (listed and action.startswith(LOOKS)), action
            looked += observation.looked
            if observation.end:
                break
    assert looked > 5
