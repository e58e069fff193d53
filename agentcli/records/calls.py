"""Tool calls as actions: `search[mass of Titan]`, `answer[B]`."""

import re
from typing import NamedTuple

COT = "cot"
"""The action that runs no tool: the agent only thinks on (001, chain of thought)."""
ANSWER = "answer"
"""The action that ends the episode with a letter."""
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
    """The call that an action is; None where it is not written as one.

    Blanks around name and argument do not matter, nor do capitals in the name.
    """
    form = _FORM.fullmatch(action[:LONGEST_CALL])
    if form is None or not form[2].strip():
        return None
    return ToolCall(form[1].lower(), form[2].strip())
