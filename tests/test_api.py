"""`from agentcli import ...`: a run as objects and data frames. The examples of the docstrings are run, too."""

import doctest
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import agentcli
import msgspec
import pytest
from agentcli import api, assign, read_credit, read_episodes, read_trees, to_frame, trajectories
from agentcli.credit.survey import survey_of
from agentcli.credit.switches import Switches
from agentcli.records.step_rows import StepRow
from agentcli.records.types import Credit, Episode, StepCredit, Tree
from grown_runs import grown, roll, toy
from refusal import refused
from staged import assign_credit, evaluate

__all__ = ["grown"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """runs/x of two trees, with the credit of two methods and an evaluation."""
    folder = tmp_path_factory.mktemp("api")
    run = folder / "runs/x"
    settings = toy("chain", tasks=2)
    roll(settings, run)
    for method in ("grpo", "rewardflow"):
        assign_credit(msgspec.structs.replace(settings, credit={"method": method}), run)
    label = msgspec.structs.replace(settings.evaluation, label="greedy")
    evaluate(msgspec.structs.replace(settings, evaluation=label), run)
    return folder


@pytest.fixture(autouse=True)
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def test_the_examples_of_the_docstrings_are_true() -> None:
    result = doctest.testmod(api, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert (result.failed, result.attempted > 8) == (0, True)


def test_importing_the_package_loads_none_of_it() -> None:
    code = "import sys, agentcli; print(*(name for name in sys.modules if name.startswith(('agentcli', 'msgspec'))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["agentcli"]


def test_every_name_is_listed_and_there() -> None:
    for name in agentcli.__all__:
        assert name in dir(agentcli)
        assert getattr(agentcli, name)
    assert not hasattr(agentcli, "read_tree")


def test_a_run_or_its_file_gives_the_same_trees() -> None:
    whole = list(read_trees("runs/x"))
    assert whole == list(read_trees(Path("runs/x/trees.jsonl")))
    assert [tree.task.id for tree in whole] == [credit.task for credit in read_credit("runs/x", "grpo")]
    assert list(read_credit("runs/x", "grpo")) == list(read_credit("runs/x/credit/grpo.jsonl"))
    kept = list(read_trees("runs/x", evaluation="greedy"))
    assert len(kept) == len(list(read_episodes("runs/x", "greedy")))


def test_credit_in_memory_is_the_credit_of_the_command() -> None:
    for method in ("grpo", "rewardflow"):
        assigned = [credited.credit for credited in assign(read_trees("runs/x"), method)]
        assert assigned == list(read_credit("runs/x", method))


def test_a_frame_of_trees_has_every_step_once_and_one_of_trajectories_whole_paths(grown: Path) -> None:
    trees = list(read_trees(grown))
    steps = to_frame(trees)
    assert list(steps.columns) == list(StepRow.__struct_fields__)
    assert len(steps) == sum(len(tree.steps) for tree in trees)
    paths = [path for tree in trees for path in trajectories(tree)]
    whole = to_frame(paths)
    assert len(whole) == sum(len(path.steps) for path in paths) > len(steps)
    ends = whole.groupby(["tree", "trajectory"]).outcome.last()
    assert list(ends) == [path.outcome for path in paths]
    assert whole.groupby(["tree", "trajectory"]).depth.max().tolist() == [len(path.steps) - 1 for path in paths]
    assert (steps.dtypes["parent"], steps.dtypes["advantage"]) == ("Int64", "float64")


def test_a_frame_of_credited_trees_has_the_advantages_that_the_file_has() -> None:
    credited = to_frame(assign(read_trees("runs/x"), "rewardflow"))
    rows = to_frame(read_credit("runs/x", "rewardflow"))
    assert {"tree", "task", "method", "step", "advantage", "masked", "weight"} < set(rows.columns)
    wanted = rows.groupby(["tree", "step"]).advantage.mean()
    assert credited.set_index(["tree", "step"]).advantage.to_dict() == wanted.to_dict()


def test_a_frame_of_episodes_has_their_fields() -> None:
    frame = to_frame(read_episodes("runs/x", "greedy"))
    assert set(frame.columns) == set(Episode.__struct_fields__) - {"schema_version", "ledger"}
    assert len(to_frame(next(read_episodes("runs/x", "greedy")))) == 1


class GainSwitches(Switches, kw_only=True):
    scale: float = 1.0


def gain(tree: Tree, settings: GainSwitches) -> Credit:
    """By how much a step changes the share of success below it."""
    survey = survey_of(tree, settings)
    rows = []
    for step, parent in enumerate(survey.parents):
        advantage = settings.scale * (survey.rewards[step] - survey.rewards[parent])
        rows.append(StepCredit(step=step, advantage=advantage))
    return Credit(task=tree.task.id, method="gain", steps=rows)


def test_a_method_of_ones_own_is_a_function(grown: Path) -> None:
    once = to_frame(assign(read_trees(grown), gain)).advantage
    twice = to_frame(assign(read_trees(grown), gain, scale=2)).advantage
    assert once.any()
    assert (twice == 2 * once).all()


@pytest.mark.parametrize(
    ("attempt", "code", "names", "remedy"),
    [
        (lambda: read_trees("nowhere"), 3, "nowhere", "agentcli rollout"),
        (lambda: read_trees("runs/x/trees.jsonl", evaluation="L0"), 2, "trees.jsonl", "run"),
        (lambda: read_credit("runs/x"), 2, ("grpo", "rewardflow"), "--credit"),
        (lambda: read_credit("runs/x", "carl"), 3, "carl.jsonl", "assign-credit"),
        (lambda: read_episodes("runs/x", "L0"), 3, "L0.jsonl", "agentcli eval runs/x --label L0"),
        (lambda: assign([], "rewardflo"), 2, "rewardflo", "rewardflow"),
        (lambda: assign([], "grpo", normalize="none"), 2, "normalize", "normalise"),
        (lambda: assign([], gain, scale="much"), 2, "scale", ""),
        (lambda: assign([], print), 2, "print", "settings"),
        (lambda: to_frame(3), 2, "int", "trees"),
        (lambda: to_frame(["runs/x"]), 2, "str", "trees"),
    ],
)
def test_what_cannot_be_is_one_line(attempt: Callable[[], object], code: int, names: str, remedy: str) -> None:
    refused(attempt, code, names=names, remedy=remedy)


def test_a_tree_that_is_none_is_refused_before_it_gets_credit() -> None:
    tree = next(read_trees("runs/x"))
    tree.steps[0].parent = 7
    refused(lambda: list(assign(tree, "grpo")), 3, names=("tree 1", "steps[0].parent"))


def test_without_pandas_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    refused(lambda: to_frame([]), 4, names="pandas", remedy="pip install")


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    shutil.copy("runs/x/trees.jsonl", tmp_path)
    with open(tmp_path / "trees.jsonl", "a", encoding="utf-8") as file:
        file.write("{}\n")
    trees = read_trees(tmp_path)
    assert next(trees).task.world == "toy"
    refused(lambda: list(trees), 3, names="trees.jsonl:3")
