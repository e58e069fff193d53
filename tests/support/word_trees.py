"""Growing one tree of the word world, for tests."""

import asyncio
from collections.abc import Mapping
from typing import Any

from agentcli.policies.protocol import Policy
from agentcli.records.settings import EnvironmentSettings, PromptSettings, Settings
from agentcli.records.trees import paths, validate_tree
from agentcli.records.types import Task, Tree
from agentcli.stages.backend import LocalSampler, TreeJob
from fitting import fitting
from word_world import WordEngines, WordWorld

TASK = Task(id="word/1", world="word", split="train", kind="say")


def grow_word(
    method: str,
    policy: Policy,
    max_steps: int = 4,
    seed: int = 0,
    engines: Any = None,
    style: str = "compact",
    task: Task = TASK,
    world: WordWorld | None = None,
    models: Mapping[str, Policy] | None = None,
    **rollout: Any,
) -> Tree:
    """The tree of `method`, checked to be one. Settings that the method has not are left out."""
    chosen = Settings(
        environment=EnvironmentSettings(max_steps=max_steps),
        prompt=PromptSettings(style=style),
        rollout=fitting(method, **rollout),
    )
    world = world or WordWorld()
    sampler = LocalSampler(world, engines or WordEngines(), policy, chosen, models=models)  # type: ignore[arg-type]
    tree = asyncio.run(sampler.grow(TreeJob(task, seed))).tree
    validate_tree(tree)
    return tree


def words(tree: Tree) -> list[list[str | None]]:
    """The actions of every trajectory."""
    return [[step.action for step in path] for path in paths(tree)]
