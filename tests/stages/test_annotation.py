"""Asking a teacher for the reasoning behind an action: what its message holds, and which answers serve."""

from agentcli.environments.protocol import Context
from agentcli.prompts.full import Full
from agentcli.prompts.protocol import Answer, Moment
from agentcli.records.settings import EnvironmentSettings, PromptSettings
from agentcli.records.types import Task
from agentcli.stages.annotate import Annotation
from toy_world import ToyWorld

AGENT = Full(PromptSettings(), ToyWorld(EnvironmentSettings()))
TASK = Task(id="t", world="toy", split="train", kind="k")
MOMENT = Moment(copies=(Context(task=TASK, instruction="Reach room 3.", observations=("This is room 0.",)),))


def read(response: str, action: str) -> Answer:
    return Annotation(AGENT, action).read(response, MOMENT)


def test_the_message_is_the_agents_with_the_action_and_what_was_wrong_before() -> None:
    text = Annotation(AGENT, "go east", "the action was changed").ask(MOMENT).text
    assert text.startswith(AGENT.ask(MOMENT).text)
    assert "The action is:\ngo east\n" in text
    assert text.endswith("the action was changed.")


def test_a_teacher_that_thinks_aloud_is_read_from_its_last_reasoning_on() -> None:
    response = "<think>Hm. <action> jump </action>?</think>\n<explore> Look around. </explore><action> look </action>"
    assert read(response, "look") == Answer("explore", "Look around.", {1: "look"})
    assert read(response, "jump").problem == "the action was changed"
    assert read("<think> a </think> <think> b </think>", "look").problem == "no <action> tag"
    assert read("<think> a </think><action> go  east </action>", "go \n east").problem is None
