"""The tutor: what the short prompt says, what the expert does with it, and its faults."""

import msgspec
import pytest
from agentcli.environments.protocol import Context, Toolbox, Tutor
from agentcli.environments.registry import make_world
from agentcli.policies.tiny import make_tokenizer
from agentcli.prompts.tagged import read_tagged, write_tagged
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.worlds.tool_qa.tools.registry import TOOLS
from agentcli.worlds.tool_qa.world import ToolQaEngine, ToolQaHabits, ToolQaWorld
from playing import play

SOUND = ToolQaHabits(wander=0.0)


@pytest.fixture(scope="module")
def world() -> ToolQaWorld:
    made = make_world(EnvironmentSettings(name="tool_qa"))
    assert isinstance(made, ToolQaWorld)
    return made


@pytest.fixture(scope="module")
def engine(world: ToolQaWorld) -> ToolQaEngine:
    return world.engine()


def episode(world: ToolQaWorld, engine: ToolQaEngine, task: Task, seed: int, habits: ToolQaHabits) -> Context:
    """What an agent that follows the expert knows at the end; its last action is the answer."""

    def choose(context: Context) -> str:
        action = world.next(context, seed, habits).action
        return read_tagged(write_tagged("think", "so", action)).actions[1]

    return play(engine, task, choose, 8, accepted=True)[0][-1]


def share_won(world: ToolQaWorld, engine: ToolQaEngine, habits: ToolQaHabits, number: int = 140) -> float:
    won = 0
    for seed, task in enumerate(world.tasks("valid")[:100] + world.tasks("train")[: number - 100]):
        episode(world, engine, task, seed, habits)
        won += engine.snapshot().end == "success"
    return won / number


def test_the_world_is_a_tutor_and_a_toolbox(world: ToolQaWorld) -> None:
    assert isinstance(world, Tutor)
    assert isinstance(world, Toolbox)
    assert list(world.tools) == list(TOOLS)
    assert all("\n" not in line for line in world.tools.values())


def test_a_sound_expert_wins_whatever_its_order(world: ToolQaWorld, engine: ToolQaEngine) -> None:
    assert share_won(world, engine, SOUND) == 1.0
    assert share_won(world, engine, ToolQaHabits(wander=1.0)) == 1.0


def test_its_faults_leave_something_to_learn(world: ToolQaWorld, engine: ToolQaEngine) -> None:
    forgetful = share_won(world, engine, ToolQaHabits(forget=1.0, wander=0.0))
    overlooking = share_won(world, engine, ToolQaHabits(overlook=1.0, wander=0.0))
    assert 0.6 < forgetful < 0.9
    assert 0.1 < overlooking < 0.55


def test_the_expert_knows_only_what_it_has_asked(world: ToolQaWorld, engine: ToolQaEngine) -> None:
    task = next(task for task in world.tasks("train") if task.attributes["template"] == "mass")
    start = engine.start(task)
    context = Context(task=task, instruction=start.instruction, observations=("",))
    first = world.next(context, 0, SOUND).action
    assert first.startswith("facts [ density of ")
    failed = msgspec.structs.replace(context, observations=("", "facts: error: no fact"), actions=(first,))
    assert world.next(failed, 0, SOUND).action.startswith("wikipedia [ density of ")
    asleep = ToolQaHabits(forget=1.0, wander=0.0)
    assert world.next(failed, 0, asleep).action.startswith("answer [ ")
    assert world.next(failed, 0, asleep).sentence == "guess"


def test_the_expert_asks_no_tool_that_is_not_there() -> None:
    closed = make_world(EnvironmentSettings(name="tool_qa", options={"tools": []}))
    single = make_world(EnvironmentSettings(name="tool_qa", options={"tools": ["wikipedia"]}))
    assert isinstance(closed, ToolQaWorld)
    assert isinstance(single, ToolQaWorld)
    calls = set()
    for task in closed.tasks("train")[:60]:
        start = closed.engine().start(task)
        context = Context(task=task, instruction=start.instruction, observations=("",))
        assert closed.next(context, 0, SOUND).sentence == "guess"
        calls.add(single.next(context, 0, SOUND).action.split(" [")[0])
    assert calls == {"wikipedia", "answer"}


def test_the_short_prompt_names_numbers_values_and_options(world: ToolQaWorld, engine: ToolQaEngine) -> None:
    task = next(task for task in world.tasks("train") if task.attributes["template"] == "mass")
    last = episode(world, engine, task, 0, SOUND)
    lines = world.compact(last).split("\n")
    assert "a = " in lines[0]
    assert "b = " in lines[0]
    assert lines[1].startswith("v = ")
    assert lines[2].startswith("asked ")
    assert lines[3] == f"named {engine._question.row.answer}"
    first = msgspec.structs.replace(last, observations=last.observations[:1], actions=())
    assert world.compact(first).split("\n")[1:] == ["named none"]


def test_a_tiny_tokenizer_holds_every_word_of_another_split(world: ToolQaWorld, engine: ToolQaEngine) -> None:
    """Prompts and calls of training questions make a vocabulary in which those of test questions can be written."""
    texts: dict[str, list[str]] = {"train": [], "test": []}
    for split, number in (("train", 400), ("test", 60)):
        for seed, task in enumerate(world.tasks(split)[:number]):
            start = engine.start(task)
            context = Context(task=task, instruction=start.instruction, observations=("",))
            advice = world.next(context, seed, SOUND)
            texts[split].append(f"{world.compact(context)} {write_tagged(advice.tag, advice.sentence, advice.action)}")
    tokenizer = make_tokenizer(texts["train"], world.vocabulary())
    for text in texts["test"]:
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.unk_token_id not in ids, text
        action = read_tagged(tokenizer.decode(ids)).actions[1]
        engine.start(world.tasks("test")[texts["test"].index(text)])
        assert engine.step(action).accepted
        assert "error: not" not in engine.snapshot().text


@pytest.mark.parametrize("calls", [0, 2])
def test_what_other_copies_have_seen_stands_before_and_is_left_out(
    world: ToolQaWorld, engine: ToolQaEngine, calls: int
) -> None:
    task = next(task for task in world.tasks("train") if task.attributes["template"] == "mass")
    whole = episode(world, engine, task, 0, SOUND)
    texts = whole.observations[: calls + 1]
    alone = msgspec.structs.replace(whole, observations=texts, actions=whole.actions[:calls])
    pooled = msgspec.structs.replace(alone, observations=(texts[0], "units: 7 day", *texts))
    assert world.compact(pooled) == world.compact(alone)
    assert world.next(pooled, 0, SOUND) == world.next(alone, 0, SOUND)


def test_hostile_contexts_are_read(world: ToolQaWorld) -> None:
    task = world.tasks("train")[0]
    for instruction, texts, actions in (
        ("", ("",), ()),
        ("What?\nA: [x]\nB:", ("", "units: [", "The response held no readable action."), ("units[", "")),
        ("How many kilometres are 12 miles?", ("", "\x00" * 99), ("answer[[[",)),
    ):
        context = Context(task=task, instruction=instruction, observations=texts, actions=actions)
        assert world.compact(context)
        assert world.next(context, 3, SOUND).action
