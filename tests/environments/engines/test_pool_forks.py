"""Forks are exact whichever way they are made, by a live copy or by replay; a copy that differs from what was observed is an
errored leaf that shows both."""

import asyncio
import re
from pathlib import Path

import pytest
from agentcli.environments.engines.pool import EnginePool, State
from agentcli.environments.protocol import Observation
from agentcli.environments.registry import make_world
from agentcli.errors import ReplayMismatchError
from agentcli.exploration.settings import rollout_settings
from agentcli.policies.registry import make_policy
from agentcli.records.settings import EnvironmentSettings, PolicySettings, PromptSettings, Settings
from agentcli.records.trees import leaves, path, paths
from agentcli.records.types import Outcome, Task, Tree
from agentcli.worlds.alfworld.engine import FastEngine
from alfworld_games import SMALL, game_cache, small_world, some_of_each_kind  # noqa: F401
from growing import grow_all
from pools import direct, grow, play, tasks_of, toy, with_pool


@pytest.mark.parametrize("snapshots", [True, False])
@pytest.mark.parametrize("engines", [128, 3])
def test_forked_states_are_what_an_engine_played_alone_reaches(snapshots: bool, engines: int) -> None:
    """Trees of many tasks grow interleaved on two workers, with enough engines and with constant eviction."""
    settings = toy(processes=2, snapshots=snapshots, tasks=12)

    async def body(pool: EnginePool) -> tuple[list[list[State]], int]:
        trees = await asyncio.gather(*(grow(pool, task, seed, 30) for seed, task in enumerate(tasks_of(settings))))
        return trees, pool.replayed_steps

    trees, replayed = with_pool(settings, body, engines_per_worker=engines)
    for state in (state for tree in trees for state in tree):
        assert state.observation == direct(settings, state.task, state.actions)
        assert state.observations[-1] == state.observation.text
        assert len(state.observations) == len(state.actions) + 1
    charged = sum(state.replayed for tree in trees for state in tree)
    if engines == 128:
        assert replayed == charged
    else:
        assert replayed > charged
    assert (charged == 0) == snapshots


def test_copies_of_real_games_are_what_replaying_them_gives() -> None:
    """Live copies, replays of what was evicted (one engine for two tasks), and replays in TextWorld's own engine."""
    tasks = some_of_each_kind(small_world(), 1)[2:4]

    def grown(engine: str, engines: int, tasks: list[Task]) -> tuple[list[list[Observation]], int, int]:
        settings = EnvironmentSettings(name="alfworld", options={**SMALL, "engine": engine})

        async def body(pool: EnginePool) -> tuple[list[list[State]], int]:
            return await asyncio.gather(*(grow(pool, task, 1, 5, ()) for task in tasks)), pool.replayed_steps

        trees, replayed = with_pool(settings, body, engines_per_worker=engines)
        charged = sum(state.replayed for tree in trees for state in tree)
        return [[state.observation for state in tree] for tree in trees], charged, replayed

    live, charged, replayed = grown("fast", 128, tasks)
    assert (charged, replayed) == (0, 0)
    evicted, charged, replayed = grown("fast", 1, tasks)
    assert (evicted, charged) == (live, 0)
    assert replayed > 0
    stock, charged, replayed = grown("stock", 128, tasks[:1])
    assert stock == live[:1]
    assert charged == replayed > 0


def test_concurrent_forks_of_one_state_without_snapshots_replay_all_but_one() -> None:
    settings = toy(snapshots=False, length=6)

    async def body(pool: EnginePool) -> tuple[list[State], int]:
        state = await play(pool, await pool.start(tasks_of(settings)[0]), "go east", "go east", "look")
        return await asyncio.gather(*(pool.step(state, "go east") for _ in range(5))), pool.replayed_steps

    children, replayed = with_pool(settings, body)
    assert {child.observation.state for child in children} == {"room=3 key=0 ended=0"}
    assert sorted(child.replayed for child in children) == [0, 3, 3, 3, 3]
    assert replayed == 12


def test_branches_without_snapshots_each_keep_their_engine() -> None:
    settings = toy(snapshots=False, length=6)

    async def body(pool: EnginePool) -> tuple[str, str, int]:
        root = await pool.start(tasks_of(settings)[0])
        one, other = await play(pool, root, "go east"), await play(pool, root, "look")
        for _ in range(3):
            one, other = await pool.step(one, "go east"), await pool.step(other, "look")
        return one.observation.state, other.observation.state, pool.replayed_steps

    assert with_pool(settings, body) == ("room=4 key=0 ended=0", "room=0 key=0 ended=0", 0)


@pytest.mark.parametrize("method", ["spark", "treerl", "treerpo"])
def test_without_snapshots_nothing_is_replayed_that_could_be_saved(method: str) -> None:
    """An engine leaves a state for good when it acts, so every leaf needs an engine that played its whole path."""
    branch = {"branch": "fixed:0.5"} if method == "spark" else {}
    settings = Settings(
        environment=EnvironmentSettings(name="toy_world:ToyWorld", max_steps=8, options={"snapshots": False}),
        policy=PolicySettings(kind="random"),
        prompt=PromptSettings(style="compact"),
        rollout=rollout_settings(method=method, leaves=12, roots=2, **branch),
    )
    trees = trees_of(settings)
    for tree in trees:
        played = sum(map(len, paths(tree)))
        assert tree.ledger.replayed_steps == played - len(tree.steps)
    assert any(tree.ledger.forks for tree in trees)


DIFFERENT = {
    "drift": ("replayed observation 1 is 'You look. Again. This", "recorded was 'You look. This"),
    "secret": ("replayed state key is 'room=1 key=0 ended=0 secret'", "recorded was 'room=1 key=0 ended=0'"),
    "astray": (
        "text of the restored copy is 'You go east. This is room 2.'",
        "recorded was 'You go east. This is room 1.'",
    ),
}
"""What goes wrong -> how both are shown. astray: in a live copy; the others: in a replay."""


@pytest.mark.parametrize("fault", DIFFERENT)
def test_a_copy_that_differs_is_an_error_with_both(fault: str) -> None:
    settings = toy(fault=fault, fault_tasks=["train/3"], fault_action="look", snapshots=fault == "astray")

    async def body(pool: EnginePool) -> None:
        ahead = await play(pool, await pool.start(tasks_of(settings)[3]), "look", "go east")
        await pool.step(ahead, "go west")
        with pytest.raises(ReplayMismatchError) as caught:
            await pool.step(ahead, "go west")
        for part in ("task train/3: step 3 'go west': ", *DIFFERENT[fault]):
            assert part in str(caught.value)

    with_pool(settings, body)


BOTH = {
    "drift": r"replayed observation \d is 'You look\. Again\. .*', recorded was 'You look\. This",
    "secret": r"replayed state key is 'room=. key=. ended=. secret', recorded was 'room=. key=. ended=.'",
    "astray": r"text of the restored copy is 'You .* room \d\b.*', recorded was 'You .* room \d\b",
}


@pytest.mark.parametrize("fault", DIFFERENT)
def test_a_copy_that_differs_is_an_errored_leaf_with_both(fault: str) -> None:
    """All other leaves are what an engine played alone reaches. (Where an action's answer drifts, its tree differs truly.)"""
    options = {"fault": fault, "fault_tasks": ["train/3"], "fault_action": "look", "snapshots": fault == "astray"}
    settings = Settings(
        environment=EnvironmentSettings(name="toy_world:ToyWorld", max_steps=8, options=options),
        policy=PolicySettings(kind="random"),
        prompt=PromptSettings(style="compact"),
        rollout=rollout_settings(method="treerl", leaves=12, roots=2),
    )
    for tree in trees_of(settings):
        errors = [step.error for step in leaves(tree) if step.outcome is Outcome.ERRORED]
        assert bool(errors) == (tree.task.id == "train/3")
        assert all(re.search(BOTH[fault], str(error)) for error in errors)
        for step in tree.steps:
            if step.error is None and (fault == "astray" or not errors):
                actions = tuple(one.action for one in path(tree, step) if one.action is not None)
                whole = direct(toy(), tree.task, actions)
                assert (step.next_observation, step.next_state) == (whole.text, whole.state)


def test_a_copy_of_a_real_game_is_compared_with_what_the_planner_says_now(tmp_path: Path) -> None:
    world = small_world()
    engine = FastEngine(world.locate, tmp_path)
    opening = engine.start(some_of_each_kind(world, 1)[0]).observation
    root = engine.snapshot()
    moved = engine.step(next(action for action in opening.actions if action.startswith("go to")))
    there = engine.snapshot()
    assert engine.restore(root) == opening
    assert engine.restore(there) == moved
    there[0].number = root[0].number
    assert engine.restore(there) != moved, "the planner is elsewhere"
    engine.close()


def trees_of(settings: Settings) -> list[Tree]:
    async def work() -> list[Tree]:
        world = make_world(settings.environment)
        async with EnginePool(settings.environment) as pool:
            policy = make_policy(settings, world, pool, None)
            return await grow_all(world, pool, policy, settings, world.tasks("train"), 0)

    return asyncio.run(work())
