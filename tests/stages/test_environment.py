"""env check: the expert wins and replays, or the row says what went wrong."""

import re
from pathlib import Path

import pytest
from agentcli.reports.standing import Progress
from agentcli.stages.environment import check, results
from grown_runs import toy
from refusal import refused


def test_the_expert_wins_and_replays() -> None:
    rows = check(toy(tasks=12), 4, Progress())
    assert [row.task for row in rows] == ["train/0", "train/3", "train/6", "train/9"]
    assert all(row.problem is None and row.reward == 1 and row.steps > 0 for row in rows)
    for row in rows:
        assert None not in (row.open_ms, row.step_ms, row.fork_ms)
        assert row.memory_mb > 1


@pytest.mark.parametrize(("snapshots", "means"), [(True, "snapshots"), (False, "replaying")])
def test_what_passed_says_how_states_are_restored(snapshots: bool, means: str) -> None:
    rows = check(toy(tasks=2, options={"snapshots": snapshots}), 2, Progress())
    assert [row["result"].split(", ") for row in results(rows)] == [["replay exact", f"forks exact (by {means})"]] * 2


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("drift", r"replay differs at step 1: .* became .* Again\."),
        ("raise", "the lamp broke"),
        ("astray", "restore|fork"),
    ],
)
def test_what_goes_wrong_is_told(fault: str, problem: str) -> None:
    options = {"fault": fault, "fault_tasks": ["train/0"], "fault_action": "go east"}
    rows = check(toy(tasks=2, options=options), 2, Progress())
    assert rows[1].problem is None
    assert re.search(problem, rows[0].problem)


@pytest.mark.parametrize(
    ("world", "problem"),
    [
        ("ForgetfulWorld", "after a fork at step"),
        ("DizzyWorld", "'look' differs"),
        ("FallingWorld", "KeyError: 'room'"),
        ("HastyWorld", "replay differs at step 1: end None became 'failure'"),
        ("TiringWorld", "differs: end 'failure' became None"),
        ("ForgivingWorld", "after 'zqx vwk': task"),
        ("SilentWorld", "step() returned None"),
        ("LostWorld", "restore() returned None"),
    ],
)
def test_a_fork_that_goes_astray_is_told(world: str, problem: str) -> None:
    """The plays of the first three replay exactly, and what the first two restore looks right; the two after them end early."""
    settings = toy(tasks=4)
    settings.environment.name = f"forgetful_world:{world}"
    problems = [row.problem for row in check(settings, 4, Progress())]
    assert all(told is not None and problem in told for told in problems)


def test_a_world_may_end_at_nonsense() -> None:
    settings = toy(tasks=4)
    settings.environment.name = "forgetful_world:StrictWorld"
    assert [row.problem for row in check(settings, 4, Progress())] == [None] * 4


def test_a_fault_names_the_line_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "falling.py"
    file.write_text("""from toy_world import ToyEngine, ToyWorld

class World(ToyWorld):
    def engine(self): return Falls(self)

class Falls(ToyEngine):
    def step(self, action):
        return super().step([][3])
""")
    settings = toy(tasks=1)
    settings.environment.name = f"{file}:World"
    (row,) = check(settings, 1, Progress())
    assert row.problem is not None
    assert f"{file}:8: IndexError" in row.problem


@pytest.mark.parametrize(
    ("world", "split", "names"),
    [
        ("EmptyWorld", "test", ("--split test", "KeyError: 'test'")),
        ("EmptyWorld", "tset", ("--split tset", "did you mean test?")),
        ("UnevaluatedWorld", "train", ("card.evaluation_split tset", "did you mean test?")),
        ("EnginelessWorld", "train", ("EnginelessWorld", "no engine")),
    ],
)
def test_a_world_that_lacks_something_says_what(world: str, split: str, names: tuple[str, ...]) -> None:
    settings = toy()
    settings.environment.name = f"forgetful_world:{world}"
    settings.environment.split = split
    refused(lambda: check(settings, 4, Progress()), names=names)
