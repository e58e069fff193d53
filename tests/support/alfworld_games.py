"""What the ALFWorld tests share: small settings, one cache for the whole session, episodes played in the real engine."""

from collections.abc import Iterator
from typing import Any

import pytest
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.worlds.alfworld.options import KINDS
from agentcli.worlds.alfworld.world import AlfworldWorld

SMALL: dict[str, Any] = {"scenes_per_room": 3, "clutter": 5, "distractor_instances": 2, "games": {"train": 60}}
"""Settings under which games translate fast."""


@pytest.fixture(scope="module", autouse=True)
def game_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Games of a session lie together in its temporary folder, never in the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTCLI_CACHE", str(tmp_path_factory.getbasetemp() / "alfworld"))
        patch.delenv("ALFWORLD_DATA", raising=False)
        yield


def small_world(**options: Any) -> AlfworldWorld:
    """A world of small games."""
    return AlfworldWorld(EnvironmentSettings(options={**SMALL, **options}))


def some_of_each_kind(world: AlfworldWorld, count: int, split: str = "train") -> list[Task]:
    """The first `count` tasks of every task type, in order of type."""
    tasks = world.tasks(split)
    return [task for kind in KINDS for task in [task for task in tasks if task.kind == kind][:count]]
