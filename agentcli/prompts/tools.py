"""Tool calls: a thought, then a tool with a query for it (Rare-tool section 4.1).

A response is

    <think> thought </think><tool> NAME </tool>
    <intended_query_for_tool> query </intended_query_for_tool>

or, to end the episode, `<think> thought </think><answer> LETTER </answer>`. The action
is `NAME[query]` or `answer[LETTER]`. Rare-tool's generator gives a query without a
tool. Here it also names the tool that it would use, so that one form serves the
generator, the trained policy and evaluations. With `rollout --method rare-tool` a judge
chooses instead.
"""

from agentcli.environments.protocol import Toolbox, World, world_as
from agentcli.prompts.full import Full
from agentcli.prompts.protocol import Answer, Moment
from agentcli.prompts.tagged import between, find_tags, shown, tag_pattern
from agentcli.records.calls import ANSWER, COT, ToolCall, read_call
from agentcli.records.faults import one_line
from agentcli.records.settings import PromptSettings

QUERY = "intended_query_for_tool"
CALL_TAGS = ["think", "/think", "tool", "/tool", QUERY, f"/{QUERY}"]
ANSWER_TAGS = ["think", "/think", ANSWER, f"/{ANSWER}"]
_TAGS = tag_pattern(f"think|tool|{QUERY}|{ANSWER}")

INSTRUCTIONS = """\
Think aloud first. Then take one tool, or none ({cot}) to think on, and say what you \
want to ask it:
<think> your thought </think>
<tool> one of: {names} </tool>
<{query}> what you ask it </{query}>
When you know the answer, end with it instead of a tool:
<think> your thought </think>
<answer> the letter of the choice </answer>"""


class Tools(Full):
    """The full prompt with a list of tools, and tool calls as responses.

    Raises UsageError for a world without tools.
    """

    def __init__(self, settings: PromptSettings, world: World) -> None:
        super().__init__(settings, world)
        tools = world_as(world, Toolbox, "prompt.style", "tools").tools
        listed = [f"- {name}: {purpose}" for name, purpose in tools.items()]
        names = ", ".join([*tools, COT])
        asked = INSTRUCTIONS.format(cot=COT, names=names, query=QUERY)
        self.instructions = "\n".join(["Tools:", *listed, "", asked])

    def read(self, response: str, moment: Moment) -> Answer:
        """The thought and call of a response; never raises.

        A second tag of any kind makes it ambiguous and therefore malformed.
        """
        marks = find_tags(_TAGS, response)
        names = [mark.name for mark in marks]
        if names not in (CALL_TAGS, ANSWER_TAGS):
            problem = (
                "expected one closed <think>, then a closed <tool> with its "
                f"<{QUERY}>, or a closed <{ANSWER}>; found {shown(names) or 'no tag'}"
            )
            return Answer(problem=problem)
        opened = names[::2]
        pairs = zip(marks[::2], marks[1::2], strict=True)
        texts = []
        for name, pair in zip(opened, pairs, strict=True):
            text = between(response, *pair)
            # A query may be a program, whose line breaks must stay.
            texts.append(text if name == QUERY else one_line(text))
        for name, text in zip(opened, texts, strict=True):
            if not text:
                return Answer(problem=f"<{name}> is empty")
        thought, *call = texts
        if names == ANSWER_TAGS:
            call.insert(0, ANSWER)
        tool, argument = call
        action = read_call(f"{tool}[{argument}]")
        if action is None:
            return Answer(problem=f"<tool> holds no name: {tool}")
        return Answer("think", thought, {1: str(action)})

    def write(self, answer: Answer, moment: Moment) -> str:
        """The answer as text; raises ValueError for an action that is not a call."""
        thought = f"<think> {answer.reasoning or ''} </think>"
        return thought + _written(only_call(answer))


def only_call(answer: Answer) -> ToolCall:
    """The only action of an answer, as a call; raises ValueError for any other."""
    (action,) = answer.actions.values()
    call = read_call(action)
    if call is None:
        raise ValueError(f"{action}: not of the form NAME[argument]")
    return call


def _written(call: ToolCall) -> str:
    if call.name == ANSWER:
        return f"<{ANSWER}> {call.argument} </{ANSWER}>"
    return f"<tool> {call.name} </tool><{QUERY}> {call.argument} </{QUERY}>"
