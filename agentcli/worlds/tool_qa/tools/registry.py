"""All tools by name, each imported when it is made.

An installed package adds a tool with an entry point in the group `agentcli.tools`
(name -> "package.module:Class", a class that is made without arguments). A tool whose
class says another name than its entry point is refused.
"""

from typing import Protocol

from agentcli.errors import UsageError
from agentcli.registry import Registry


class ToolError(ValueError):
    """A tool's refusal of its argument; the text is what the agent reads."""


class AgentTool(Protocol):
    """One tool.

    It is made without arguments. It has no state that one call could leave to the next:
    equal arguments give equal texts, in every process.
    """

    name: str
    description: str
    """One line for the agent: what it answers, and how it is asked."""
    cost: float
    """Points that the local judge takes off, 0 to 2 (judge.py)."""

    def run(self, argument: str) -> str:
        """The answer. Raises ToolError where there is none."""


TOOLS = {
    "calculator": "agentcli.worlds.tool_qa.tools.calculator:Calculator",
    "python": "agentcli.worlds.tool_qa.tools.python:PythonTool",
    "search": "agentcli.worlds.tool_qa.tools.lookup:WebSearch",
    "wikipedia": "agentcli.worlds.tool_qa.tools.lookup:Wikipedia",
    "papers": "agentcli.worlds.tool_qa.tools.lookup:Papers",
    "facts": "agentcli.worlds.tool_qa.tools.lookup:Facts",
    "units": "agentcli.worlds.tool_qa.tools.units:Units",
    "algebra": "agentcli.worlds.tool_qa.tools.algebra:Algebra",
}
"""Name -> "module:Class", in the order they are shown (Rare-tool section 4.1: eight)."""

REGISTRY = Registry("agentcli.tools", TOOLS, key="tool", kind="tool")
LONGEST_ANSWER = 800
"""Characters of an answer; what is longer is cut."""
ERROR = "error: "
"""The beginning of what stands in the place of an answer where a tool has none."""


def tool_class(name: str) -> type[AgentTool]:
    """The class of a tool. Raises UsageError."""
    kind: type[AgentTool] = REGISTRY.load(name)
    if kind.name != name:
        raise UsageError(
            f"tool {name}: its class calls itself {kind.name!r}; give both one name"
        )
    return kind


def tool_names() -> list[str]:
    """The built-in names in their order, then the installed ones."""
    return [*TOOLS, *(name for name in REGISTRY.names() if name not in TOOLS)]


def answer(tool: AgentTool, argument: str) -> str:
    """What the agent reads: one text of bounded length, whatever the tool does.

    A tool that fails answers `error: ...`. Raises EngineError when its process broke.
    """
    try:
        text = tool.run(argument)
    except ToolError as error:
        text = f"{ERROR}{error}"
    text = text.strip() or f"{ERROR}no answer"
    if len(text) > LONGEST_ANSWER:
        text = f"{text[: LONGEST_ANSWER - 4]} ..."
    return text
