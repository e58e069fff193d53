"""Rollouts in the toy world, and trees that several test files look at: a conftest.py imports these fixtures."""

from pathlib import Path

import pytest
from agentcli.exploration.settings import evaluation_class
from agentcli.records.settings import (
    EnvironmentSettings,
    PolicySettings,
    PromptSettings,
    Settings,
)
from agentcli.records.types import StageRecord
from agentcli.stages.session import Invocation
from fitting import fitting
from staged import rollout


def toy(
    method: str = "chain", concurrency: int = 4, tasks: int = 12, options: dict | None = None, **policy
) -> Settings:
    return Settings(
        environment=EnvironmentSettings(
            name="toy_world:ToyWorld", max_steps=12, options={"tasks": tasks, **(options or {})}
        ),
        prompt=PromptSettings(style="compact"),
        policy=PolicySettings(**{"kind": "random", **policy}),
        rollout=fitting(method, leaves=3, roots=2, draws=2, concurrency=concurrency, most_errored=1.0),
        evaluation=evaluation_class(method)(),
    )


def roll(settings: Settings, out: Path, resume: bool = False, overwrite: bool = False) -> StageRecord:
    return rollout(settings, out, Invocation(["agentcli", "rollout"], resume, overwrite), model=None)


@pytest.fixture(scope="session")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight trees of spark."""
    folder = tmp_path_factory.mktemp("grown")
    roll(toy("spark", tasks=8), folder / "run")
    return folder / "run/trees.jsonl"


@pytest.fixture
def run(grown: Path, tmp_path: Path) -> Path:
    """A folder with these trees and nothing else."""
    (tmp_path / "trees.jsonl").write_bytes(grown.read_bytes())
    return tmp_path
