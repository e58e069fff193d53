"""Policies for exploration tests: one that follows a script, so that a tree can be worked out by hand; one that draws everything
from the request's seed and takes its time in another order in every run; and an auditor of either."""

import asyncio
import random
from collections.abc import Callable
from itertools import takewhile
from typing import Any

from agentcli.errors import PolicyError
from agentcli.policies.protocol import Policy, Reply, Request
from agentcli.prompts.parallel import write_parallel
from agentcli.prompts.protocol import Moment
from agentcli.prompts.tagged import write_tagged
from agentcli.records.types import StopReason

Script = Callable[[tuple[str, ...], int], tuple[str, str]]
"""(actions so far, how many times this state was asked before) -> (tag, action)"""
Surprises = Callable[[tuple[str, ...], int], float]
"""The same -> -log pi / |Y| of the response."""


class Answering:
    """The part of a policy that holds nothing open and takes no time."""

    seconds = 0.0

    async def close(self) -> None: ...


class ScriptedPolicy(Answering):
    """Answers from a script; counts how often each history was asked. An empty action is a malformed response, and "break" none."""

    def __init__(
        self,
        script: Script,
        surprises: Surprises = lambda history, times: 0.5,
        lengths: Callable[[tuple[str, ...], int], int] = lambda history, times: 3,
    ) -> None:
        self._script, self._surprises, self._lengths = script, surprises, lengths
        self.asked: dict[tuple[str, ...], int] = {}

    async def respond(self, request: Request) -> Reply:
        history = request.moment.copies[0].actions
        times = self.asked.get(history, 0)
        self.asked[history] = times + 1
        tag, action = self._script(history, times)
        if action == "break":
            raise PolicyError("no answer")
        text = write_tagged(tag, "go", action) if action else f"<{tag}> nothing readable"
        length = self._lengths(history, times)
        logprobs = (-self._surprises(history, times),) * length
        return Reply(text=text, token_ids=(1,) * length, logprobs=logprobs, prompt_tokens=7, stop=StopReason.STOP)


Answers = dict[tuple[str, ...], list[tuple[str, float]]]
"""Actions so far -> what is sampled there, in order: (action, -log pi / |Y|)."""


def scripted(answers: Answers) -> ScriptedPolicy:
    """Thinks, and answers as listed; the last answer of a list again and again, and "a" (.25) where nothing is listed."""

    def pick(history: tuple[str, ...], times: int) -> tuple[str, float]:
        found = answers.get(history, [("a", 0.25)])
        return found[min(times, len(found) - 1)]

    return ScriptedPolicy(lambda h, t: ("think", pick(h, t)[0]), lambda h, t: pick(h, t)[1])


class ListedPolicy(Answering):
    """Gives the texts of a list in order: for one trajectory."""

    def __init__(self, texts: list[str]) -> None:
        self._texts = list(texts)
        self.prompts: list[str] = []

    async def respond(self, request: Request) -> Reply:
        self.prompts.append(request.prompt)
        return Reply(text=self._texts.pop(0), token_ids=(1, 2), logprobs=(-1.0, -1.0), prompt_tokens=5)


class SeededPolicy(Answering):
    """Tag, action, log-probabilities, now and then an unreadable text and, with a chance of `breaks`, an error: all from the
    request's seed. A token is a word of the prompt."""

    def __init__(self, actions: tuple[str, ...] = (), breaks: float = 0.0) -> None:
        self._actions, self._breaks = actions, breaks
        self._haste = random.Random()

    async def respond(self, request: Request) -> Reply:
        for _ in range(self._haste.randrange(4)):
            await asyncio.sleep(0)
        rng = random.Random(request.seed)
        length = rng.randint(1, 4)
        reply = Reply(
            text="unreadable" if rng.random() < 0.1 else self._text(request, rng),
            token_ids=tuple(rng.randrange(50) for _ in range(length)),
            logprobs=tuple(-rng.choice((0.25, 0.5, 1.0, 2.0)) for _ in range(length)),
            prompt_tokens=len(request.message.text.split()),
            shared_prompt_tokens=shared_words(
                request.message.text, request.turns[-1].message.text if request.turns else ""
            ),
            stop=StopReason.STOP,
        )
        if rng.random() < self._breaks:
            raise PolicyError("no answer")
        return reply

    def _text(self, request: Request, rng: random.Random) -> str:
        moment = request.moment
        if moment.numbered:
            chosen = [number for number in moment.open if rng.random() < 0.6] or moment.open[:1]
            admissible = {number: self._actions or moment.copies[number - 1].admissible for number in chosen}
            return write_parallel("go", {number: rng.choice(listed) for number, listed in admissible.items()})
        action = rng.choice(self._actions or moment.copies[0].admissible)
        return write_tagged(rng.choice(("think", "explore")), "go", action)


class Audited(Answering):
    """Passes requests on and adds up what a ledger must say, knowing neither ledger nor tree. A state is a moment object. Only in
    one environment are there forks; in several copies the step before is the last one of the trajectory."""

    def __init__(self, inner: Policy) -> None:
        self._inner = inner
        self._prompts: dict[object, str] = {}
        self._states: dict[int, Moment] = {}
        self.generated = self.prompt = self.shared = self.unreadable = self.forks = 0
        self.seeds: list[int] = []

    async def respond(self, request: Request) -> Reply:
        moment = request.moment
        past = moment.copies[0].observations, moment.copies[0].actions
        self.seeds.append(request.seed)
        before = self._prompts.get(request.episode_seed if moment.numbered else (past[0][:-1], past[1][:-1]), "")
        self._prompts[request.episode_seed if moment.numbered else past] = request.prompt
        again = id(moment) in self._states
        self._states[id(moment)] = moment
        self.forks += again and bool(past[1])
        reply = await self._inner.respond(request)
        self.generated += len(reply.token_ids)
        self.prompt += reply.prompt_tokens
        self.shared += reply.prompt_tokens if again else shared_words(request.prompt, before)
        self.unreadable += reply.text == "unreadable"
        return reply


def shared_words(one: str, other: str) -> int:
    """How many words both begin with."""
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(one.split(), other.split(), strict=False))
    return sum(1 for _ in alike)


def seeded(settings: Any, world: Any, pool: Any, model: str | None) -> Policy:
    """SeededPolicy as an installed package offers it."""
    return SeededPolicy()
