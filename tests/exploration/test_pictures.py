"""A world that shows pictures: they go from the engine's process into the message, or the command is refused in one line."""

import pytest
from agentcli.environments.engines.pool import EnginePool
from agentcli.environments.protocol import Picture
from agentcli.exploration.settings import as_method
from agentcli.policies.protocol import Reply, Request
from agentcli.prompts.tagged import write_tagged
from agentcli.records.settings import PromptSettings, RolloutSettings, Settings
from agentcli.records.types import Outcome, Tree
from growing import grow_all
from pools import tasks_of, toy, with_pool
from refusal import refused
from scripted import Answering
from toy_world import ToyWorld

MOVES = ("go east", "unreadable", "go west", "go east")


class Looker(Answering):
    """Walks to and fro, and keeps the pictures that it was shown."""

    def __init__(self) -> None:
        self.pictures: list[tuple[Picture, ...]] = []

    async def respond(self, request: Request) -> Reply:
        past = len(request.moment.copies[0].actions)
        self.pictures.append(request.message.pictures)
        action = MOVES[past]
        return Reply(text=action if action == "unreadable" else write_tagged("think", "on", action))


def walk(policy: Looker, style: str, method: str = "chain") -> Tree:
    """One task in a world with pictures."""
    settings = Settings(environment=toy(pictures=True), prompt=PromptSettings(style=style))
    settings.environment.max_steps = len(MOVES)
    settings.rollout = as_method(RolloutSettings(leaves=1), method)

    async def grow(pool: EnginePool) -> list[Tree]:
        tasks = tasks_of(settings.environment)[:1]
        return await grow_all(ToyWorld(settings.environment), pool, policy, settings, tasks, seed=0)

    (tree,) = with_pool(settings.environment, grow)
    return tree


@pytest.mark.parametrize("style", ["full", "react", "rlvmr"])
def test_every_message_has_the_pictures_of_the_present(style: str) -> None:
    policy = Looker()
    tree = walk(policy, style)
    assert [step.outcome for step in tree.steps] == [None, None, None, Outcome.TRUNCATED]
    rooms = [b"room 0", b"room 1", b"room 1", b"room 0"]
    assert policy.pictures == [(Picture(room),) for room in rooms]


@pytest.mark.parametrize(("style", "method"), [("compact", "chain"), ("full", "dpepo"), ("compact", "dpepo")])
def test_a_dialect_that_leaves_them_out_is_refused(style: str, method: str) -> None:
    policy = Looker()
    refused(lambda: walk(policy, style, method), names=("prompt.style", style, "toy"))
    assert policy.pictures == []
