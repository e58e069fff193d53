"""The check of whole files and of run directories: kind, count, and file:line: field of a fault."""

from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from agentcli.analysis.schema import METRICS
from agentcli.analysis.validate import CheckedFile, check
from agentcli.errors import DataError
from agentcli.evaluation.episodes import episodes
from agentcli.records.files import RecordWriter, write_json
from agentcli.records.types import SCHEMA_VERSION, Manifest
from agentcli.training.metrics import SftMetrics, TrainMetrics
from refusal import refused
from sample_records import credit, episode, metrics, panel, stage_record, tree


def validate(path: Path, kind: str | None = None) -> int | None:
    """The number of records of a file. Raises DataError with its first fault."""
    (checked,) = check(path, kind)
    if checked.problem is not None:
        raise DataError(checked.problem)
    return checked.records


def damaged(**fields: Any) -> Any:
    """A tree with other fields in its last step, a leaf."""
    bad = tree()
    bad.steps[-1] = msgspec.structs.replace(bad.steps[-1], **fields)
    return bad


def write(path: Path, *records: Any) -> Path:
    with RecordWriter(path) as writer:
        for record in records:
            writer.write(record)
    return path


@pytest.mark.parametrize(
    ("name", "records"),
    [
        ("trees.jsonl", [tree(), tree()]),
        ("credit/grpo.jsonl", [credit()]),
        ("evaluation/L0.jsonl", [episode()] * 4),
        *(("metrics.jsonl", [metrics(kind)] * 2) for kind in METRICS.values()),
        # Of a training in which nothing was to be learnt.
        ("metrics.jsonl", []),
    ],
)
def test_files_of_a_run_are_known_by_their_place(name: str, records: list[Any], tmp_path: Path) -> None:
    assert validate(write(tmp_path / name, *records)) == len(records)


def test_single_records_and_settings(tmp_path: Path) -> None:
    write_json(tmp_path / "manifest.json", Manifest())
    write_json(tmp_path / "l2.json", panel())
    write_json(tmp_path / "one.json", tree())
    (tmp_path / "s.yaml").write_text("rollout: {leaves: 3}\n", encoding="utf-8")
    assert validate(tmp_path / "manifest.json") == 1
    assert validate(tmp_path / "l2.json") == 1
    assert validate(tmp_path / "one.json", "tree") == 1
    assert validate(tmp_path / "s.yaml") == 1


@pytest.mark.parametrize(
    ("name", "records", "message"),
    [
        ("trees.jsonl", [tree(), damaged(id=8)], ":2: task train/pick_clean_then_place-Cup-1: steps[7].id: is 8"),
        (
            "trees.jsonl",
            [damaged(outcome=None)],
            ":1: task train/pick_clean_then_place-Cup-1: steps[7].outcome: a leaf has no outcome",
        ),
        ("trees.jsonl", [tree(), {**msgspec.to_builtins(tree()), "steps": []}], ":2: steps: there are none"),
        ("trees.jsonl", [{**msgspec.to_builtins(tree()), "ledger": {"leaves": 99}}], ":1: ledger.leaves: is 99, the"),
        ("trees.jsonl", [tree(), episode()], ":2: Expected `object`, got `str` - at `$.task`"),
        ("credit/grpo.jsonl", [credit(), episode()], ":2: Object contains unknown field `kind`"),
        ("evaluation/L0.jsonl", [episode(), {**msgspec.to_builtins(episode()), "steps": "x"}], ":2: Expected `int`"),
        ("metrics.jsonl", [metrics(SftMetrics), metrics(TrainMetrics)], ":2: Object contains unknown field"),
        ("trees.jsonl", [], ": holds no complete record"),
    ],
)
def test_the_first_fault_is_named(name: str, records: list[Any], message: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, *records)
    with pytest.raises(DataError) as caught:
        validate(path)
    assert str(caught.value).startswith(f"{path}{message}")


def test_lines_are_those_of_the_file_whatever_is_blank(tmp_path: Path) -> None:
    """A fault of the types and one of the tree are on the line that an editor shows."""
    path = write(tmp_path / "trees.jsonl", tree(), damaged(id=8))
    first, second = path.read_bytes().splitlines()
    path.write_bytes(b"\r\n\n" + first + b"\n   \n\n" + second + b"\n")
    refused(lambda: validate(path), 3, names=("trees.jsonl:6: ", "steps[7].id"))
    path.write_bytes(b"\n\n" + first + b"\n\n{}\n")
    refused(lambda: validate(path), 3, names="trees.jsonl:5")


def test_a_torn_last_line_is_owed_but_a_torn_middle_line_is_not(tmp_path: Path) -> None:
    path = write(tmp_path / "trees.jsonl", tree(), tree())
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert validate(path) == 1
    path.write_bytes(whole[:50] + b"\n" + whole)
    refused(lambda: validate(path), 3, names=":1: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rollout: {leavs: 3}", ": rollout.leavs: no such setting; did you mean rollout.leaves?"),
        ("seed: 1\nseed: 2", ":2: key 'seed' is there twice"),
        ("seed: 1\n? [a, b]\n: 1", ":2: a key is a name"),
        ("rollout: {leaves: 0}", ": rollout.leaves: "),
        ("credit: {method: grpo, gama: 1}", ": credit.gama: grpo has no such setting"),
        ("rollout: {method: chian}", ": rollout.method: no exploration method 'chian'; did you mean chain?"),
        ("policy: {kind: expart}", ": policy.kind: no policy 'expart'; did you mean expert?"),
        ("prompt: {style: ful}", ": prompt.style: no style 'ful'; did you mean full?"),
        ("environment: {name: alfwrld}", ": environment.name: no world 'alfwrld'; did you mean alfworld?"),
        (
            "environment: {options: {cluter: 1}}",
            ": environment.options.cluter: alfworld has no such setting; did you mean clutter?",
        ),
        ("environment: {options: {clutter: -1}}", ": environment.options.clutter: expected int >= 0"),
        ("environment: {data: /no/such/folder}", ": --data /no/such/folder: no json_2.1.1/ in it"),
    ],
)
def test_faults_in_settings_are_bad_data(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as caught:
        validate(path)
    assert str(caught.value).startswith(f"{path}{message}")


def test_a_panel_must_match_its_hash_and_a_single_tree_its_rules(tmp_path: Path) -> None:
    write_json(tmp_path / "l2.json", msgspec.structs.replace(panel(), sha256="0"))
    write_json(tmp_path / "one.json", damaged(parent=7))
    refused(lambda: validate(tmp_path / "l2.json"), 3, names=("l2.json", "sha256"))
    refused(lambda: validate(tmp_path / "one.json", "tree"), 3, names=("one.json", "steps[7].parent"))


def test_unreadable_files_are_bad_data(tmp_path: Path) -> None:
    for name, kind in [("none.jsonl", "tree"), ("none.json", "panel"), ("none.yaml", "settings")]:
        refused(partial(validate, tmp_path / name, kind), 3, name)


def finished(name: str, **fields: Any) -> Manifest:
    return Manifest(stages={name: msgspec.structs.replace(stage_record(), **fields)})


def a_run(folder: Path) -> Path:
    """A run directory in which a rollout, grpo, an evaluation and a training ended."""
    trees = [tree(1), tree(2)]
    rows = [row for one in trees for row in episodes(one)]
    write(folder / "trees.jsonl", *trees)
    write(folder / "credit" / "grpo.jsonl", credit(1), credit(2))
    write(folder / "evaluation" / "L0.jsonl", *rows)
    write(folder / "metrics.jsonl", metrics(TrainMetrics))
    write_json(folder / "manifest.json", Manifest(stages=dict.fromkeys(("rollout", "evaluation/L0"), stage_record())))
    return folder


def problems(folder: Path) -> list[str]:
    """What is wrong, without the folder's name."""
    found = [finding.problem for finding in check(folder) if finding.problem is not None]
    assert all(problem.startswith(f"{folder}/") for problem in found)
    return [problem.removeprefix(f"{folder}/") for problem in found]


def test_everything_in_a_run_directory_is_checked(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run")
    assert list(check(run)) == [
        CheckedFile(run / "manifest.json", "manifest", 1, None),
        CheckedFile(run / "trees.jsonl", "tree", 2, None),
        CheckedFile(run / "credit" / "grpo.jsonl", "credit", 2, None),
        CheckedFile(run / "evaluation" / "L0.jsonl", "episode", 10, None),
        CheckedFile(run / "metrics.jsonl", "metrics", 1, None),
    ]


def test_the_iterations_of_a_loop_are_run_directories(tmp_path: Path) -> None:
    for number in range(2):
        a_run(tmp_path / f"iteration_{number:03d}")
    write(tmp_path / "iteration_001" / "trees.jsonl", damaged(outcome=None))
    assert len(list(check(tmp_path))) == 10
    (problem,) = problems(tmp_path)
    assert problem.startswith("iteration_001/trees.jsonl:1: ")


def test_a_damaged_manifest_does_not_end_the_check(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run")
    write_json(run / "manifest.json", {"schema_version": SCHEMA_VERSION, "stages": []})
    write(run / "metrics.jsonl", {"loss": "x"})
    first, second = problems(run)
    assert first.startswith("manifest.json: ")
    assert "`object`, got `array`" in first
    assert first.endswith("`$.stages`")
    assert second.startswith("metrics.jsonl:1: ")


def test_recorded_settings_that_cannot_be_inherited_are_a_fault(tmp_path: Path) -> None:
    settings = {**stage_record().settings, "rollout": {"leaves": 0}}
    write_json(tmp_path / "manifest.json", finished("rollout", settings=settings))
    (problem,) = problems(tmp_path)
    assert all(part in problem for part in ("`int` >= 1 - ", "`$.stages.rollout.settings.rollout.leaves`"))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            [credit(1)],
            "credit/grpo.jsonl: ends after 1 records, RUN/trees.jsonl has more; run assign-credit with --overwrite",
        ),
        (
            [credit(1), credit(2)] * 2,
            "trees.jsonl: ends after 2 records, RUN/credit/grpo.jsonl has more; run assign-credit with --overwrite",
        ),
        ([credit(2), credit(1)], "credit/grpo.jsonl:1: task: is train/pick_clean_then_place-Cup-2, the tree's is "),
        ([credit(1), {"task": 7}], "credit/grpo.jsonl:2: Expected `str`, got `int` - at `$.task`"),
    ],
)
def test_credit_belongs_to_its_trees(given: list[Any], problem: str, tmp_path: Path) -> None:
    run = a_run(tmp_path / "run")
    write(run / "credit" / "grpo.jsonl", *given)
    (found,) = problems(run)
    assert found.startswith(problem.replace("RUN", str(run)))


def test_credit_for_unknown_steps_is_named_by_its_line(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run")
    other = credit(2)
    other.steps[3].step = 8
    path = write(run / "credit" / "grpo.jsonl", credit(1), other)
    path.write_bytes(b"\n\n" + path.read_bytes())
    (found,) = problems(run)
    assert found.split(": ")[:2] == ["credit/grpo.jsonl:4", "steps[3].step"]
    assert ": 8 is not" in found
    assert "pick_clean_then_place-Cup-2" in found


def test_damaged_trees_are_told_once_and_credit_is_then_checked_by_itself(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run")
    write(run / "trees.jsonl", damaged(id=0))
    write(run / "credit" / "spark.jsonl", {"task": 7})
    first, second = problems(run)
    assert (first[:14], second[:21]) == ("trees.jsonl:1:", "credit/spark.jsonl:1:")


def test_a_finished_rollout_holds_the_trees_of_its_panel_in_order(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run")
    for folder in ("credit", "evaluation"):
        for path in (run / folder).iterdir():
            path.unlink()
    for trees in ([tree(2), tree(1)], [tree(1)]):
        write(run / "trees.jsonl", *trees)
        (found,) = problems(run)
        assert found.startswith(f"trees.jsonl: its {len(trees)} tasks are not ")
        assert "panel L0 in" in found
        assert "(sha256 " in found
    write_json(run / "manifest.json", Manifest())
    assert problems(run) == []


def test_a_finished_rollout_holds_the_ends_that_it_counted(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run")
    for counts, told in (({"trees": 2, "success": 9}, "not the 9 of manifest.json"), ({"trees": 2, "errored": 2}, "")):
        write_json(run / "manifest.json", finished("rollout", counts=counts))
        assert "".join(problems(run)).count("trees.jsonl: holds") == bool(told)
        assert told in "".join(problems(run))


def test_a_finished_evaluation_holds_every_episode_of_its_panel_once(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run")
    rows = [row for one in (tree(1), tree(2)) for row in episodes(one)]
    write(run / "evaluation" / "L0.jsonl", *rows[:5])
    (found,) = problems(run)
    assert found.startswith("evaluation/L0.jsonl: its 1 tasks ")
    assert "not those of panel L0" in found
    write(run / "evaluation" / "L0.jsonl", *rows, rows[0])
    (found,) = problems(run)
    assert found.startswith("evaluation/L0.jsonl:11: sample: is 0, ")
    assert "then_place-Cup-1 has 5 " in found


def test_a_directory_without_a_run_says_so(tmp_path: Path) -> None:
    (finding,) = check(tmp_path)
    assert finding.problem.startswith(f"{tmp_path}: holds nothing ")
    assert finding.problem.endswith(": manifest.json, trees.jsonl, ...")
    refused(lambda: check(tmp_path, "tree"), names=str(tmp_path))


def test_run_directories_may_have_any_name(tmp_path: Path) -> None:
    assert problems(a_run(tmp_path / "evaluation")) == []
