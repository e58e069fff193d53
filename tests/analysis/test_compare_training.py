"""Whole loops side by side: sums that are those of the files, what is unfinished, what is no loop, and what is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agentcli.analysis.compare_training import read_iteration
from agentcli.records.files import read_json, read_records
from agentcli.records.runs import loop_folders
from agentcli.records.types import Credit, Ledger, Manifest, Outcome, Tree
from agentcli.reports.show.runs import iterations
from command_line import succeeded
from compared_loops import made
from compared_runs import compared, edit, refused
from refusal import refused as refused_call

NOTE = "its loop has not ended; iterations counted: 2"


@pytest.fixture(autouse=True)
def loops(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of the loops in the folder to be in."""
    shutil.copytree(made(tmp_path_factory.getbasetemp()), tmp_path / "here", symlinks=True)
    monkeypatch.chdir(tmp_path / "here")


def forget(path: str, stage: str) -> None:
    edit(path, lambda manifest: manifest["stages"].pop(stage))


def stages(loop: str) -> list[dict[str, Any]]:
    return [json.loads((folder / "manifest.json").read_bytes())["stages"] for folder in loop_folders(Path(loop))]


def test_the_sums_are_those_of_trees_credit_and_manifests() -> None:
    result = compared("x", "y")["training"]
    for name, epochs in (("x", 1), ("y", 2)):
        folders, told = loop_folders(Path(name)), result[name]
        trees = [tree for folder in folders for tree in read_records(folder / "trees.jsonl", Tree)]
        outcomes = [step.outcome for tree in trees for step in tree.steps if step.outcome]
        assert (told["iterations"], told["unfinished"], told["ended"]) == (3, 0, True)
        assert (told["trees"], told["leaves"], told["errored"]) == (9, len(outcomes), 0)
        ledger = sum((tree.ledger for tree in trees), Ledger())
        assert told["ledger"] == {field: getattr(ledger, field) for field in Ledger.__struct_fields__}
        assert told["tokens_per_leaf"] == ledger.generated_tokens / len(outcomes)
        rows = [
            row
            for folder in folders
            for credit in read_records(next((folder / "credit").iterdir()), Credit)
            for row in credit.steps
        ]
        assert told["responses"]["given"] == len(rows)
        assert told["responses"]["updated"] == sum(bool(row.advantage) for row in rows) > 0
        trained = [entry["train"] for entry in stages(name)]
        assert sum(entry["statistics"]["updates_skipped"] for entry in trained) > 0, (
            "whose rows have no gradient either"
        )
        assert all(entry["settings"]["train"]["epochs"] == epochs for entry in trained)
        assert told["updates"] == sum(entry["statistics"]["updates"] for entry in trained)
        assert told["seconds"]["train"] == pytest.approx(sum(entry["seconds"]["wall"] for entry in trained))
        rates = [sum(s == Outcome.SUCCESS for s in of) / len(of) for of in map(outcomes_of, folders)]
        assert told["success_by_part"] == pytest.approx(rates)
    assert (result["x"]["method"], result["x"]["credit"]) == ("chain", "grpo")
    assert (result["y"]["method"], result["y"]["credit"]) == ("spark", "carl")
    assert result["y"]["ledger"]["forks"] > 0


def outcomes_of(folder: Path) -> list[Outcome]:
    return [step.outcome for tree in read_records(folder / "trees.jsonl", Tree) for step in tree.steps if step.outcome]


def test_tables_and_json_on_stdout() -> None:
    answer = succeeded("compare", "x", "y")
    assert answer.stderr == ""
    for part in ("what training cost, against the first", "generated tokens", "responses updated", "spark", "carl"):
        assert part in answer.stdout
    assert "trees, against the first" not in answer.stdout
    assert "unfinished" not in answer.stdout
    assert json.loads(succeeded("compare", "x", "y", "--json").stdout)["training"] == compared("x", "y")["training"]


def test_a_killed_iteration_is_told_and_not_summed() -> None:
    forget("y/manifest.json", "run")
    forget("y/iteration_002/manifest.json", "train")
    answer = succeeded("compare", "x", "y")
    assert answer.stderr == (
        f"y: {NOTE}, iteration_002 left out; it goes on with the command that began it and --resume\n"
    )
    assert "2 (unfinished)" in succeeded("compare", "x", "y", "-q").stdout, "also where notes are not wanted"
    told = compared("x", "y")["training"]["y"]
    assert (told["iterations"], told["unfinished"], told["ended"], told["trees"]) == (2, 1, False, 6)
    assert len(told["success_by_part"]) == 2


def test_a_loop_between_two_iterations_has_not_ended() -> None:
    forget("y/manifest.json", "run")
    shutil.rmtree("y/iteration_002")
    assert f"y: {NOTE}; it goes on" in succeeded("compare", "x", "y").stderr
    told = compared("x", "y")["training"]["y"]
    assert (told["iterations"], told["unfinished"], told["ended"]) == (2, 0, False)


def test_an_iteration_that_is_gone_is_missed() -> None:
    shutil.rmtree("y/iteration_001")
    assert succeeded("compare", "x", "y").stderr == "y: iterations counted: 2, not the 3 of manifest.json\n"
    told = compared("x", "y")["training"]["y"]
    assert (told["iterations"], told["unfinished"], told["ended"]) == (2, 1, True)
    assert "2 (unfinished)" in succeeded("compare", "x", "y").stdout


def test_a_loop_that_has_only_begun_is_left_out_or_refused() -> None:
    forget("y/manifest.json", "run")
    for number in range(3):
        Path(f"y/iteration_00{number}/manifest.json").unlink()
    line = refused("x", "y", code=3)
    assert all(part in line for part in ("training cost is left", " out: y: ", "no iteration"))
    for name in ("x", "y"):
        succeeded("eval", name, "-c", "toy.yaml", "--model", "sft/checkpoint")
    answer = succeeded("compare", "x", "y")
    assert answer.stderr == "what training cost is left out: y: no iteration of its loop has ended yet\n"
    assert "training" not in compared("x", "y")


def test_evaluations_and_costs_of_loops_stand_together_unless_a_label_is_asked_for() -> None:
    for name in ("x", "y"):
        succeeded("eval", name, "-c", "toy.yaml")
    assert {"evaluations", "training"} <= compared("x", "y").keys()
    assert "training" not in compared("x", "y", labels=("test",))
    assert "training" not in compared("x/evaluation/test.json", "y/evaluation/test.json")
    edit("y/iteration_000/manifest.json", other("split", "test"))
    answer = succeeded("compare", "x", "y")
    for part in ("training cost is left", " out: y: ", "another environment.split (test)"):
        assert part in answer.stderr
    assert "what training cost" not in answer.stdout


def other(field: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """That the tasks of an iteration were others."""

    def change(manifest: dict[str, Any]) -> None:
        manifest["stages"]["rollout"]["settings"]["environment"][field] = value

    return change


@pytest.mark.parametrize(
    ("field", "value"), [("name", "sokoban"), ("split", "test"), ("panel", "p.json"), ("where", {"kind": ["open"]})]
)
def test_loops_over_other_tasks_are_refused(field: str, value: Any) -> None:
    edit("y/iteration_000/manifest.json", other(field, value))
    refused_call(lambda: compared("x", "y"), names=("y: ", f"environment.{field}", "x"))


def test_one_rollout_beside_loops() -> None:
    answer = succeeded("compare", "x", "plain")
    assert answer.stderr == "plain is one rollout beside loops; compare what a leaf cost\n"
    told = compared("x", "plain")["training"]["plain"]
    assert (told["iterations"], told["unfinished"], told["ended"], told["credit"]) == (None, None, None, None)
    assert (told["trees"], told["responses"], told["updates"], told["seconds"]["train"]) == (8, None, None, None)
    succeeded("assign-credit", "plain", "--method", "grpo")
    succeeded("train", "plain", "-c", "toy.yaml")
    told = compared("x", "plain")["training"]["plain"]
    assert (told["credit"], told["responses"]["given"]) == ("grpo", told["ledger"]["steps"])


def test_an_iteration_is_a_rollout_too_and_two_of_them_are_compared_as_trees() -> None:
    result = compared("x", "x/iteration_001")["training"]
    assert result["x"]["ledger"]["steps"] > result["x/iteration_001"]["ledger"]["steps"] > 0
    shutil.copytree("x/iteration_001", "z")
    assert {"trees"} == {"trees", "training"} & compared("x/iteration_001", "z").keys()


def test_what_holds_no_rollout_is_named() -> None:
    line = refused("x", "sft", code=3)
    for part in ("x and sft have neither", "training cost is left", " out: sft"):
        assert part in line
    assert "sft holds no rollout" in line


def test_pairs_are_no_responses() -> None:
    """As dpo leaves it in the manifest."""
    for name in ("rows", "rows_unassigned", "rows_inherited", "rows_not_critical", "rows_skipped"):
        edit(
            "y/iteration_001/manifest.json",
            lambda manifest, name=name: manifest["stages"]["train"]["statistics"].pop(name),
        )
    told = compared("x", "y")["training"]["y"]
    assert told["responses"] is None, "of two of three iterations it would be no sum"
    assert told["updates"] > 0
    (row,) = [line for line in succeeded("compare", "x", "y").stdout.splitlines() if "responses updated" in line]
    assert row.rstrip("│ ").endswith("-")


def test_what_update_critical_leaves_out_was_given() -> None:
    before = compared("x", "y")["training"]["y"]["responses"]
    told = {"rows_not_critical": 5}
    edit("y/iteration_001/manifest.json", lambda manifest: manifest["stages"]["train"]["statistics"].update(told))
    after = compared("x", "y")["training"]["y"]["responses"]
    assert (after["given"], after["updated"]) == (before["given"] + 5, before["updated"])


def test_seconds_that_an_iteration_does_not_know_are_not_known_of_the_loop() -> None:
    edit("y/iteration_001/manifest.json", lambda manifest: manifest["stages"]["rollout"]["seconds"].pop("policy"))
    seconds = compared("x", "y")["training"]["y"]["seconds"]
    assert seconds["policy"] is None
    assert seconds["environment"] > 0


def test_iterations_are_in_the_order_of_their_numbers() -> None:
    for number in (999, 1000):
        shutil.copytree("x/iteration_000", f"x/iteration_{number:03d}")
    Path("x/iteration_old").mkdir()
    Path("x/iteration_003").write_bytes(b"")
    assert [path.name[10:] for path in loop_folders(Path("x"))] == ["000", "001", "002", "999", "1000"]
    assert [Path(row.folder) for row in iterations(Path("x"))] == loop_folders(Path("x"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data[:900], ("manifest.json: ",)),
        (lambda data: data.replace(b'"panel_name"', b'"pnl"', 1), ("unknown field `pnl`",)),
        (
            lambda data: data.replace(b'"trees": 3', b'"treees": 3'),
            ("`trees`", "$.stages.rollout.counts"),
        ),
        (
            lambda data: data.replace(b'"rows_unassigned": ', b'"rows_unassigned": -1'),
            ("rows_unassigned",),
        ),
    ],
)
def test_a_damaged_file_is_named_in_one_line(change: Callable[[bytes], bytes], said: tuple[str, ...]) -> None:
    file = loop_folders(Path("y"))[-1] / "manifest.json"
    before = file.read_bytes()
    file.write_bytes(change(before))
    assert file.read_bytes() != before
    line = refused("x", "y", code=3)
    for part in (str(file), *said):
        assert part in line


def test_an_iteration_without_a_rollout_is_refused() -> None:
    assert read_json(Path("sft/manifest.json"), Manifest).stages.keys() == {"sft"}
    refused_call(lambda: read_iteration(Path("sft")), 3, "sft/manifest.json")
