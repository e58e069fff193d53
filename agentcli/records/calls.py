"""Tool calls as actions: `search[mass of Titan]`, `answer[B]`."""

import re
from typing import NamedTuple

COT = "cot"
"""The action that calls no tool: the agent only reasons (Rare-tool, chain of thought)."""
ANSWER = "answer"
"""The action that ends the episode with the letter of an answer."""
LONGEST_CALL = 4000
"""Characters."""
_FORM = re.compile(r"\s*(\w+)\s*\[(.*)\]\s*", re.DOTALL)


class ToolCall(NamedTuple):
    """A tool, `cot` or `answer`, with its argument."""

    name: str
    """Lower case."""
    argument: str

    def __str__(self) -> str:
        return f"{self.name}[{self.argument}]"


def read_call(action: str) -> ToolCall | None:
    """Parses an action as a tool call; None if it is not written as one.

    Blanks around the name and the argument are ignored, and so is the case of the name.
    """
    form = _FORM.fullmatch(action[:LONGEST_CALL])
    if form is None or not form[2].strip():
        return None
    return ToolCall(form[1].lower(), form[2].strip())
