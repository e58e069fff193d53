"""The seam to tools: a name, a line about it, and text in, text out."""

from typing import Protocol


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
        ...
