"""A world that shows pictures: they go from the engine's process into the message, or the command is refused in one line."""

from importlib import metadata

import pytest
from agentcli.environments.engines.pool import EnginePool
from agentcli.environments.protocol import Picture, World
from agentcli.exploration.settings import as_method
from agentcli.policies.protocol import Policy, Reply, Request
from agentcli.prompts.parallel import write_parallel
from agentcli.prompts.protocol import Message, Moment
from agentcli.prompts.tagged import Tagged, write_tagged
from agentcli.records.settings import PromptSettings, RolloutSettings, Settings
from agentcli.records.types import Outcome, Tree
from drawn import square
from growing import grow_all
from msgspec import UNSET
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


def walk(policy: Policy, style: str, method: str = "chain") -> Tree:
    """One task in a world with pictures."""
    settings = Settings(environment=toy(pictures=True), prompt=PromptSettings(style=style))
    settings.environment.max_steps = len(MOVES)
    settings.rollout = as_method(RolloutSettings(leaves=1), method)

    async def grow(pool: EnginePool) -> list[Tree]:
        tasks = tasks_of(settings.environment)[:1]
        return await grow_all(ToyWorld(settings.environment), pool, policy, settings, tasks, seed=0)

    (tree,) = with_pool(settings.environment, grow)
    return tree


@pytest.mark.parametrize("style", ["full", "react", "rlvmr", "shared", "compact"])
def test_every_message_has_the_pictures_of_the_present(style: str) -> None:
    policy = Looker()
    tree = walk(policy, style)
    assert [step.outcome for step in tree.steps] == [None, None, None, Outcome.TRUNCATED]
    rooms = [Picture(square(room)) for room in (0, 1, 1, 0, 1)]
    assert policy.pictures == [(room,) for room in rooms[:4]]
    assert [step.pictures for step in tree.steps] == [(room.name,) for room in rooms[:4]]
    assert [step.next_pictures for step in tree.steps] == [(rooms[1].name,), UNSET, (rooms[3].name,), (rooms[4].name,)]


@pytest.mark.parametrize(("style", "method"), [("compact", "dpepo")])
def test_a_dialect_that_leaves_them_out_is_refused(style: str, method: str) -> None:
    policy = Looker()
    refused(lambda: walk(policy, style, method), names=("prompt.style", style, "toy"))
    assert policy.pictures == []


class PictureFirst(Tagged):
    """A dialect of one's own that shows the picture before it says anything."""

    fixed = None

    def __init__(self, settings: PromptSettings, world: World) -> None:
        """Nothing of either has a part in it."""

    def ask(self, moment: Moment) -> Message:
        return Message((*moment.pictures, moment.text))


def test_a_picture_before_the_text_is_refused_as_it_would_be_trained_on_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point = metadata.EntryPoint("pictured", f"{__name__}:PictureFirst", "agentcli.dialects")
    monkeypatch.setattr(metadata, "entry_points", lambda **wanted: metadata.EntryPoints([point]).select(**wanted))
    policy = Looker()
    refused(lambda: walk(policy, "pictured"), names=("prompt.style", "pictured"), remedy="Message((TEXT, *PICTURES))")
    assert policy.pictures == []


class InBoth(Answering):
    """Walks in one copy and looks in the other, and keeps what it was shown."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def respond(self, request: Request) -> Reply:
        self.requests.append(request)
        first = "go west" if len(self.requests) % 2 == 0 else "go east"
        return Reply(text=write_parallel("on", {1: first, 2: "look"}))


def test_copies_show_their_pictures_in_their_order() -> None:
    policy = InBoth()
    tree = walk(policy, "full", "dpepo")
    names = [Picture(square(room)).name for room in (0, 1)]
    # Two of four copies move: the first to and fro, the second nowhere.
    firsts = [0, 1, 0, 1, 0]
    for step, here, there in zip(tree.steps, firsts, firsts[1:], strict=False):
        assert step.pictures == (names[here], names[0], names[0], names[0])
        assert step.next_pictures == (names[there], names[0])
    assert "env_1, env_2, env_3, env_4" in policy.requests[0].message.text
