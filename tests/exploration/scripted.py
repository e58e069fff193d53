"""A scripted policy for exploration tests: the response is a function of the actions so far and the sample's index in
the lineage-seeded request, so that a tree can be worked out by hand."""

from collections.abc import Callable

from agentcli.policies.protocol import Reply, Request
from agentcli.prompts.parse import format_response
from agentcli.records.types import StopReason

Script = Callable[[tuple[str, ...], int], tuple[str, str]]
"""(actions so far, how many times this state was asked before) -> (tag, action)"""


class ScriptedPolicy:
    """Answers from a script; counts how often each history was asked."""

    seconds = 0.0

    def __init__(self, script: Script) -> None:
        self._script = script
        self.asked: dict[tuple[str, ...], int] = {}

    async def respond(self, request: Request) -> Reply:
        history = request.context.actions
        times = self.asked.get(history, 0)
        self.asked[history] = times + 1
        tag, action = self._script(history, times)
        text = format_response(tag, "go", action) if action else "nothing readable"
        return Reply(text=text, token_ids=(1, 2, 3), logprobs=(-0.5, -0.5, -0.5), prompt_tokens=7, stop=StopReason.STOP)

    async def close(self) -> None: ...
