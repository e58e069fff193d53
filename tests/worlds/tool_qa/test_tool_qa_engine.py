"""The engine: calls and their results, exact forks, the expert's plan, and the verdicts of the local judge."""

import random

import msgspec
import pytest
from agentcli.environments.protocol import Closable, Forkable, Judging, Observation, Solvable, Start
from agentcli.environments.registry import make_world
from agentcli.records.calls import ToolCall, read_call
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.worlds.tool_qa.judge import BEST, FAILED, KNOWN, USELESS, VIABLE
from agentcli.worlds.tool_qa.knowledge import TEMPLATES
from agentcli.worlds.tool_qa.tools.registry import TOOLS
from agentcli.worlds.tool_qa.world import ToolQaEngine, ToolQaWorld
from refusal import refused


def world(**options: object) -> ToolQaWorld:
    made = make_world(EnvironmentSettings(name="tool_qa", options=options))
    assert isinstance(made, ToolQaWorld)
    return made


@pytest.fixture(scope="module")
def engine() -> ToolQaEngine:
    return world().engine()


def task_of(template: str, number: int = 0) -> Task:
    """A task of the default world by its template."""
    return [task for task in world().tasks("train") if task.attributes["template"] == template][number]


def opened(engine: ToolQaEngine, template: str, *actions: str) -> Observation:
    """The observation after actions in a question of a template."""
    observation = engine.start(task_of(template)).observation
    for action in actions:
        observation = engine.step(action)
    return observation


def test_it_has_every_capability(engine: ToolQaEngine) -> None:
    for capability in (Forkable, Solvable, Judging):
        assert isinstance(engine, capability)
    # The tools are those of every engine of the process.
    assert not isinstance(engine, Closable)


@pytest.mark.parametrize(
    ("action", "call"),
    [
        ("calculator[1 + 1]", ToolCall("calculator", "1 + 1")),
        (" Calculator [ a[0] ] ", ToolCall("calculator", "a[0]")),
        ("python[x = [1]\nprint(x)]", ToolCall("python", "x = [1]\nprint(x)")),
        ("calculator", None),
        ("calculator[]", None),
        ("[1]", None),
        ("calculator[1] now", None),
        ("use calculator[1]", None),
        ("", None),
        ("x" * 9000, None),
    ],
)
def test_calls_are_read(action: str, call: ToolCall | None) -> None:
    assert read_call(action) == call


def test_a_start_shows_question_options_and_tools(engine: ToolQaEngine) -> None:
    start: Start = engine.start(task_of("product"))
    lines = start.instruction.split("\n")
    assert [line[:3] for line in lines[1:11]] == [f"{letter}: " for letter in "ABCDEFGHIJ"]
    assert all(f"{name}: " in start.observation.text for name in TOOLS)


def test_a_right_answer_wins_and_a_wrong_one_loses(engine: ToolQaEngine) -> None:
    engine.start(task_of("product"))
    right = engine._question.row.answer
    wrong = "A" if right != "A" else "B"
    won, lost = (opened(engine, "product", f"answer[{letter.lower()}]") for letter in (right, wrong))
    assert (won.end, won.reward, won.accepted) == ("success", 1.0, True)
    assert (lost.end, lost.reward, lost.accepted) == ("failure", 0.0, True)


@pytest.mark.parametrize(
    "action", ["hello", "abacus[1]", "answer[K]", "answer[AB]", "answer[]", "", "calculator[", "answer[ABC"]
)
def test_what_is_no_call_is_not_accepted(engine: ToolQaEngine, action: str) -> None:
    before = opened(engine, "product", "calculator[2 * 3]")
    after = opened(engine, "product", "calculator[2 * 3]", action)
    assert (after.accepted, after.end, after.reward) == (False, None, 0.0)
    assert after.state == before.state


def test_errors_thoughts_and_repeats_only_look(engine: ToolQaEngine) -> None:
    known = opened(engine, "product", "calculator[2 * 3]")
    assert not known.looked
    for action in ("calculator[2 +", "calculator[1 / 0]", "cot[six, then]", "calculator[2 * 3]"):
        after = opened(engine, "product", "calculator[2 * 3]", action)
        assert after.state == known.state
        if action != "calculator[2 +":
            assert (after.accepted, after.looked) == (True, True)


def test_keys_hold_what_is_known_and_not_the_order(engine: ToolQaEngine) -> None:
    one = opened(engine, "product", "calculator[2 * 3]", "facts[kilometre per mile]")
    other = opened(engine, "product", "facts[kilometre per mile]", "cot[so]", "calculator[2 * 3]")
    assert (one.state, one.canonical) == (other.state, other.canonical)
    again = opened(engine, "product", "facts[kilometre per mile]", "algebra[2 * 3]")
    assert again.state != one.state
    assert again.canonical == one.canonical, "f(s) is what was learned, whichever tool told it"
    assert opened(engine, "workshop").state != opened(engine, "product").state


def test_forks_are_exact(engine: ToolQaEngine) -> None:
    rng = random.Random(1)
    start = engine.start(task_of("mass")).observation
    kept = [(engine.snapshot(), start)]
    actions = [
        *engine.plan()[:-1],
        "search[mass]",
        "cot[well]",
        "nonsense",
        "units[3 mile to kilometre]",
        "python[1 / 0]",
    ]
    for _ in range(40):
        snapshot, observation = rng.choice(kept)
        assert engine.restore(snapshot) == observation
        observation = engine.step(rng.choice(actions))
        kept.append((engine.snapshot(), observation))


def test_plans_win_in_every_template_and_from_anywhere(engine: ToolQaEngine) -> None:
    for template in TEMPLATES:
        task = task_of(template.name)
        engine.start(task)
        plan = engine.plan()
        assert len(plan) <= 4
        assert len(plan) - 1 <= int(task.attributes["steps"])
        ends = []
        for action in plan:
            assert engine.plan()[0] == action
            ends.append(engine.step(action).end)
        assert ends == [None] * (len(plan) - 1) + ["success"]


def test_a_task_of_other_options_is_refused(engine: ToolQaEngine) -> None:
    for other in (world(seed=1), world(choices=4), world(templates=["product"])):
        refused(lambda other=other: engine.start(other.tasks("train")[0]), 3, names="environment.options")
    refused(lambda: engine.start(msgspec.structs.replace(task_of("product"), id="mmlu-pro/3")), 3, names="--data")


def test_several_tools_that_compute_are_viable_and_differ(engine: ToolQaEngine) -> None:
    opened(engine, "product")
    (call, _) = engine.plan()
    argument = call.removeprefix("calculator[").removesuffix("]")
    verdict = engine.judge(argument)
    assert set(verdict.scores) == {*TOOLS, "cot"}
    viable = {name: score for name, score in verdict.scores.items() if score >= VIABLE}
    assert set(viable) == {"calculator", "python", "algebra"}
    assert len(set(viable.values())) == 3
    assert max(viable, key=viable.__getitem__) == "calculator"
    assert (verdict.scores["units"], verdict.scores["facts"]) == (FAILED, FAILED)
    assert (verdict.scores["cot"], verdict.process_ok) == (KNOWN, True)


def test_a_thought_is_best_once_the_answer_is_known(engine: ToolQaEngine) -> None:
    opened(engine, "mass")
    look_up, compute, _ = engine.plan()
    argument = read_call(look_up)
    assert argument is not None
    assert engine.judge(argument.argument).scores["cot"] == USELESS
    engine.step(look_up)
    again = engine.judge(argument.argument)
    assert max(again.scores.values()) == KNOWN, "what is known helps no more"
    assert not again.process_ok
    engine.step(compute)
    last = engine.judge("the answer is clear")
    assert last.scores["cot"] == BEST
    assert last.process_ok
    assert all(score < VIABLE for name, score in last.scores.items() if name != "cot")


def test_nonsense_makes_no_sense_and_changes_nothing(engine: ToolQaEngine) -> None:
    before = opened(engine, "mass")
    snapshot = engine.snapshot()
    for argument in ("xyzzy", "", "__import__('os')", "\x00"):
        verdict = engine.judge(argument)
        assert not verdict.process_ok
        assert max(verdict.scores.values()) < VIABLE
        assert engine.judge(argument) == verdict
    assert engine.restore(snapshot) == before


def test_rarity_has_a_choice_in_most_steps(engine: ToolQaEngine) -> None:
    """Measured on 500 questions: in 80 % of the expert's steps two tools or more are viable, and no two scores tie."""
    choices = []
    for task in world().tasks("train")[:60]:
        engine.start(task)
        for action in engine.plan()[:-1]:
            call = read_call(action)
            assert call is not None
            scores = engine.judge(call.argument).scores
            viable = [scores[name] for name in TOOLS if scores[name] >= VIABLE]
            assert viable
            assert len(set(viable)) == len(viable)
            choices.append(len(viable) >= 2)
            engine.step(action)
    assert sum(choices) / len(choices) > 0.6
