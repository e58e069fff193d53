"""Runs side by side: what is read from real run directories, what is refused, and what a user sees."""

import itertools
import json
import shutil
from functools import partial
from pathlib import Path

import msgspec
import pytest
from agentcli.analysis.compare import unlike_play
from agentcli.analysis.validate import check
from agentcli.evaluation.record import EvaluationSummary
from agentcli.evaluation.statistics import mcnemar_exact
from agentcli.records.files import RecordWriter, read_json, read_records
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import DemosSettings
from agentcli.records.types import Episode, Outcome, StopReason, Tree, Validity
from agentcli.stages.plan import with_changes
from agentcli.stages.session import Invocation
from command_line import agentcli, succeeded
from compared_runs import compared, refused, toy
from older_runs import without_checksums
from refusal import refused as refused_call
from staged import branch, demos, evaluate, pass_at_k, rollout


def successes(run: Path, label: str = "test") -> list[bool]:
    rows = read_records(run / "evaluation" / f"{label}.jsonl", Episode)
    return [row.outcome is Outcome.SUCCESS for row in rows]


def test_evaluations_and_trees_of_two_runs(runs: tuple[Path, Path]) -> None:
    result = compared(*runs)
    first, second = (successes(run) for run in runs)
    row = result["evaluations"]["test"]["b"]
    assert row["against"]["success"]["difference"] == pytest.approx((sum(second) - sum(first)) / 12)
    assert row["against"]["mcnemar"] == mcnemar_exact(first, second)
    assert set(row["kinds"]) == {"open", "locked"}
    for run in runs:
        trees = list(read_records(run / "trees.jsonl", Tree))
        told = result["trees"][str(run)]
        leaves = [step.outcome for tree in trees for step in tree.steps if step.outcome]
        assert told["tasks"] == 12
        assert told["success"]["rate"] == pytest.approx(leaves.count(Outcome.SUCCESS) / len(leaves))
        assert told["ledger"]["steps"] == sum(tree.ledger.steps for tree in trees)
        assert told["ledger"]["forks"] == sum(tree.ledger.forks for tree in trees)
        assert (told["malformed"], told["cut"]) == (0.0, None), "no model was asked"
        assert {"policy", "environment"} <= set(told["seconds"])
        assert sum(told["forks_by_depth"]) == pytest.approx(float(told["ledger"]["forks"] > 0))
    assert result["trees"]["b"]["ledger"]["forks"] > 0
    assert "wilcoxon" not in result, "one panel is no sample of benchmarks"


def test_several_panels_are_benchmarks(runs: tuple[Path, Path]) -> None:
    for run, kind in zip(runs, ("random", "search"), strict=True):
        evaluate(toy(kind, evaluation={"split": "train"}), run)
        evaluate(toy(kind, evaluation={"split": "train", "label": "again"}), run)
    result = compared(*runs)
    assert list(result["evaluations"]) == ["again", "test", "train"]
    assert result["wilcoxon"]["b"] == {"benchmarks": 2, "p": 0.5}, "the same panel twice is one benchmark"
    assert result["benchmarks"] == ["again", "test"]
    few = toy(evaluation={"split": "train", "label": "few", "tasks": 5})
    for run in runs:
        evaluate(few, run)
    assert compared(*runs)["benchmarks"] == ["again", "test"], "nor are the first tasks of a panel another one"
    reversed_ = compared(*runs, labels=("test", "few", "again"))
    assert (list(reversed_["evaluations"]), reversed_["benchmarks"]) == (["test", "few", "again"], ["test", "few"])
    assert "trees" not in compared(*runs, labels=("test",))


def test_a_panel_that_is_left_out_of_the_test_is_named(runs: tuple[Path, Path]) -> None:
    for run in runs:
        for label in ("b10", "b2"):
            evaluate(toy(evaluation={"split": "train", "label": label}), run)
    answer = agentcli("compare", "a", "b")
    assert answer.stderr == "left out of the Wilcoxon test over b2, test: b10 (it shares tasks with b2)\n"
    answer = agentcli("compare", "a", "b", "--label", "test", "--label", "b10", "--label", "b2")
    assert answer.stderr == "left out of the Wilcoxon test over test, b10: b2 (it shares tasks with b10)\n"
    told = agentcli("compare", "a", "b", "--label", "b10", "--label", "b2")
    assert (told.stderr, "Wilcoxon" in told.stdout) == ("", False), "of one panel there is no test to be left out of"


def test_labels_are_in_natural_order_or_as_they_were_asked_for(runs: tuple[Path, Path]) -> None:
    for label in ("b1", "b10", "b2", "b02", "B3", "b2-x"):
        for run, suffix in itertools.product(runs, (".json", ".jsonl")):
            shutil.copy(run / f"evaluation/test{suffix}", run / f"evaluation/{label}{suffix}")
    expected = ["B3", "b1", "b02", "b2", "b2-x", "b10", "test"]
    assert list(compared(*runs)["evaluations"]) == expected
    asked = ("b10", "b2", "b1", "b2")
    assert list(compared(*runs, labels=asked)["evaluations"]) == ["b10", "b2", "b1"]
    for label in expected:
        Path(f"b/evaluation/{label}.json").unlink()
    note = agentcli("compare", "a", "b").stderr
    assert "left out: B3, b1, b02, b2, b2-x and 2 more\n" in note


def test_an_evaluation_file_stands_for_itself(runs: tuple[Path, Path]) -> None:
    run = runs[1]
    branch(toy("search", evaluation={"vote": "outcome"}), run)
    plain, voted = run / "evaluation/test.json", run / "evaluation/test-time-branch-test.json"
    for places, labels in (((plain, voted), ()), ((run, voted), ("test",))):
        (row,) = list(compared(*places, labels=labels)["evaluations"].values())
        assert row[str(voted)]["against"]["tasks"] == 12
        assert row[str(voted)]["against"]["steps"] >= 1.0
    refused_call(lambda: compared(run, voted), remedy="--label")


def test_every_summary_is_read_whole(runs: tuple[Path, Path]) -> None:
    """Whatever an evaluation writes has its field in the type that it is read with: nothing is lost, nothing refused."""
    run = runs[1]
    branch(toy("search", evaluation={"vote": "outcome"}), run)
    pass_at_k(toy("search", evaluation={"n": 2, "k": 2}), run)
    evaluate(toy(evaluation={"label": "cut", "budget": "leaves=5", "samples": 2}), run)
    evaluate(with_changes(toy(evaluation={"label": "shard"}), environment={"shard": "1/2"}), run)
    files = list(run.glob("evaluation/*.json"))
    assert {path.stem for path in files} == {"cut", "pass-at-k-test", "shard", "test", "test-time-branch-test"}
    for path in files:
        written = json.loads(path.read_bytes())
        read = msgspec.to_builtins(read_json(path, EvaluationSummary))
        assert {name: value for name, value in read.items() if name in written or value is not None} == written
        assert [checked.records for checked in check(path)] == [1]
    files[0].write_text(files[0].read_text("utf-8").replace('"episodes"', '"episods"', 1), "utf-8")
    told = [finding.problem for finding in check(run) if finding.path.suffix == ".json" and finding.problem]
    assert len(told) == 1
    assert told[0].startswith(f"{files[0]}: ")
    assert "episodes" in told[0] or "episods" in told[0]


def test_unlike_panels_are_refused_in_one_line(runs: tuple[Path, Path], tmp_path: Path) -> None:
    evaluate(toy(tasks=10), tmp_path / "c")
    refused_call(lambda: compared("a", "c"), names=("c: ", "evaluation test", "10 tasks", "12 tasks"))
    evaluate(toy(evaluation={"split": "train", "label": "test"}), tmp_path / "d")
    refused_call(lambda: compared("a", "d"), names=("d: ", "panel"))
    assert "--label" not in refused("a", "d", code=2), "they have no other"
    for run in ("a", "d"):
        evaluate(toy(evaluation={"split": "test", "label": "more"}), tmp_path / run)
    refused_call(lambda: compared("a", "d"), names="d: its evaluation test", remedy="--label NAME")
    succeeded("compare", "a", "d", "--label", "more")


def test_unlike_temperatures_and_horizons_are_noted(runs: tuple[Path, Path]) -> None:
    """Of the random policy the horizon alone is told: it has no temperature."""
    for run, steps in zip(runs, (4, 9), strict=True):
        settings = toy(evaluation={"label": "short"})
        world = msgspec.structs.replace(settings.environment, max_steps=steps)
        evaluate(msgspec.structs.replace(settings, environment=world), run)
    answer = agentcli("compare", *map(str, runs), "--label", "short")
    assert "evaluations are unlike: max_steps is 4 in a/evaluation/short.jsonl, 9 in b" in answer.stderr
    files = {"a": read_json(Path("a/evaluation/short.json"), EvaluationSummary)}
    warm, cold = (msgspec.structs.replace(files["a"], model="m", temperature=value) for value in (1.0, 0.0))
    (note,) = unlike_play({"x/evaluation/L0.jsonl": warm, "y/evaluation/L0.jsonl": cold})
    assert note == "evaluations are unlike: temperature is 1 in x/evaluation/L0.jsonl, 0 in y/evaluation/L0.jsonl"
    assert not list(unlike_play({"x/evaluation/L0.jsonl": warm, "y/evaluation/L0.jsonl": warm}))


def test_other_options_of_a_world_are_noted(runs: tuple[Path, Path]) -> None:
    """Two worlds may give their games the same ids, as ALFWorld's do whatever clutter its rooms have."""
    for run, task in zip(runs, ("train/98", "train/99"), strict=True):
        settings = toy(evaluation={"label": "short"})
        options = {**settings.environment.options, "fault": "raise", "fault_tasks": [task], "fault_action": "look"}
        world = msgspec.structs.replace(settings.environment, options=options)
        evaluate(msgspec.structs.replace(settings, environment=world), run)
    answer = agentcli("compare", *map(str, runs), "--label", "short")
    assert "evaluations are unlike: options is {" in answer.stderr
    assert all(task in answer.stderr for task in ("train/98", "train/99"))


def test_evaluations_of_weights_that_were_trained_anew_are_noted(runs: tuple[Path, Path]) -> None:
    run = RunDirectory(runs[1])
    evaluated = run.load_manifest().stages["evaluation/test"]
    weights = str(run.checkpoint / "model.safetensors")
    run.record_stage("evaluation/test", msgspec.structs.replace(evaluated, inputs={weights: "0"}))
    run.record_stage("train", msgspec.structs.replace(evaluated, started="9"))
    answer = agentcli("compare", *map(str, runs))
    assert "b/evaluation/test.jsonl: is of weights that were trained anew since" in answer.stderr
    shown = agentcli("show", str(run.path)).stdout
    assert "of weights that were trained anew since: test" in shown


def test_trees_of_another_panel_are_left_out_beside_evaluations_and_refused_alone(runs: tuple[Path, Path]) -> None:
    settings = toy(tasks=10)
    rollout(settings, Path("c"))
    refused_call(lambda: compared("a", "c"), names=("c: ", "panel"))
    evaluate(toy(), Path("c"))
    answer = agentcli("compare", "a", "c", "--json")
    assert "trees" not in json.loads(answer.stdout)
    assert all(part in answer.stderr for part in ("trees are left out: c", "another panel"))


def test_what_a_budget_cut_is_compared_as_far_as_it_goes(runs: tuple[Path, Path]) -> None:
    budget = toy("search", evaluation={"budget": "leaves=5"}, rollout={"budget": "leaves=9"})
    rollout(budget, Path("c"))
    evaluate(budget, Path("c"))
    result = compared("a", "c")
    row = result["evaluations"]["test"]["c"]
    assert (row["tasks"], row["against"]["tasks"]) == (5, 5)
    assert row["against"]["mcnemar"] == mcnemar_exact(successes(Path("a"))[:5], successes(Path("c")))
    assert (result["trees"]["a"]["tasks"], result["trees"]["c"]["tasks"]) == (12, 3)
    answer = agentcli("compare", "a", "c")
    assert "tasks in common" in answer.stdout


def test_benchmarks_that_a_budget_cut_are_tested_on_what_both_walked(runs: tuple[Path, Path]) -> None:
    """The same policy, in c ended after five tasks of each panel: easier ones, so that the rates of unlike tasks would differ."""
    for split in ("test", "train"):
        own = {"split": split, "label": f"cut-{split}"}
        evaluate(toy(seed=2, evaluation=own), Path("a"))
        evaluate(toy(seed=2, evaluation={**own, "budget": "leaves=5"}), Path("c"))
    result = compared("a", "c")
    assert result["benchmarks"] == ["cut-test", "cut-train"]
    assert all(own["c"]["success"]["rate"] > own["a"]["success"]["rate"] for own in result["evaluations"].values())
    assert result["wilcoxon"]["c"] == {"benchmarks": 2, "p": 1.0}, "on the same tasks they did the same"


def test_responses_that_cannot_be_read_are_told(runs: tuple[Path, Path]) -> None:
    trees = list(read_records(Path("b/trees.jsonl"), Tree))
    for step in (step for tree in trees for step in tree.steps):
        step.stop = StopReason.LENGTH if step.id % 2 else StopReason.STOP
        step.validity = Validity.MALFORMED
    Path("b/trees.jsonl").unlink()
    with RecordWriter(Path("b/trees.jsonl")) as writer:
        for tree in trees:
            writer.write(tree)
    told = compared(*runs)["trees"]["b"]
    steps = [step for tree in trees for step in tree.steps]
    assert told["malformed"] == 1.0
    assert told["cut"] == sum(step.id % 2 for step in steps) / len(steps)
    answer = agentcli("compare", "a", "b")
    (row,) = [line for line in answer.stdout.splitlines() if "malformed % of responses" in line]
    assert [cell.strip() for cell in row.strip("│").split("│")][1:] == ["0.0", "100.0"]


def test_demonstrations_are_compared_and_counted(runs: tuple[Path, Path]) -> None:
    for name, stray in (("c", 0.0), ("d", 0.5)):
        settings = toy(demos=DemosSettings(count=6, policy="expert", stray=stray, keep="all"))
        demos(settings, Path(name))
    found = compared("c", "d")["trees"]
    assert [(row["method"], row["tasks"]) for row in found.values()] == [("chain", 6)] * 2
    assert found["c"]["success"]["rate"] == 1.0 > found["d"]["success"]["rate"]
    trees = Path("d/trees.jsonl")
    trees.write_bytes(b"".join(trees.read_bytes().splitlines(keepends=True)[:-1]))
    line = refused("c", "d", code=3)
    assert all(part in line for part in ("d/trees.jsonl: ", "5 trees, not the 6", "manifest.json"))
    assert "agentcli demos --resume -o d" in line


@pytest.mark.parametrize(
    ("words", "code", "names"),
    [
        (("a",), 2, "two runs"),
        (("a", "a"), 2, "two runs"),
        (("a", "b", "./a"), 2, "a is named twice"),
        (("a", "latest"), 2, ("latest", " a;", "two runs")),
        (("a/evaluation/test.json", "a/evaluation/test.jsonl"), 2, ("test.jsonl", "a/evaluation/test.json")),
        (("a", "nowhere"), 3, ("nowhere: ", "evaluation/")),
        (("a", "notes.yaml"), 3, ("notes.yaml: ", "evaluation/")),
        (("a/trees.jsonl", "b/trees.jsonl"), 3, ("a/trees.json: ", "RUN/evaluation/")),
        (("a", "empty"), 3, ("a and empty", "label", "trees")),
        (("a", "b/evaluation/L9.json"), 2, "--label NAME"),
        (("a/evaluation/test.json", "b/evaluation/L9.json"), 3, ("b/evaluation/L9.json: ", "agentcli eval b")),
    ],
)
def test_what_cannot_be_compared(
    runs: tuple[Path, Path], words: tuple[str, ...], code: int, names: str | tuple[str, ...]
) -> None:
    Path("empty").mkdir()
    Path("notes.yaml").write_text("seed: 1", encoding="utf-8")
    Path("latest").symlink_to("a")
    refused_call(lambda: compared(*words), code, names)


def test_unlike_labels_name_the_command_that_makes_them_alike(empty_folder: Path) -> None:
    """As typed, the runs can be compared afterwards."""
    asked = {"tasks": 3, "samples": 2, "temperature": 0.5, "label": "some"}
    evaluate(toy(evaluation=asked), Path("c"), Invocation([]), model=None)
    demos(toy("search", demos=DemosSettings(count=2)), Path("d"), Invocation([]), model=None)
    evaluate(toy("search"), Path("d"), Invocation([]), model=None)
    line = refused("c", "d", code=3)
    command = "agentcli eval d --split test --tasks 3 --samples 2 --label some"
    assert line.endswith(f": {command}")
    assert agentcli(*command.split()[1:], "--policy", "search", "-q").code == 0
    assert compared("c", "d")["evaluations"]["some"]["d"]["tasks"] == 3
    # A model is asked at the temperature that the other was.
    summary = Path("c/evaluation/some.json")
    summary.write_text(summary.read_text(encoding="utf-8").replace('"model": null', '"model": "m"'), encoding="utf-8")
    without_checksums(Path("c"))
    shutil.rmtree("d/evaluation")
    assert "--temperature 0.5 --label some" in refused("c", "d", code=3)


def test_the_command_names_another_horizon_and_how_a_torn_evaluation_goes_on(empty_folder: Path) -> None:
    typed = "agentcli eval c --split test --samples 3 --label some"
    short = with_changes(toy(evaluation={"samples": 3, "label": "some"}), environment={"max_steps": 5})
    evaluate(short, Path("c"), Invocation([*typed.split(), "-q"]), model=None)
    evaluate(toy("search"), Path("d"), Invocation([]), model=None)
    assert "agentcli eval d --split test --max-steps 5 --samples 3" in refused("c", "d", code=3)
    evaluate(toy("search", evaluation={"samples": 3, "label": "some"}), Path("d"), Invocation([]), model=None)
    file = Path("c/evaluation/some.jsonl")
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))
    without_checksums(Path("c"))
    assert refused("c", "d", code=3).endswith(f"go on with: {typed} --resume")


def test_a_label_has_no_effect_on_files(runs: tuple[Path, Path]) -> None:
    files = ("a/evaluation/test.json", "b/evaluation/test.json")
    assert "test" in compared(*files)["evaluations"]
    assert "--label has no effect" in refused(*files, "--label", "test", code=2)


def test_what_a_manifest_calls_the_method_does_not_matter(runs: tuple[Path, Path]) -> None:
    manifest = Path("b/manifest.json")
    manifest.write_bytes(manifest.read_bytes().replace(b'"method": "spark"', b'"method": "[/red]"'))
    succeeded("compare", "a", "b")
    assert json.loads(agentcli("compare", "a", "b", "--json").stdout)["trees"]["b"]["method"] == "spark"


def test_what_only_some_runs_hold_is_left_out_with_a_note(runs: tuple[Path, Path]) -> None:
    for number in range(7):
        for path in ("a/evaluation/test.json", "a/evaluation/test.jsonl"):
            shutil.copy(path, path.replace("test", f"more{number}"))
    for path in ("b/trees.jsonl", "b/manifest.json"):
        Path(path).unlink()
    answer = succeeded("compare", "a", "b")
    evaluations, trees = answer.stderr.splitlines()
    assert [word for word in evaluations.split() if word.startswith("more")][:5] == [
        "more0,",
        "more1,",
        "more2,",
        "more3,",
        "more4",
    ]
    assert evaluations.endswith("more4 and 2 more")
    assert trees.startswith("trees are left out: b ")
    assert agentcli("compare", "a", "b", "-q").stderr == ""


def test_a_label_that_a_run_lacks_is_named(runs: tuple[Path, Path]) -> None:
    attempt = partial(compared, *runs, labels=("L9",))
    refused_call(attempt, 3, "a/evaluation/L9.json", remedy="agentcli eval a --label L9")


def test_an_evaluation_that_was_killed_is_not_there(runs: tuple[Path, Path]) -> None:
    Path("b/evaluation/test.json").unlink()
    refused_call(lambda: compared(*runs, labels=("test",)), 3, "b/evaluation/test.json")
    assert compared(*runs)["evaluations"] == {}


def test_tables_and_json_on_stdout(runs: tuple[Path, Path]) -> None:
    answer = succeeded("compare", "a", "b")
    assert answer.stderr == ""
    for part in (
        "evaluation test, against the first",
        "McNemar p",
        "by kind",
        "locked",
        "trees, against",
        "generated tokens",
    ):
        assert part in answer.stdout
    assert "…" not in answer.stdout
    assert "solved" not in answer.stdout
    as_json = agentcli("compare", "a", "b", "--json", "--label", "test")
    assert json.loads(as_json.stdout)["evaluations"] == compared(*runs)["evaluations"]
