"""A policy of the word world that tells draws from greedy answers, and the trees of criticality that it grows."""

from typing import Any

from agentcli.policies.protocol import Reply, Request
from agentcli.prompts.tagged import write_tagged
from agentcli.records.types import StopReason, Tree
from scripted import Answering
from word_trees import grow_word

History = tuple[str, ...]
Drawn = dict[History, list[tuple[str, float]]]
"""Actions so far -> what is sampled there, in order: (action, -log pi / |Y|). The first is the trajectory's own."""
Greedy = dict[History, str]


class Deciding(Answering):
    """Samples from one table and is greedy by another."""

    def __init__(self, drawn: Drawn, greedy: Greedy) -> None:
        self._drawn, self._greedy = drawn, greedy
        self._asked: dict[History, int] = {}

    async def respond(self, request: Request) -> Reply:
        history = request.moment.copies[0].actions
        if request.temperature == 0:
            action, surprise = self._greedy[history], 0.0
        else:
            times = self._asked.get(history, 0)
            self._asked[history] = times + 1
            action, surprise = self._drawn[history][times]
        return Reply(
            text=write_tagged("think", "go", action),
            token_ids=(1, 2),
            logprobs=(-surprise, -surprise),
            temperature=request.temperature,
            logprob_temperature=request.temperature or 1.0,
            prompt_tokens=7,
            stop=StopReason.STOP,
        )


def grow_critical(drawn: Drawn, greedy: Greedy, leaves: int = 1, **settings: Any) -> Tree:
    return grow_word("criticality", Deciding(drawn, greedy), leaves=leaves, **settings)
