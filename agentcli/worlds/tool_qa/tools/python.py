"""python: runs a program in a sandbox (sandbox_client.py says what that protects from).

A last expression is printed, as in an interactive Python. Nothing but the standard
modules that the sandbox has loaded can be imported. Clocks aside, a program prints the
same in every process. Answers are kept, so that a program that the judge has tried is
not run again.
"""

from functools import lru_cache

from agentcli.errors import MissingError
from agentcli.worlds.tool_qa.sandbox_client import Sandbox
from agentcli.worlds.tool_qa.tools.registry import ToolError


class PythonTool:
    """A program in, its output out."""

    name = "python"
    description = (
        "runs a program without files and network, e.g. "
        "python[sum(n * n for n in range(10))]"
    )
    cost = 1.2

    def __init__(self) -> None:
        self._sandbox = Sandbox()
        self._answer = lru_cache(maxsize=4096)(self._sandbox.run)

    def run(self, argument: str) -> str:
        """The output. Raises ToolError, and EngineError when the sandbox broke."""
        try:
            output = self._answer(argument)
        except MissingError as error:
            raise ToolError(str(error)) from error
        if not output:
            raise ToolError("the program printed nothing")
        last = output.rsplit("\n", 1)[-1]
        if last.startswith("error: "):
            raise ToolError(last.removeprefix("error: "))
        return output

    def close(self) -> None:
        self._sandbox.close()
