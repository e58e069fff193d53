"""What holds for every method, whatever world and policy do, and in whatever order things come back."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from agentcli.environments.engines.pool import EnginePool
from agentcli.environments.registry import make_world
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import (
    EnvironmentSettings,
    PolicySettings,
    PromptSettings,
    Settings,
)
from agentcli.records.trees import leaves, validate_tree
from agentcli.records.types import Outcome, Tree
from agentcli.stages.session import Invocation
from fitting import fitting
from growing import grow_all
from growths import GROWTHS, SPARKS, VOTES, check_copies, check_ledger, check_tree, executed, growths, is_malformed
from hypothesis import given, settings
from hypothesis import strategies as st
from random_world import ACTIONS, RandomEngines, leads, room
from scripted import Audited, SeededPolicy
from staged import rollout
from word_trees import grow_word

MAX_STEPS = 5
sizes = st.tuples(st.integers(1, 7), st.integers(1, 7)).map(sorted)
limits = st.fixed_dictionaries(
    {
        "branching": st.integers(1, 4),
        "depth": st.one_of(st.none(), st.integers(1, 3)),
        "vote_tokens": st.one_of(st.none(), st.integers(1, 60)),
    }
)
"""Of test-time-branch."""


@growths
@settings(max_examples=30, deadline=None)
@given(world=st.integers(0, 2**32), seed=st.integers(0, 2**32), sizes=sizes, branching=st.integers(1, 4), limits=limits)
def test_every_tree_of_every_world(
    growth: str, world: int, seed: int, sizes: list[int], branching: int, limits: dict[str, Any]
) -> None:
    roots, budget = sizes
    chosen = {**GROWTHS[growth], "leaves": budget, "roots": roots, "branching": branching}
    if growth in VOTES:
        chosen |= limits
    grown = []
    for _ in range(2):
        engines, policy = RandomEngines(world), Audited(SeededPolicy((*ACTIONS, "sing"), breaks=0.04))
        tree = grow_word(policy=policy, seed=seed, max_steps=MAX_STEPS, engines=engines, **chosen)
        grown.append(msgspec.json.encode(tree))
    assert grown[0] == grown[1], "the order in which answers came changes nothing"
    check_tree(tree, MAX_STEPS)
    if growth == "dpepo":
        check_copies(tree, chosen["copies"], opening(world))
    check_world(tree, world)
    check_costs(tree, engines, policy, growth)
    assert len(set(policy.seeds)) == len(policy.seeds), "no response is drawn twice"
    count = len(leaves(tree))
    assert (count == budget) or (roots <= count <= budget and (growth in SPARKS or nothing_to_fork(tree, growth)))


def opening(world: int) -> tuple[str, str]:
    """State key and text of the room where all begins."""
    return room(world, 0).state, room(world, 0).text


def test_what_is_checked_of_copies_is_there_to_check() -> None:
    """In the same worlds, by the same policy."""
    met: Counter[str] = Counter()
    for world in range(40):
        policy = SeededPolicy((*ACTIONS, "sing"), breaks=0.04)
        tree = grow_word("dpepo", policy, leaves=4, copies=2, max_steps=MAX_STEPS, engines=RandomEngines(world))
        met += check_copies(tree, 2, opening(world))
    names = {"several at once", "beside an end", "again", "for the first time after others", *map(str, Outcome)}
    assert set(met) == names
    assert min(met.values()) >= 5


def nothing_to_fork(tree: Tree, growth: str) -> bool:
    """Growths by single forks give up where the policy never answered, with what they began with."""
    return ("carl" in growth or "tree" in growth) and not any(step.response for step in tree.steps)


def check_world(tree: Tree, world: int) -> None:
    """Every step and every move led where the world's rules say; what could not be read led nowhere."""
    for step in filter(is_malformed, tree.steps):
        assert (step.state, step.reward) == (step.next_state, 0.0)
    for step in tree.steps:
        for move in step.moves or ([step] if step.action is not None else []):
            seen = leads(world, int(move.state), str(move.action))
            if seen is None:
                assert step.outcome is Outcome.ERRORED
                continue
            assert (move.next_state, move.next_observation, move.reward) == (seen.state, seen.text, seen.reward)
            ends = None if seen.end is None else Outcome(seen.end)
            assert move.outcome in ((ends,) if ends or step.moves else (None, Outcome.TRUNCATED))


def check_costs(tree: Tree, engines: RandomEngines, policy: Audited, growth: str) -> None:
    """The ledger is what engines and policy know to have been asked; where nothing was left out, also what the tree holds."""
    ledger = tree.ledger
    assert (ledger.generated_tokens, ledger.prompt_tokens) == (policy.generated, policy.prompt)
    assert ledger.shared_prompt_tokens == policy.shared <= ledger.prompt_tokens
    assert ledger.leaves == len(leaves(tree))
    unanswered = sum(map(is_malformed, tree.steps)) if growth == "votes on actions" else policy.unreadable
    assert ledger.steps == engines.executed + unanswered
    assert ledger.forks == (0 if growth == "votes on actions" else policy.forks)
    if growth not in VOTES:
        check_ledger(tree)
    else:
        assert ledger.steps >= sum(map(executed, tree.steps))


def toy(growth: str, concurrency: int, **environment: Any) -> Settings:
    options = {"tasks": 6, **environment.pop("options", {})}
    return Settings(
        environment=EnvironmentSettings(name="toy_world:ToyWorld", max_steps=8, options=options, **environment),
        policy=PolicySettings(kind="seeded"),
        prompt=PromptSettings(style="compact"),
        rollout=fitting(leaves=5, roots=2, concurrency=concurrency, **GROWTHS[growth]),
    )


def grown(*runs: Settings, last: int | None = None) -> list[list[Tree]]:
    """For each of `runs`, the trees of the toy tasks, by live engines in processes of their own (those of the first). The last
    run grows the task number `last` only, where that is given."""

    async def work() -> list[list[Tree]]:
        world = make_world(runs[0].environment)
        found = []
        async with EnginePool(runs[0].environment) as pool:
            for run in runs:
                tasks = world.tasks("train")
                if last is not None and run is runs[-1]:
                    tasks = tasks[last : last + 1]
                found.append(await grow_all(world, pool, SeededPolicy(), run, tasks, seed=3))
        return found

    return asyncio.run(work())


@growths
def test_the_same_seed_gives_the_same_bytes(growth: str) -> None:
    """One tree at a time or five, in one process or two, and a task by itself."""
    one, five, alone = grown(toy(growth, 1, processes=2), toy(growth, 5), toy(growth, 5), last=4)
    assert msgspec.json.encode(one) == msgspec.json.encode(five)
    assert alone == one[4:5]
    for tree in one:
        validate_tree(tree)
        check_tree(tree, 8)
        if growth not in VOTES:
            check_ledger(tree)


@pytest.mark.parametrize("growth", ["spark by coin", "carl", "treerl", "dpepo"])
def test_forks_without_snapshots_are_replayed_checked_and_charged(growth: str) -> None:
    """The same trees; only the ledger knows that states were restored by replaying their actions: every continuation of an
    engine state after its first costs its depth. The copies of dpepo part where there is nothing to replay."""
    (exact,) = grown(toy(growth, 3))
    (replayed,) = grown(toy(growth, 3, options={"snapshots": False}))
    assert [tree.steps for tree in exact] == [tree.steps for tree in replayed]
    assert sum(tree.ledger.replayed_steps for tree in exact) == 0
    for tree in replayed:
        assert tree.ledger.replayed_steps == (0 if growth == "dpepo" else replays(tree))
    assert growth == "dpepo" or sum(map(replays, replayed)) > 0


def replays(tree: Tree) -> int:
    """An unreadable response leaves the engine's state as it was, so the steps after it continue the same one."""
    depths: dict[int | None, int] = {None: 0}
    source: dict[int | None, int | None] = {None: None}
    continued: set[int | None] = set()
    total = 0
    for step in tree.steps:
        state = source[step.parent]
        if step.action is None:
            source[step.id] = state
            continue
        source[step.id], depths[step.id] = step.id, depths[state] + 1
        total += depths[state] if state in continued else 0
        continued.add(state)
    return total


@growths
def test_a_broken_engine_leaves_errored_leaves_only_where_it_broke(growth: str) -> None:
    broken = toy(growth, 3, options={"fault": "raise", "fault_tasks": ["train/2"], "fault_action": "go east"})
    (trees,) = grown(broken)
    for tree in trees:
        errors = {step.error for step in tree.steps if step.outcome is Outcome.ERRORED}
        assert bool(errors) == (tree.task.id == "train/2") or (growth in VOTES and not errors)
        assert all("the lamp broke" in str(error) for error in errors)
        if growth not in VOTES:
            check_ledger(tree)


@pytest.fixture
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The policy `seeded`, as pip leaves a package that offers one."""
    info = tmp_path / "site" / "seeded-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: seeded\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[agentcli.policies]\nseeded = scripted:seeded\n")
    monkeypatch.syspath_prepend(info.parent)


@growths
@pytest.mark.usefixtures("_installed")
def test_interruption_and_resume_change_nothing(growth: str, tmp_path: Path) -> None:
    """Cut within the first tree and within the fourth, and resumed with other numbers of tasks in flight."""

    def roll(concurrency: int, resume: bool) -> bytes:
        rollout(
            toy(growth, concurrency), tmp_path / "x", Invocation(["agentcli", "rollout"], resume, False), model=None
        )
        return RunDirectory(tmp_path / "x").trees.read_bytes()

    whole = roll(2, resume=False)
    fourth = sum(map(len, whole.splitlines(keepends=True)[:3])) + 40
    for concurrency, cut in ((1, 20), (5, fourth)):
        RunDirectory(tmp_path / "x").trees.write_bytes(whole[:cut])
        assert roll(concurrency, resume=True) == whole
