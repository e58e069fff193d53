"""A budget ends every method at the same cost, whatever the concurrency and whatever interrupted it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from agentcli.analysis.validate import check
from agentcli.environments.engines.pool import EnginePool
from agentcli.environments.registry import make_world
from agentcli.exploration.actor import Actor
from agentcli.exploration.budget import Allowance, Budget, highest, is_mixed, parse_budget
from agentcli.exploration.registry import make
from agentcli.exploration.settings import rollout_settings
from agentcli.records.files import read_json, read_records
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import (
    EnvironmentSettings,
    EvaluationSettings,
    PolicySettings,
    PromptSettings,
    RolloutSettings,
    Settings,
)
from agentcli.records.types import Episode, Ledger, Outcome, StageRecord, Tree
from agentcli.reports.standing import Progress
from agentcli.stages.backend import LocalBackend
from agentcli.stages.session import Invocation
from fitting import fitting
from growing import grow_all
from refusal import refused
from scripted import ScriptedPolicy, scripted
from staged import evaluate, rollout
from word_trees import grow_word


class Notes(Progress):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def note(self, text: str) -> None:
        self.told.append(text)


def toy(budget: str | None, method: str = "chain", concurrency: int = 4, **options: Any) -> Settings:
    return Settings(
        environment=EnvironmentSettings(name="toy_world:ToyWorld", max_steps=12, options={"tasks": 20, **options}),
        prompt=PromptSettings(style="compact"),
        policy=PolicySettings(kind="random"),
        rollout=fitting(
            method,
            leaves=3,
            roots=2,
            branch="fixed:.3",
            criterion="random",
            concurrency=concurrency,
            budget=budget,
            most_errored=1.0,
        ),
        evaluation=EvaluationSettings(split="test", samples=2, budget=budget),
    )


def roll(settings: Settings, out: Path, resume: bool = False, notes: Notes | None = None) -> StageRecord:
    return rollout(settings, out, Invocation(["agentcli"], resume, progress=notes or Notes()), model=None)


def trees_in(out: Path) -> list[Tree]:
    return list(read_records(out / "trees.jsonl", Tree))


@pytest.mark.parametrize("method", ["chain", "spark", "carl", "treerl"])
def test_every_method_stops_at_its_first_tree_that_reaches_the_cost(tmp_path: Path, method: str) -> None:
    whole = roll(toy(None, method), tmp_path / "whole")
    assert "budget" not in whole.statistics
    cut = roll(toy("steps=100", method), tmp_path / "cut")
    trees, all_trees = trees_in(tmp_path / "cut"), trees_in(tmp_path / "whole")
    assert trees == all_trees[: len(trees)]
    assert sum(tree.ledger.steps for tree in trees[:-1]) < 100 <= sum(tree.ledger.steps for tree in trees)
    assert cut.statistics["budget"] == {
        "unit": "steps",
        "limit": 100,
        "spent": cut.ledger.steps,
        "trees": len(trees),
    }
    assert (cut.counts["trees"], cut.panel_name) == (len(trees), f"train/first {len(trees)}")
    assert len(trees) < 20
    assert {finding.problem for finding in check(tmp_path / "cut", None)} == {None}


@pytest.mark.parametrize("budget", ["steps=150", "leaves=17", "leaves=1", "leaves=18"])
def test_the_same_bytes_at_any_concurrency(tmp_path: Path, budget: str) -> None:
    for concurrency in (1, 7, 32):
        roll(toy(budget, "spark", concurrency), tmp_path / str(concurrency))
    one, seven, all_at_once = ((tmp_path / name / "trees.jsonl").read_bytes() for name in ("1", "7", "32"))
    assert one == seven == all_at_once


@pytest.mark.parametrize("cut", [0, 1, 9000, -3])
def test_a_cut_rollout_resumes_to_the_same_bytes(tmp_path: Path, cut: int) -> None:
    record = roll(toy("steps=150"), tmp_path / "x")
    path = tmp_path / "x" / "trees.jsonl"
    whole = path.read_bytes()
    assert len(whole) > 9000
    path.write_bytes(whole[:cut])
    again = roll(toy("steps=150"), tmp_path / "x", resume=True)
    assert path.read_bytes() == whole
    assert (again.statistics, again.ledger, again.panel) == (record.statistics, record.ledger, record.panel)
    notes = Notes()
    assert roll(toy("steps=150"), tmp_path / "x", resume=True, notes=notes) == again
    assert "nothing is owed" in notes.told[-1]


def test_redone_trees_move_the_cut_to_where_an_undisturbed_rollout_has_it(tmp_path: Path) -> None:
    """Errored trees cost less, so more trees were paid for; once they are redone, the last of them no longer are."""
    fault = {"fault": "raise", "fault_tasks": ["train/0", "train/1"], "fault_action": "go east"}
    broken = roll(toy("steps=150", **fault), tmp_path / "x")
    (tmp_path / "x" / "settings" / "rollout.json").unlink()
    mended = roll(toy("steps=150"), tmp_path / "x", resume=True)
    roll(toy("steps=150"), tmp_path / "undisturbed")
    assert (tmp_path / "x" / "trees.jsonl").read_bytes() == (tmp_path / "undisturbed" / "trees.jsonl").read_bytes()
    assert broken.counts["trees"] > mended.counts["trees"]


def test_a_budget_that_outlasts_the_panel_says_so(tmp_path: Path) -> None:
    notes = Notes()
    record = roll(toy("leaves=1000"), tmp_path / "x", notes=notes)
    assert (record.counts["trees"], record.panel_name) == (20, "train")
    assert any("20 tasks took 60 of 1000 leaves" in told for told in notes.told)
    exactly = Notes()
    roll(toy("leaves=60"), tmp_path / "y", notes=exactly)
    assert not any("outlasts" in told for told in exactly.told)


@pytest.mark.parametrize("concurrency", [1, 3, 32])
def test_nothing_is_grown_beyond_a_budget_that_can_be_foreseen(concurrency: int) -> None:
    """Every tree has three leaves, so six are paid for and six are begun, also where 20 could be at once."""
    begun = begun_trees("leaves=18", concurrency)
    assert begun == [f"train/{number}" for number in range(6)]


@pytest.mark.parametrize("concurrency", [1, 3, 32])
def test_little_is_grown_beyond_the_budget(concurrency: int) -> None:
    """The costs of trees differ; a tree begun in vain is one that the mean cost of the others did not foresee."""
    begun = begun_trees("steps=200", concurrency)
    paid = len(begun_trees("steps=200", 1))
    assert paid <= len(begun) <= paid + 2


def test_responses_shorter_than_they_may_be_let_trees_grow_side_by_side() -> None:
    """A budget of ten trees: once one is known, five more may grow, where the most tokens of a response allowed one."""
    settings = toy("tokens=10000")
    settings.rollout.leaves, settings.environment.max_steps, settings.policy.max_tokens = 4, 20, 500
    tasks = make_world(settings.environment).tasks("train")
    assert highest("tokens", settings) == 40_000
    one = Ledger(leaves=4, steps=50, generated_tokens=1000)
    allowance = Allowance(parse_budget("tokens=10000"), tasks, settings, {tasks[0].id: (one, False)})

    async def begun_together() -> int:
        for number, task in enumerate(tasks[1:]):
            try:
                await asyncio.wait_for(allowance.admits(task), 0.01)
            except TimeoutError:
                return number
        raise AssertionError("the budget stopped nothing")

    # A growing tree may cost 1.25 * 20 tokens * 80 steps: n of them are expected to cost (1,000 + 2,000 n) / (1 + n) each.
    assert asyncio.run(begun_together()) == 5


def begun_trees(budget: str, concurrency: int) -> list[str]:
    """The tasks whose trees were begun, of 20; those that were paid for must come first."""
    settings, grown = toy(budget, concurrency=concurrency), list[str]()
    chain = make("chain")

    async def explore(actor: Actor, settings: RolloutSettings) -> Tree:
        grown.append(actor.task.id)
        return await chain(actor, settings)

    async def work() -> list[str]:
        world = make_world(settings.environment)
        tasks = world.tasks("train")
        allowance = Allowance(parse_budget(budget), tasks, settings)
        async with (
            EnginePool(settings.environment) as pool,
            LocalBackend(pool, keeps=False).policy(settings, world, None) as policy,
        ):
            trees = await grow_all(world, pool, policy, settings, tasks, 0, explore=explore, allowance=allowance)
        return [tree.task.id for tree in trees]

    finished = asyncio.run(work())
    assert finished == grown[: len(finished)]
    return grown


def with_spread(trees: list[Tree]) -> list[bool]:
    """Whether a tree has a success and a leaf that is neither that nor errored."""
    kinds = [{step.outcome for step in tree.steps} for tree in trees]
    return [Outcome.SUCCESS in kind and bool(kind & {Outcome.FAILURE, Outcome.TRUNCATED}) for kind in kinds]


def test_groups_without_spread_are_replaced_and_their_cost_is_counted(tmp_path: Path) -> None:
    """Dynamic sampling: further tasks until there are four groups that teach, with the bytes of any concurrency and of a resume."""
    roll(toy(None), tmp_path / "whole")
    everything = trees_in(tmp_path / "whole")
    record = roll(toy("groups=4"), tmp_path / "cut")
    trees = trees_in(tmp_path / "cut")
    spread = with_spread(trees)
    assert trees == everything[: len(trees)]
    assert sum(spread) == 4 < len(spread)
    assert spread[-1]
    budget = {"unit": "groups", "limit": 4, "spent": 4, "trees": len(trees)}
    assert record.statistics["budget"] == budget
    assert record.ledger is not None
    assert record.ledger.steps == sum(tree.ledger.steps for tree in trees)
    path = tmp_path / "cut" / "trees.jsonl"
    whole = path.read_bytes()
    for concurrency in (1, 32):
        roll(toy("groups=4", concurrency=concurrency), tmp_path / str(concurrency))
        assert (tmp_path / str(concurrency) / "trees.jsonl").read_bytes() == whole
    path.write_bytes(whole[: len(whole) // 2])
    again = roll(toy("groups=4"), tmp_path / "cut", resume=True)
    assert path.read_bytes() == whole
    assert (again.statistics, again.ledger) == (record.statistics, record.ledger)


def test_an_iteration_looks_for_groups_among_its_own_tasks(tmp_path: Path) -> None:
    settings = toy("groups=20")
    settings.rollout.iteration, settings.rollout.tasks_per_step = 1, 6
    notes = Notes()
    record = roll(settings, tmp_path / "x", notes=notes)
    spread = sum(with_spread(trees_in(tmp_path / "x")))
    assert record.statistics["budget"] == {"unit": "groups", "limit": 20, "spent": spread, "trees": 6}
    assert any(f"6 tasks took {spread} of 20 groups" in note for note in notes.told)


def test_an_errored_leaf_is_no_spread(tmp_path: Path) -> None:
    roll(toy(None), tmp_path / "x")
    trees = trees_in(tmp_path / "x")
    assert [is_mixed(tree) for tree in trees] == with_spread(trees)
    tree = next(tree for tree in trees if is_mixed(tree))
    for step in tree.steps:
        if step.outcome not in (None, Outcome.SUCCESS):
            step.outcome = Outcome.ERRORED
    assert not is_mixed(tree)


def test_an_evaluation_ends_at_its_budget(tmp_path: Path) -> None:
    def run(name: str, budget: str | None, **flags: bool) -> dict[str, Any]:
        return evaluate(toy(budget), tmp_path / name, Invocation([], **flags)).values()

    run("whole", None)
    summary = run("cut", "leaves=9")
    rows, everything = (
        list(read_records(tmp_path / name / "evaluation/test.jsonl", Episode)) for name in ("cut", "whole")
    )
    assert rows == everything[:10]
    assert summary["budget"] == {"unit": "leaves", "limit": 9, "spent": 10, "trees": 5}
    assert (summary["panel"]["name"], summary["panel"]["tasks"], summary["tasks"]) == ("test/first 5", 5, 5)
    path = tmp_path / "cut/evaluation/test.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:700])
    assert run("cut", "leaves=9", resume=True) == summary
    assert path.read_bytes() == whole
    stamp = (tmp_path / "cut/manifest.json").read_bytes()
    assert run("cut", "leaves=9", resume=True) == summary
    assert (tmp_path / "cut/manifest.json").read_bytes() == stamp, "nothing owed, nothing written"
    assert all(finding.problem is None for finding in check(tmp_path / "cut", None))


def test_a_later_command_does_not_inherit_it(tmp_path: Path) -> None:
    from agentcli.stages.resolve import inherited

    roll(toy("leaves=9"), tmp_path / "x")
    settings = inherited(tmp_path / "x")
    assert settings is not None
    assert settings["rollout"]["leaves"] == 3
    assert "budget" not in settings["rollout"]
    assert "budget" not in settings["evaluation"]


def test_another_budget_is_another_rollout(tmp_path: Path) -> None:
    roll(toy("leaves=9"), tmp_path / "x")
    refused(
        lambda: roll(toy("leaves=12"), tmp_path / "x", resume=True), names=("rollout.budget", "leaves=9", "leaves=12")
    )
    assert read_json(RunDirectory(tmp_path / "x").manifest_path, dict)["stages"]["rollout"]["counts"]["trees"] == 3


@pytest.mark.parametrize(("method", "leaves"), [("chain", 2), ("spark", 2), ("criticality", 1), ("criticality", 2)])
def test_a_tree_costs_what_is_foreseen_where_nothing_ends_it(method: str, leaves: int) -> None:
    rollout = fitting(method, leaves=leaves, roots=leaves, draws=3)
    chosen = Settings(environment=EnvironmentSettings(max_steps=4), rollout=rollout)
    ledger = grow_word(method, scripted({}), leaves=leaves, roots=leaves, draws=3).ledger
    assert (highest("leaves", chosen), highest("steps", chosen)) == (ledger.leaves, ledger.steps)


@pytest.mark.parametrize("depth", [None, 1, 2])
@pytest.mark.parametrize("vote", ["action", "outcome"])
def test_votes_cost_what_is_foreseen_where_nothing_ends_them(vote: str, depth: int | None) -> None:
    chosen = Settings(
        environment=EnvironmentSettings(max_steps=4),
        policy=PolicySettings(max_tokens=3),
        rollout=rollout_settings("test-time-branch", leaves=2, branching=3, vote=vote, depth=depth),
    )
    endless = ScriptedPolicy(lambda history, times: ("explore", "a"), lambda history, times: 0.25)
    ledger = grow_word("test-time-branch", endless, leaves=2, branching=3, vote=vote, depth=depth).ledger
    assert (highest("leaves", chosen), highest("steps", chosen)) == (ledger.leaves, ledger.steps)
    assert highest("tokens", chosen) >= ledger.generated_tokens


def test_units() -> None:
    ledger = Ledger(generated_tokens=7, steps=5, leaves=3, prompt_tokens=99)
    units = {"tokens=9": 7, "steps=9": 5, "leaves=9": 3, "groups=9": 1}
    assert {text: budget.cost(ledger, True) for text in units if (budget := parse_budget(text))} == units
    assert Budget("groups", 9).cost(ledger, False) == 0
    assert parse_budget("tokens=20000") == Budget("tokens", 20000)
    assert parse_budget(None) is None
    assert json.loads(msgspec.json.encode(toy("tokens=1")))["rollout"]["budget"] == "tokens=1"


@pytest.mark.parametrize(
    "text", ["", "groups", "tokens", "tokens=", "tokens=0", "seconds=5", "steps=-1", "leaves=1.5", "leaves=x"]
)
def test_a_budget_of_nothing_known_is_refused_before_anything_is_written(tmp_path: Path, text: str) -> None:
    refused(lambda: roll(toy(text), tmp_path / "x"), names=text, remedy=("tokens=N", "steps=N", "leaves=N"))
    refused(
        lambda: evaluate(toy(text), tmp_path / "x", Invocation([]), model=None),
        names=text,
        remedy=("tokens=N", "steps=N", "leaves=N"),
    )
    assert not (tmp_path / "x").exists()
