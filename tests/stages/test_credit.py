"""assign-credit as a stage: credit beside its trees, graphs when asked for, and damaged trees that cost nothing."""

from pathlib import Path

import pytest
from agentcli.records.files import read_records
from agentcli.records.runs import RunDirectory
from agentcli.records.types import Credit, StageRecord, Tree
from agentcli.stages.session import Invocation
from grown_runs import roll, toy
from refusal import refused
from staged import assign_credit


@pytest.fixture
def run(tmp_path: Path) -> Path:
    roll(toy(tasks=5), tmp_path / "run")
    return tmp_path / "run"


def assign(run: Path, method: str = "grpo", graph: bool = False, **flags: bool) -> StageRecord:
    settings = toy()
    settings.credit = {"method": method}
    return assign_credit(settings, run, Invocation(["agentcli"], **flags), graph=graph)


def test_one_line_of_credit_per_tree_in_their_order(run: Path) -> None:
    assign(run)
    trees = list(read_records(run / "trees.jsonl", Tree))
    credit = list(read_records(run / "credit/grpo.jsonl", Credit))
    assert [tree.task.id for tree in trees] == [given.task for given in credit]
    record = RunDirectory(run).finished("credit/grpo")
    assert record is not None
    assert record.statistics["rows"] == sum(len(given.steps) for given in credit)
    assert list(record.inputs) == [str(run / "trees.jsonl")]
    assert record.settings["credit"]["invalid_penalty"] == 0.1


def test_methods_lie_beside_one_another_and_are_not_replaced_unasked(run: Path) -> None:
    assign(run)
    assign(run, "rewardflow", graph=True)
    assert sorted(path.name for path in (run / "credit").iterdir()) == ["grpo.jsonl", "rewardflow.jsonl"]
    assert len(list((run / "graphs").glob("*.graphml"))) == 5
    refused(lambda: assign(run), names="grpo.jsonl", remedy=("--resume", "--overwrite"))
    refused(lambda: assign(run, "spark", graph=True), names="graphs", remedy="--overwrite")
    assert not (run / "credit/spark.jsonl").exists()


def test_credit_that_is_there_is_not_owed_and_credit_that_is_missing_is(run: Path) -> None:
    record = assign(run)
    whole = (run / "credit/grpo.jsonl").read_bytes()
    assert assign(run, resume=True) == record
    (run / "credit/grpo.jsonl").unlink()
    assign(run, resume=True)
    assert (run / "credit/grpo.jsonl").read_bytes() == whole
    (run / "trees.jsonl").write_bytes(b"".join((run / "trees.jsonl").read_bytes().splitlines(keepends=True)[:4]))
    refused(lambda: assign(run, resume=True), names="trees.jsonl")


def test_graphs_of_another_method_are_owed(run: Path) -> None:
    assign(run, "grpo", graph=True)
    graphs = sorted((run / "graphs").iterdir())
    of_grpo = [file.read_bytes() for file in graphs]
    assign(run, "rewardflow", graph=True, overwrite=True)
    assert [file.read_bytes() for file in graphs] != of_grpo
    assign(run, "grpo", graph=True, resume=True)
    assert [file.read_bytes() for file in graphs] == of_grpo


@pytest.mark.parametrize("kept", [0, 2])
def test_credit_that_lost_its_end_is_owed(run: Path, kept: int) -> None:
    assign(run)
    file = run / "credit/grpo.jsonl"
    whole = file.read_bytes()
    file.write_bytes(b"".join(whole.splitlines(keepends=True)[:kept]))
    assign(run, resume=True)
    assert file.read_bytes() == whole


def test_a_file_without_trees_gets_no_credit(run: Path) -> None:
    (run / "trees.jsonl").write_bytes(b"")
    refused(lambda: assign(run), 3, names="trees.jsonl", remedy="agentcli rollout")
    assert not (run / "credit").exists()


def test_damaged_trees_leave_the_former_credit(run: Path) -> None:
    assign(run, graph=True)
    lines = (run / "trees.jsonl").read_bytes().splitlines(keepends=True)
    (run / "trees.jsonl").write_bytes(b"".join([*lines[:2], lines[2][:300] + b"\n", *lines[3:]]))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    refused(lambda: assign(run, graph=True, overwrite=True), 3, names="trees.jsonl:3: ")
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
