"""environment.options.tools: some tools, or none (a closed book)."""

from pathlib import Path

from agentcli.environments.registry import make_world
from agentcli.records.settings import EnvironmentSettings
from command_line import agentcli
from refusal import refused


def world(*tools: str):
    return make_world(EnvironmentSettings(name="tool_qa", options={"tools": list(tools), "sizes": {"test": 5}}))


def test_without_tools_the_expert_answers_at_once() -> None:
    closed = world()
    assert dict(closed.tools) == {}
    for task in closed.tasks("test"):
        engine = closed.engine()
        engine.start(task)
        (action,) = engine.plan()
        assert action.startswith("answer[")
        assert not engine.step("calculator[1+1]").accepted
        assert engine.step(action).end == "success"


def test_only_the_tools_that_are_named() -> None:
    chosen = world("units", "calculator")
    assert list(chosen.tools) == ["units", "calculator"]
    engine = chosen.engine()
    engine.start(chosen.tasks("test")[0])
    assert engine.step("calculator[6*7]").text.endswith("42")
    assert list(engine.judge("6*7").scores) == ["units", "calculator", "cot"]


def test_an_unknown_tool_is_refused() -> None:
    refused(lambda: world("calculater"), names=("environment.options.tools", "calculater"), remedy="calculator")


def test_rare_tool_has_nothing_to_choose_from(tmp_path: Path) -> None:
    words = ("--env", "tool_qa", "--split", "test", "--tasks", "1", "--policy", "expert", "--method", "rare-tool")
    settings = ("--set", "rollout.judge.kind=tool-judge", "--set", "environment.options={tools: []}")
    refused(agentcli("rollout", *words, *settings, "-o", str(tmp_path / "x"), "-q"), 2, "environment.options.tools")
