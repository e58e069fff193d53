"""Requests and words that the tests of this folder share."""

import asyncio
import random
from typing import Any

from agentcli.environments.protocol import Context
from agentcli.policies.protocol import Policy, Reply, Request
from agentcli.prompts.protocol import Message, Moment
from agentcli.prompts.tagged import Tagged
from agentcli.records.types import Task

TASK = Task(id="t", world="w", split="train", kind="k")
ENTITIES = [f"{kind} {number}" for kind in ("fridge", "cabinet", "alarmclock", "apple") for number in (1, 2, 3, 11, 12)]
PROMPTS = [
    "task: put a clean apple in cabinet 1. at fridge 1, holding nothing; unvisited: cabinet 2, cabinet 12 | open fridge 1",
    "You arrive at cabinet 11. The cabinet 11 is closed.\nAdmissible: open cabinet 11, go to fridge 1",
]


def make_request(prompt: str = "", seed: int = 0, **changes: Any) -> Request:
    """A request that asks for at most 12 tokens at temperature 1."""
    context = changes.pop(
        "context", Context(task=TASK, instruction="put apple 1 in cabinet 1", observations=("You see nothing.",))
    )
    moment = changes.pop("moment", Moment(copies=(context,)))
    values = {"states": (None,), "form": Tagged(), "episode_seed": 5, "temperature": 1.0, "max_tokens": 12, **changes}
    message = values.pop("message", Message((prompt,)))
    return Request(message=message, moment=moment, seed=seed, **values)


def make_requests(count: int, seed: int, **changes: Any) -> list[Request]:
    """Requests with prompts of 3 to 70 entities and seeds of 64 bits."""
    rng = random.Random(seed)
    return [
        make_request(" ".join(rng.choices(ENTITIES, k=rng.randint(3, 70))), rng.getrandbits(64), **changes)
        for _ in range(count)
    ]


def all_replies(policy: Policy, requests: list[Request], concurrency: int = 64) -> list[Reply]:
    """All replies, at most `concurrency` requests in flight."""

    async def run() -> list[Reply]:
        limit = asyncio.Semaphore(concurrency)

        async def one(request: Request) -> Reply:
            async with limit:
                return await policy.respond(request)

        return await asyncio.gather(*map(one, requests))

    return asyncio.run(run())
