"""Answers of the word world that a judge is asked about, and the judge."""

import asyncio
from collections.abc import Container

from agentcli.environments.protocol import Exam
from agentcli.errors import PolicyError
from agentcli.policies.protocol import Reply, Request
from agentcli.records.types import Task
from scripted import SeededPolicy
from word_world import WordWorld


class Asked(WordWorld):
    """A world whose answers a judge can be asked about."""

    def exam(self, task: Task, action: str) -> Exam | None:
        return Exam(question="q", references=("win",), answer=action)


class Judge(SeededPolicy):
    """Says the same of every answer; `slow` are the questions that it never answers, at `broken` it fails."""

    def __init__(self, verdict: str = "Correct", slow: Container[int] = (), broken: Container[int] = ()) -> None:
        super().__init__(("win",))
        self.verdict, self.slow, self.broken, self.asked = verdict, slow, broken, 0

    async def respond(self, request: Request) -> Reply:
        self.asked += 1
        if self.asked in self.broken:
            raise PolicyError("the judge is down")
        if self.asked in self.slow:
            await asyncio.Event().wait()
        return Reply(text=f'{{"rationale": "x", "judgement": "{self.verdict}"}}', token_ids=(1,))
