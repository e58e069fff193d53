"""Names by type: a bijection in every task, the same wherever an episode goes, and no unknown words in unseen rooms."""

import random
import re
from functools import cache
from typing import Any

import msgspec
import pytest
from agentcli.environments.protocol import Context
from agentcli.prompts.protocol import Answer, Dialect, Moment
from agentcli.prompts.registry import make_dialect
from agentcli.records.settings import DemosSettings, EnvironmentSettings, PolicySettings, PromptSettings, Settings
from agentcli.records.types import Step, Task, Validity
from agentcli.worlds.alfworld.draw import constants, fits
from agentcli.worlds.alfworld.placeholders import Word, own, placeholders, typed
from agentcli.worlds.alfworld.search import AlfworldHabits
from alfworld_games import SMALL, game_cache, small_world, some_of_each_kind  # noqa: F401
from fitting import fitting
from growing import grown
from growths import check_tree
from hypothesis import given
from hypothesis import strategies as st
from playing import play

CONTEXT = Context(
    task=Task(
        id="train/pick_clean_then_place_in_recep-Mug-None-Cabinet-7/trial_g00001",
        world="alfworld",
        split="train",
        kind="pick_clean_then_place_in_recep",
    ),
    instruction="Your task is to: put a clean mug in cabinet.",
    observations=("",),
)
NAME = re.compile(r"[a-z]+ \d+|\S+")


def dialect(names: str) -> Dialect:
    return make_dialect(PromptSettings(style="compact", names=names), small_world())


def test_a_kind_has_the_word_of_what_it_does() -> None:
    words = {
        "drawer": "locker", "safe": "locker", "cabinet": "goal", "shelf": "surface", "toilet": "surface",
        "fridge": "cooler", "microwave": "heater", "sinkbasin": "washer", "desklamp": "lamp",
        "mug": "target", "plate": "thing", "box": "thing",
    }  # fmt: skip
    assert {kind: typed(kind, CONTEXT) for kind in words} == words
    assert typed("task put a clean mug in cabinet\nnow start", CONTEXT) == "task put a clean target in goal\nnow start"
    look = msgspec.structs.replace(CONTEXT, instruction="look at cd under the desklamp.")
    assert typed("look at cd under the desklamp, mug, cabinet", look) == "look at target under the lamp, thing, locker"


def test_no_placeholder_is_a_name_of_the_worlds_own() -> None:
    kinds = {kind.lower() for kind in (*constants().OBJECTS, *fits())}
    words = {name.split()[0] for name in placeholders()}
    assert words == {"locker", "surface", "goal", "heater", "cooler", "washer", "lamp", "target", "thing"}
    assert words.isdisjoint(kinds)
    assert all(typed(name, CONTEXT) == name for name in placeholders())


KINDS = ("cabinet", "drawer", "safe")
ROOMS = st.sets(st.builds("{} {}".format, st.sampled_from(KINDS), st.integers(1, 9))).map(sorted).map(tuple)


@given(room=ROOMS, shift=st.integers(0, 30), numbers=st.sets(st.integers(1, 99)), kind=st.sampled_from(KINDS), own=...)
def test_numbers_and_names_are_one_to_one(
    room: tuple[str, ...], shift: int, numbers: set[int], kind: str, own: int
) -> None:
    word = Word(room, KINDS, shift)
    assert tuple(word.name(number) for number in range(1, len(room) + 1)) == room
    names = [(number, word.name(number)) for number in numbers]
    meant = [name for _, name in names if name]
    assert len(set(meant)) == len(meant) >= len(numbers) - len(room)
    for number, name in names:
        if name:
            kind_of_it, _, count = name.partition(" ")
            assert word.number(kind_of_it, int(count)) == number
    own = abs(own) + 1
    assert word.name(word.number(kind, own)) == f"{kind} {own}"


@cache
def pasts() -> list[Context]:
    """Every moment of real episodes that wander about for a while, of each kind of task and in unseen rooms."""
    world = small_world()
    engine = world.engine()
    met = []

    def choose(context: Context) -> str:
        met.append(context)
        rng = random.Random(len(met))
        return rng.choice(context.admissible) if rng.random() < 0.3 else world.next(context, 1, AlfworldHabits())[2]

    for task in (*some_of_each_kind(world, 2), *world.tasks("L1")[:4]):
        play(engine, task, choose, limit=15)
    engine.close()
    return met


@given(data=st.data())
def test_every_admissible_action_of_an_episode_comes_back(data: st.DataObject) -> None:
    context = data.draw(st.sampled_from(pasts()))
    moment = Moment(copies=(context,))
    form = dialect("typed")
    said = set()
    for action in context.admissible:
        response = form.write(Answer("think", "so", {1: action}), moment)
        assert form.read(response, moment).actions == {1: action}
        said.add(response)
    assert len(said) == len(context.admissible)
    # What the policy reads names them the same way.
    listed = form.ask(moment).text.partition("\ncan ")[2]
    assert own(listed, context) == dialect("own").ask(moment).text.partition("\ncan ")[2]


def test_a_name_keeps_its_placeholder_for_the_whole_episode_and_only_for_it() -> None:
    names: dict[str, dict[str, str]] = {}
    for context in pasts():
        mine = names.setdefault(context.task.id, {})
        for name in re.findall(r"[a-z]+ \d+", " ".join(context.admissible)):
            assert mine.setdefault(name, typed(name, context)) == typed(name, context)
    assert {mine["drawer 1"] for mine in names.values() if "drawer 1" in mine} > {"locker 1"}


@pytest.mark.parametrize(
    "action", ["go to drawer 1", "take target from locker", "open locker 0", "open locker 01", "dance"]
)
def test_what_stands_for_nothing_is_not_translated(action: str) -> None:
    form, moment = dialect("typed"), Moment(copies=(CONTEXT,))
    assert form.read(f"<think> so </think><action> {action} </action>", moment).actions == {1: action}


def test_a_number_of_no_place_is_refused_by_the_world() -> None:
    world = small_world()
    engine = world.engine()
    task = world.tasks("train")[0]
    start = engine.start(task)
    context = Context(task=task, instruction=start.instruction, observations=(start.observation.text,))
    lockers = {
        typed(action, context) for action in start.observation.actions if "go to locker" in typed(action, context)
    }
    assert lockers == {f"go to locker {number + 1}" for number in range(len(lockers))}
    assert lockers
    for number in (len(lockers) + 1, 1000, 10**9, "9" * 5000):
        assert not engine.step(own(f"go to locker {number}", context)).accepted
    assert engine.step(own("go to locker 1", context)).accepted
    engine.close()


def words(split: str, names: str, count: int) -> set[str]:
    """What is read in games of a split by one who looks about, then does the task. A name with its number is one word, as for a
    tiny policy."""
    world = small_world(scenes_per_room=None, distractor_instances=1, clutter=12, games={"train": 400})
    engine = world.engine()
    form = dialect(names)
    met = set()

    def choose(context: Context) -> str:
        met.update(NAME.findall(form.ask(Moment(copies=(context,))).text))
        rng = random.Random(len(context.actions))
        moves = [action for action in context.admissible if action.startswith(("go to", "open"))]
        return rng.choice(moves) if rng.random() < 0.5 else world.next(context, 1, AlfworldHabits())[2]

    for task in world.tasks(split)[:count]:
        play(engine, task, choose, limit=40)
    engine.close()
    return met


@pytest.mark.slow
def test_unseen_rooms_have_only_words_of_the_training() -> None:
    by_type, by_name = (words("L2-train", names, 100) | words("L0", names, 20) for names in ("typed", "own"))
    assert words("L2", "typed", 10) <= by_type
    assert not words("L2", "own", 10) <= by_name
    assert {word for word in by_type if re.search(r" \d", word)} <= set(placeholders())


def settings(method: str, names: str, **rollout: Any) -> Settings:
    return Settings(
        environment=EnvironmentSettings(tasks=6, max_steps=15, options=SMALL),
        policy=PolicySettings(kind="demonstrator"),
        prompt=PromptSettings(style="compact", names=names),
        demos=DemosSettings(stray=0.2, noise=0.2),
        rollout=fitting(method=method, leaves=4, **rollout),
    )


def without_texts(step: Step) -> Step:
    return msgspec.structs.replace(step, prompt="", response="")


@pytest.mark.parametrize(("method", "more"), [("spark", {"branch": "fixed:.3"}), ("dpepo", {"copies": 3})])
def test_trees_differ_only_in_what_was_read_and_said(method: str, more: dict[str, Any]) -> None:
    """Forks and copies see the same placeholders, and a tree that is grown by itself, as on resuming, is the same."""
    typed_run, own_run = (settings(method, names, **more) for names in ("typed", "own"))
    by_type, by_name = grown(typed_run, own_run)
    assert grown(typed_run, tasks=slice(4, 5))[0] == by_type[4:5]
    said = 0
    for one, other in zip(by_type, by_name, strict=True):
        assert list(map(without_texts, one.steps)) == list(map(without_texts, other.steps))
        check_tree(one, 15)
        task = Context(task=one.task, instruction=one.instruction, observations=(one.steps[0].observation,))
        for step, named in zip(one.steps, other.steps, strict=True):
            assert (step.prompt, step.response) == (typed(named.prompt, task), typed(named.response, task))
            said += step.response != named.response
    steps = [step for tree in by_type for step in tree.steps]
    assert said > len(steps) / 2
    assert any(step.validity is Validity.INADMISSIBLE or step.mask == "stray" for step in steps)
