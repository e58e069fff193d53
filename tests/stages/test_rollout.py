"""Rollouts as files: the panel's order, the same bytes at any concurrency, resuming, errored leaves, demonstrations."""

import asyncio
import time
from functools import partial
from pathlib import Path

import msgspec
import pytest
from agentcli.environments.engines.pool import EnginePool
from agentcli.environments.registry import make_world
from agentcli.records.files import read_records
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import DemosSettings, PolicySettings
from agentcli.records.trees import validate_tree
from agentcli.records.types import Outcome, StageRecord, Tree, TreeSeconds
from agentcli.stages.backend import LocalBackend
from agentcli.stages.demos import plan as plan_demos
from agentcli.stages.rollout import plan
from agentcli.stages.session import Invocation, Session
from growing import grow_all
from grown_runs import roll, toy
from refusal import refused
from staged import demos, rollout


@pytest.mark.parametrize("method", ["chain", "spark", "test-time-branch"])
def test_one_seed_gives_the_same_bytes_at_any_concurrency(tmp_path: Path, method: str) -> None:
    for concurrency in (1, 5):
        roll(toy(method, concurrency), tmp_path / str(concurrency))
    one, five = (RunDirectory(tmp_path / name).trees.read_bytes() for name in ("1", "5"))
    assert one == five
    other = msgspec.structs.replace(toy(method), seed=1)
    roll(other, tmp_path / "other")
    assert RunDirectory(tmp_path / "other").trees.read_bytes() != one


def test_trees_lie_in_the_panels_order_and_are_counted(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "x"
    record = roll(toy(), run)
    trees = list(read_records(run / "trees.jsonl", Tree))
    assert [tree.task.id for tree in trees] == [f"train/{n}" for n in range(12)]
    for tree in trees:
        validate_tree(tree)
    leaves = [step for tree in trees for step in tree.steps if step.outcome]
    assert record.counts["leaves"] == record.ledger.leaves == len(leaves) == 36
    assert record.counts["success"] == sum(step.outcome is Outcome.SUCCESS for step in leaves)
    assert record.ledger.steps == sum(len(tree.steps) for tree in trees)
    assert (tmp_path / "runs" / "latest").resolve() == run
    assert RunDirectory(run).finished("rollout") == record


@pytest.mark.parametrize("cut", [1, 4000, -3])
def test_a_cut_rollout_resumes_to_the_same_bytes(tmp_path: Path, cut: int) -> None:
    roll(toy(), tmp_path / "x")
    trees = tmp_path / "x" / "trees.jsonl"
    whole = trees.read_bytes()
    trees.write_bytes(whole[:cut])
    roll(toy(), tmp_path / "x", resume=True)
    assert trees.read_bytes() == whole


def test_errored_trees_are_redone_in_their_place(tmp_path: Path) -> None:
    broken = toy(options={"fault": "raise", "fault_tasks": ["train/2", "train/7"], "fault_action": "go east"})
    record = roll(broken, tmp_path / "x")
    assert record.counts["errored"] > 0
    assert record.counts["success"] > 0
    errors = {
        tree.task.id for tree in read_records(tmp_path / "x" / "trees.jsonl", Tree) if any(s.error for s in tree.steps)
    }
    assert errors == {"train/2", "train/7"}
    refused(lambda: roll(toy(), tmp_path / "x", resume=True), names=("environment.options.fault", "raise"))
    settings = RunDirectory(tmp_path / "x").path / "settings" / "rollout.json"
    settings.unlink()
    roll(toy(), tmp_path / "x", resume=True)
    roll(toy(), tmp_path / "undisturbed")
    assert (tmp_path / "x" / "trees.jsonl").read_bytes() == (tmp_path / "undisturbed" / "trees.jsonl").read_bytes()


def test_every_tree_has_its_seconds_beside_it_and_one_that_was_redone_has_them_twice(tmp_path: Path) -> None:
    broken = toy(options={"fault": "raise", "fault_tasks": ["train/2", "train/7"], "fault_action": "go east"})
    begun = time.perf_counter()
    roll(broken, tmp_path / "x")
    spent = time.perf_counter() - begun
    path = tmp_path / "x" / "seconds.jsonl"
    first = list(read_records(path, TreeSeconds))
    assert [line.task for line in first] == [f"train/{n}" for n in range(12)]
    for line in first:
        assert 0 < line.wall <= spent
        assert 0 < line.environment <= 3 * line.wall, "three leaves wait at the same time, at most"
        assert 0 <= line.policy <= 3 * line.wall
    RunDirectory(tmp_path / "x").path.joinpath("settings", "rollout.json").unlink()
    roll(toy(), tmp_path / "x", resume=True)
    again = list(read_records(path, TreeSeconds))
    assert again[:12] == first
    assert [line.task for line in again[12:]] == ["train/2", "train/7"]
    roll(toy(), tmp_path / "x", overwrite=True)
    assert len(list(read_records(path, TreeSeconds))) == 12
    (tmp_path / "x" / "trees.jsonl").unlink()
    roll(toy(), tmp_path / "x", resume=True)
    assert len(list(read_records(tmp_path / "x" / "trees.jsonl", Tree))) == 12


def test_no_engine_starts_before_everything_was_checked(tmp_path: Path) -> None:
    """The engines of this world cannot be made, so a command that starts them says so."""
    broken = toy(options={"setup_fault": "exit"})
    refused(lambda: roll(broken, tmp_path / "new"), code=4, names="engine")
    roll(toy(), tmp_path / "x")
    before = (tmp_path / "x" / "trees.jsonl").read_bytes()
    refused(lambda: roll(broken, tmp_path / "x"), names="x/trees.jsonl", remedy="--overwrite")
    refused(lambda: roll(broken, tmp_path / "x", resume=True), names="environment.options.setup_fault")
    assert (tmp_path / "x" / "trees.jsonl").read_bytes() == before
    unknown = msgspec.structs.replace(broken, policy=PolicySettings(kind="nobody"))
    refused(lambda: roll(unknown, tmp_path / "y"), names="nobody")
    lost = msgspec.structs.replace(broken, policy=PolicySettings())
    refused(lambda: rollout(lost, tmp_path / "y", Invocation([]), model="./nowhere"), code=4, names="./nowhere")


def test_nothing_owed_changes_nothing(tmp_path: Path) -> None:
    roll(toy(), tmp_path / "x")
    whole = (tmp_path / "x" / "trees.jsonl").read_bytes()
    manifest = (tmp_path / "x" / "manifest.json").read_bytes()
    record = roll(toy(), tmp_path / "x", resume=True)
    assert record.counts["trees"] == 12
    assert (tmp_path / "x" / "trees.jsonl").read_bytes() == whole
    assert (tmp_path / "x" / "manifest.json").read_bytes() == manifest
    assert not (tmp_path / "x" / "logs" / "rollout-002.log").exists()


def test_a_rollout_killed_before_its_trees_were_sorted_is_sorted(tmp_path: Path) -> None:
    roll(toy(), tmp_path / "x")
    trees = tmp_path / "x" / "trees.jsonl"
    whole = trees.read_bytes()
    lines = whole.splitlines(keepends=True)
    trees.write_bytes(b"".join([*lines[3:], *lines[:3]]))
    (tmp_path / "x" / "manifest.json").unlink()
    roll(toy(), tmp_path / "x", resume=True)
    assert trees.read_bytes() == whole


def test_a_rollout_that_is_replaced_no_longer_counts_as_done(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "x")
    roll(toy(), run.path)
    broken = toy("spark")
    broken.rollout.branch = "often"
    refused(lambda: roll(broken, run.path, overwrite=True), remedy="explore")
    assert run.finished("rollout") is not None, "refused before anything was written"
    session = Session(plan(toy(), run.path, model=None), Invocation([], overwrite=True))
    session.check()
    session.start()
    assert run.finished("rollout") is None
    assert not run.trees.exists()


def test_iterations_take_different_slices_with_different_seeds(tmp_path: Path) -> None:
    seen = []
    for iteration in range(3):
        settings = toy()
        settings.rollout.tasks_per_step, settings.rollout.iteration = 4, iteration
        roll(settings, tmp_path / str(iteration))
        seen += [tree.task.id for tree in read_records(tmp_path / str(iteration) / "trees.jsonl", Tree)]
    assert len(seen) == len(set(seen)) == 12


def test_a_wrong_setting_ends_the_rollout_with_its_message(tmp_path: Path) -> None:
    settings = toy("spark")
    settings.rollout.branch = "often"
    refused(lambda: roll(settings, tmp_path / "x"), remedy=("explore", "fixed:P"))


def test_slow_trees_hold_up_nothing_and_come_in_order() -> None:
    """The first task hangs until its deadline; the trees after it are grown meanwhile and given out behind it."""
    settings = toy(options={"fault": "hang", "fault_tasks": ["train/0"], "fault_action": "go east"})
    settings.environment.deadline_seconds = 0.5

    async def work() -> list[Tree]:
        world = make_world(settings.environment)
        async with (
            EnginePool(settings.environment) as pool,
            LocalBackend(pool, keeps=False).policy(settings, world, None) as policy,
        ):
            return await grow_all(world, pool, policy, settings, world.tasks("train"), 0)

    trees = asyncio.run(work())
    assert [tree.task.id for tree in trees] == [f"train/{n}" for n in range(12)]
    assert any("0.5 s" in (step.error or "") for step in trees[0].steps)
    assert all(step.error is None for tree in trees[1:] for step in tree.steps)


def demonstrate(
    out: Path, resume: bool = False, method: str = "chain", copies: int = 4, **settings: object
) -> StageRecord:
    chosen = msgspec.structs.replace(toy(method), demos=DemosSettings(**{"policy": "random", **settings}))
    if method == "dpepo":
        chosen.rollout.copies = copies
    return demos(chosen, out, Invocation(["agentcli", "demos"], resume=resume), model=None)


def test_demonstrations_are_as_many_successes_as_asked_for(tmp_path: Path) -> None:
    record = demonstrate(tmp_path / "d", count=20)
    trees = list(read_records(tmp_path / "d" / "trees.jsonl", Tree))
    assert len(trees) == record.counts["success"] == 20
    assert all(tree.steps[-1].outcome is Outcome.SUCCESS for tree in trees)
    assert record.statistics["episodes_tried"] > 20
    kept = demonstrate(tmp_path / "all", count=20, keep="all")
    assert kept.counts["trees"] == 20
    assert kept.counts["success"] < 20


def test_demonstrations_are_given_up_after_as_many_episodes_as_planned(tmp_path: Path) -> None:
    """A policy of a thousand tasks that never wins is not asked a thousand times for one demonstration."""
    settings = toy(tasks=1000, options={"length": 40})
    settings.environment.max_steps = 1
    settings.demos = DemosSettings(policy="random", count=2)
    planned = plan_demos(settings, tmp_path / "d", model=None)
    assert planned.counts() == {"tasks": 1000, "demonstrations": 2, "episodes_at_most": 440}
    attempt = partial(demos, settings, tmp_path / "d", Invocation(["agentcli", "demos"]), model=None)
    refused(attempt, code=1, names=("random", "0 of 440"), remedy="demos.keep=all")
    settings.demos.keep = "all"
    assert plan_demos(settings, tmp_path / "all", model=None).counts()["episodes_at_most"] == 2


@pytest.mark.parametrize("cut", [0, 1, 9000, -3])
def test_cut_demonstrations_resume_to_the_same_bytes(tmp_path: Path, cut: int) -> None:
    """20 successes take several laps over the 12 tasks, so the cut falls into different laps."""
    whole = demonstrate(tmp_path / "d", count=20)
    trees = tmp_path / "d" / "trees.jsonl"
    expected = trees.read_bytes()
    trees.write_bytes(expected[:cut])
    again = demonstrate(tmp_path / "d", resume=True, count=20)
    assert trees.read_bytes() == expected
    assert again.statistics == whole.statistics
    assert again.ledger == whole.ledger
    stamp = (tmp_path / "d" / "manifest.json").read_bytes()
    assert demonstrate(tmp_path / "d", resume=True, count=20) == again
    assert (tmp_path / "d" / "manifest.json").read_bytes() == stamp, "nothing owed, nothing written"
    refused(lambda: demonstrate(tmp_path / "d", resume=True, count=21), names=("demos.count", "20", "21"))


@pytest.mark.parametrize("killed", [True, False])
def test_demonstrations_go_on_in_the_form_that_they_were_begun_in(tmp_path: Path, killed: bool) -> None:
    given = {"count": 10, "policy": "search"}
    demonstrate(tmp_path / "one", **given)
    demonstrate(tmp_path / "many", method="dpepo", copies=2, **given)
    wholes = {name: (tmp_path / name / "trees.jsonl").read_bytes() for name in ("one", "many")}
    if killed:
        for name, whole in wholes.items():
            (tmp_path / name / "manifest.json").unlink()
            (tmp_path / name / "trees.jsonl").write_bytes(whole[:-3])
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for name, method, copies, said in (
        ("one", "dpepo", 2, ("rollout.method", "chain", "dpepo")),
        ("many", "chain", 2, ("rollout.method", "dpepo", "chain")),
        ("many", "dpepo", 3, ("rollout.copies", "2", "3")),
    ):
        other = partial(demonstrate, tmp_path / name, resume=True, method=method, copies=copies, **given)
        refused(other, names=said, remedy="--overwrite")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    demonstrate(tmp_path / "one", resume=True, method="spark", copies=3, **given)
    demonstrate(tmp_path / "many", resume=True, method="dpepo", copies=2, **given)
    assert {name: (tmp_path / name / "trees.jsonl").read_bytes() for name in wholes} == wholes


def test_demonstrations_of_another_panel_are_not_continued(tmp_path: Path) -> None:
    demonstrate(tmp_path / "d", count=20)
    for leftover in ("settings/demos.json", "manifest.json"):
        (tmp_path / "d" / leftover).unlink()
    (tmp_path / "d" / "trees.jsonl").write_bytes(
        (tmp_path / "d" / "trees.jsonl").read_bytes().replace(b'"train/', b'"other/')
    )
    refused(lambda: demonstrate(tmp_path / "d", resume=True, count=30), 3, names="other/", remedy="--overwrite")


def test_a_policy_that_never_succeeds_is_given_up(tmp_path: Path) -> None:
    chosen = toy(tasks=2, options={"length": 14})
    chosen.demos = DemosSettings(policy="random", count=2)
    refused(lambda: demos(chosen, tmp_path / "d", Invocation([]), model=None), 1, "random", remedy="demos.keep")
