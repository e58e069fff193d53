"""A thought, then the action in a tag of its own name (RewardFlow App. B.3, CARL Table 1).

A response is

    <think> thought </think><search> query </search>

where `search` may be the name of any of the world's actions. To end the episode it is
`<think> thought </think><answer> answer </answer>`. The action is then `search[query]`
or `answer[answer]`. RewardFlow has search and answer, CARL also access and read. The
prompt is in our own words.
"""

from agentcli.environments.protocol import Toolbox, World, world_as
from agentcli.prompts.full import Full
from agentcli.prompts.protocol import Answer, Moment
from agentcli.prompts.tagged import between, find_tags, shown, tag_pattern
from agentcli.prompts.tools import only_call
from agentcli.records.calls import ANSWER, ToolCall
from agentcli.records.faults import one_line
from agentcli.records.settings import PromptSettings

INSTRUCTIONS = """\
Think first, inside <think> </think>. Then act once: what stands between the brackets \
of an action is written inside a tag of its name. One of:
{forms}
An answer has as few words as possible."""


class Search(Full):
    """The full prompt with one tag for each of the world's actions.

    Raises UsageError for a world without such actions.
    """

    def __init__(self, settings: PromptSettings, world: World) -> None:
        super().__init__(settings, world)
        tools = world_as(world, Toolbox, "prompt.style", "search").tools
        self._names = (*tools, ANSWER)
        forms = [f"<think> ... </think><{name}> ... </{name}>" for name in self._names]
        self.instructions = INSTRUCTIONS.format(forms="\n".join(forms))
        self._tags = tag_pattern("|".join(("think", *self._names)))

    def read(self, response: str, moment: Moment) -> Answer:
        """The thought and action of a response; never raises.

        A second tag of any kind makes it ambiguous and therefore malformed.
        """
        marks = find_tags(self._tags, response)
        names = [mark.name for mark in marks]
        forms = [["think", "/think", name, f"/{name}"] for name in self._names]
        if names not in forms:
            choices = ", ".join(f"<{name}>" for name in self._names)
            problem = (
                f"expected one closed <think>, then one of {choices}; found "
                f"{shown(names) or 'no tag'}"
            )
            return Answer(problem=problem)
        thought = one_line(between(response, *marks[:2]))
        argument = one_line(between(response, *marks[2:]))
        if not thought or not argument:
            empty = names[2] if thought else "think"
            return Answer(problem=f"<{empty}> is empty")
        call = ToolCall(names[2], argument)
        return Answer("think", thought, {1: str(call)})

    def write(self, answer: Answer, moment: Moment) -> str:
        """The answer as text; raises ValueError for an action that is not a call."""
        call = only_call(answer)
        thought = f"<think> {answer.reasoning or ''} </think>"
        return f"{thought}<{call.name}> {call.argument} </{call.name}>"
