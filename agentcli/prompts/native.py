"""Tool calls as models are tuned to write them: JSON, with the tools in the chat template.

A response is a thought, which may be missing, and one call in Hermes' and Qwen's form,

    I look it up. <tool_call>
    {"name": "search", "arguments": {"query": "mass of Titan"}}
    </tool_call>

or a call alone in Llama 3's form, {"name": ..., "parameters": {...}}. The `tool_calls` of
an endpoint arrive in the first form (policies/openai.py). `answer` is a tool, too. What a
call returned is a message of the role `tool`.
"""

import json
import re
from typing import Any

import msgspec

from agentcli.environments.protocol import (
    Context,
    Guiding,
    Toolbox,
    World,
    world_as,
)
from agentcli.errors import UsageError
from agentcli.prompts.full import Full
from agentcli.prompts.protocol import Answer, Moment
from agentcli.prompts.tools import only_call
from agentcli.records.calls import ANSWER, LONGEST_CALL, ToolCall
from agentcli.records.faults import UNREADABLE, one_line, shown
from agentcli.records.settings import PromptSettings

QUERY = "query"
"""The only argument of every tool."""
INSTRUCTIONS = (
    "Call one tool at a time. Where a text writes a call as NAME[argument], call the "
    "tool NAME with the argument as its query. When you know the answer, call the tool "
    "answer with it: the letter of an option if there are options, else as few words "
    "as possible."
)
CALL, CALLED = "<tool_call>", "</tool_call>"
THINK, THOUGHT = "<think>", "</think>"
PYTHON_TAG = "<|python_tag|>"
"""What Llama 3 may write before a call."""
_BETWEEN = re.compile(r"</tool_call>\s*<tool_call>")
NAME = re.compile(r"[a-z0-9_]+")
"""What a tool is called; an action is written as NAME[argument] (records/calls.py)."""


class NativeCall(msgspec.Struct, frozen=True):
    """The JSON of a call. Llama 3 says `parameters` for `arguments`."""

    name: str
    arguments: dict[str, Any] = {}
    parameters: dict[str, Any] = {}


class Native(Full):
    """The form of responses that call a tool.

    Raises UsageError for a world without tools, and for a tool whose name no call has.
    """

    instructions = INSTRUCTIONS

    def __init__(self, settings: PromptSettings, world: World) -> None:
        super().__init__(settings, world)
        tools = world_as(world, Toolbox, "prompt.tools", "native").tools
        self._tools = {**tools, ANSWER: "Ends with this answer."}
        for name in self._tools:
            if NAME.fullmatch(name) is None:
                raise UsageError(
                    f"prompt.tools native: no call can name the tool {shown(name)}; "
                    "write it with a-z, 0-9 and _, or choose prompt.tools=text"
                )

    @property
    def schemas(self) -> str:
        """The schemas of all tools, as JSON."""
        query = {"type": "string", "description": "What the tool is asked."}
        parameters = {
            "type": "object",
            "properties": {QUERY: query},
            "required": [QUERY],
        }
        functions = []
        for name, purpose in self._tools.items():
            function = {"name": name, "description": purpose, "parameters": parameters}
            functions.append({"type": "function", "function": function})
        return json.dumps(functions, ensure_ascii=False)

    def rules(self, context: Context) -> list[str]:
        """How to answer; the template lists the tools."""
        return [self.instructions]

    def scene(self, context: Context) -> list[str]:
        """What can be asked now; actions are not listed, because they are calls."""
        if not isinstance(self._world, Guiding):
            return []
        return super().scene(context)

    def read(self, response: str, moment: Moment) -> Answer:
        """The thought and call of a response; never raises."""
        thought, calls = split_calls(response)
        if len(calls) != 1:
            return Answer(problem=f"{len(calls)} tool calls; one is taken a step")
        call = read_native(calls[0])
        if call is None:
            return Answer(problem="the tool call is no JSON of a name and arguments")
        if call.name not in self._tools:
            names = ", ".join(self._tools)
            return Answer(problem=f"no tool {shown(call.name)}; there are {names}")
        arguments = call.arguments or call.parameters
        query = arguments.get(QUERY)
        if len(arguments) != 1 or not isinstance(query, str):
            return Answer(problem=f"the arguments are not one text, {QUERY}")
        action = ToolCall(call.name, query.strip())
        if not action.argument:
            return Answer(problem=f"{QUERY} is empty")
        if len(str(action)) > LONGEST_CALL:
            return Answer(problem=f"{QUERY} is longer than {LONGEST_CALL} characters")
        return Answer("think", thought, {1: str(action)})

    def write(self, answer: Answer, moment: Moment) -> str:
        """The answer as text; raises ValueError for an action that is not a call."""
        call = only_call(answer)
        arguments = {QUERY: call.argument}
        called = {"name": call.name, "arguments": arguments}
        text = json.dumps(called, ensure_ascii=False)
        written = f"<tool_call>\n{text}\n</tool_call>"
        return f"{answer.reasoning}\n{written}" if answer.reasoning else written


def read_native(text: str) -> NativeCall | None:
    """The call in a JSON text; None if there is none. Never raises."""
    try:
        return msgspec.json.decode(text, type=NativeCall)
    except UNREADABLE:
        return None


def split_calls(response: str) -> tuple[str, list[str]]:
    """The thought of a response, and the JSON texts of its calls.

    What is thought before </think> is no call. Takes time in proportion to the response,
    whatever it holds.
    """
    thought, spoken = _apart(response)
    opening, called, body = spoken.partition(CALL)
    if called and CALLED in body:
        # The text of a query may hold a tag: the last end counts, and only an end and a
        # beginning together part two calls.
        calls = _BETWEEN.split(body.rpartition(CALLED)[0])
        return _words(f"{thought} {opening}"), calls
    bare = spoken.strip().removeprefix(PYTHON_TAG).lstrip()
    if bare.startswith("{"):
        return _words(thought), [bare]
    return _words(response), []


def _apart(response: str) -> tuple[str, str]:
    """What a response thinks at its beginning, and what it says then."""
    before, ended, after = response.partition(THOUGHT)
    # The template may have opened the thought in the prompt, so that only its end is
    # here.
    if ended and CALL not in before:
        return before, after
    if not response.lstrip().startswith(THINK):
        return "", response
    # A call before the end of the thought is only thought of; a thought may not end.
    return (before, after) if ended else (response, "")


def _words(text: str) -> str:
    """A thought on one line, without its tags."""
    untagged = text.replace(THINK, " ").replace(THOUGHT, " ")
    return one_line(untagged)
