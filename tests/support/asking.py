"""Asking the openai policy against a scripted server, with a clock that passes only where someone sleeps."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from agentcli.policies.openai import OpenAIPolicy
from agentcli.records.settings import EndpointSettings, PolicySettings
from chat_server import ChatServer, Script
from policy_requests import make_request

T = TypeVar("T")


class Clock:
    """Time that passes only where someone sleeps."""

    def __init__(self) -> None:
        self.now, self.pauses, self.slept = 100.0, list[float](), asyncio.Event()

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.pauses.append(seconds)
        self.slept.set()
        await asyncio.sleep(0)


def with_policy(
    url: str,
    work: Callable[[OpenAIPolicy], Awaitable[T]],
    clock: Clock | None = None,
    key: str | None = None,
    **changes: Any,
) -> T:
    """What `work` makes of a policy for `url`; `changes` are settings of the policy or of its endpoint."""
    own = {name: changes.pop(name) for name in list(changes) if name in EndpointSettings.__struct_fields__}
    place = EndpointSettings(**{"base_url": url, "request_seconds": 10.0, "retries": 2, **own})
    settings = PolicySettings(**{"kind": "openai", "model": "m", "endpoint": place, **changes})

    async def run() -> T:
        used = clock or Clock()
        policy = OpenAIPolicy(settings, key, used, used.sleep)
        try:
            return await asyncio.wait_for(work(policy), 20)
        finally:
            await policy.close()

    return asyncio.run(run())


def ask(script: Script, seeds: int = 1, clock: Clock | None = None, **changes: Any) -> tuple[list[Any], ChatServer]:
    """Replies or errors of requests with seeds 0, 1, ..., one after another, and the server that was asked."""

    async def work(policy: OpenAIPolicy) -> list[Any]:
        outcomes: list[Any] = []
        for seed in range(seeds):
            outcomes += await asyncio.gather(policy.respond(make_request("go", seed)), return_exceptions=True)
        return outcomes

    with ChatServer(script) as server:
        return with_policy(server.url, work, clock, **changes), server
