"""A wrong file gets one line that names file, line and field, exit code 3, and nothing is written: through the command line."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from agentcli.cli.app import build
from agentcli.records.types import SCHEMA_VERSION
from grown_runs import roll, toy
from older_runs import without_checksums
from typer.testing import CliRunner

Damage = Callable[[dict[str, Any]], None]
COMMANDS = {
    "assign": ["assign-credit", "run", "--method", "carl"],
    "graph": ["assign-credit", "run", "--method", "rewardflow", "--graph", "--overwrite"],
    "dry": ["assign-credit", "run", "--method", "carl", "--dry-run"],
    "explain": ["assign-credit", "run", "--explain", "worst"],
    "compare": ["credit", "compare", "run", "spark", "carl"],
}


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three trees of the toy world, with credit of grpo."""
    folder = tmp_path_factory.mktemp("grown")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        roll(toy(tasks=3), Path("run"))
        assert asked("assign-credit", "run", "--method", "grpo").exit_code == 0
    return folder / "run"


@pytest.fixture
def run(grown: Path, empty_folder: Path) -> Path:
    shutil.copytree(grown, "run")
    return Path("run")


def asked(*words: str) -> Any:
    return CliRunner().invoke(build(), list(words))


def rewritten(file: Path, damage: Damage, line: int = 2) -> None:
    """The file with one of its records changed; NaN and Infinity are written as Python writes them."""
    lines = file.read_text(encoding="utf-8").splitlines()
    record = json.loads(lines[line - 1])
    damage(record)
    lines[line - 1] = json.dumps(record)
    file.write_text("\n".join([*lines, ""]), encoding="utf-8")


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(run: Path, *words: str) -> str:
    """The one line that the command ends with."""
    before = contents(run)
    answer = asked(*words)
    assert answer.exit_code == 3, answer.output
    assert answer.stdout == ""
    lines = answer.stderr.splitlines()
    assert [line for line in lines if line.startswith("error: ")] == lines[-1:]
    assert "unexpected" not in lines[-1]
    assert contents(run) == before
    return lines[-1]


def missing_parent(tree: dict[str, Any]) -> None:
    tree["steps"][3]["parent"] = 99


def two_roots_with_one_id(tree: dict[str, Any]) -> None:
    tree["steps"][1] |= {"id": 0, "parent": None}


def cycle(tree: dict[str, Any]) -> None:
    tree["steps"][0]["parent"], tree["steps"][1]["parent"] = 1, 0


def own_parent(tree: dict[str, Any]) -> None:
    tree["steps"][2]["parent"] = 2


def nan_reward(tree: dict[str, Any]) -> None:
    tree["steps"][1]["reward"] = float("nan")


def endless_reward(tree: dict[str, Any]) -> None:
    tree["steps"][1]["reward"] = float("inf")


def huge_reward(tree: dict[str, Any]) -> None:
    tree["steps"][1]["reward"] = 1e300


def other_version(tree: dict[str, Any]) -> None:
    tree["schema_version"] = 99


def version_in_quotes(tree: dict[str, Any]) -> None:
    tree["schema_version"] = str(SCHEMA_VERSION)


def unknown_field(tree: dict[str, Any]) -> None:
    tree["steps"][0]["advantage"] = 1.0


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (missing_parent, "steps[3].parent: 99 is not an earlier step"),
        (two_roots_with_one_id, "steps[1].id: is 0, must be its position 1"),
        (cycle, "steps[0].parent: 1 is not an earlier step"),
        (own_parent, "steps[2].parent: 2 is not an earlier step"),
        (nan_reward, "at `$.steps[1].reward`"),
        (endless_reward, "at `$.steps[1].reward`"),
        (huge_reward, "at `$.steps[1].reward`"),
        (other_version, f"schema_version is 99, this agentcli reads {SCHEMA_VERSION}"),
        (version_in_quotes, f'schema_version is "{SCHEMA_VERSION}", this agentcli reads {SCHEMA_VERSION}'),
        (unknown_field, "at `$.steps[0]`"),
    ],
)
def test_damaged_trees(run: Path, command: str, damage: Damage, told: str) -> None:
    rewritten(run / "trees.jsonl", damage)
    line = refused(run, *COMMANDS[command])
    assert line.startswith("error: run/trees.jsonl:2: "), line
    assert told in line


@pytest.mark.parametrize("command", ["assign", "explain", "compare"])
@pytest.mark.parametrize("method", ["gigpo", "rewardflow"])
def test_state_methods_on_trees_without_state_keys(run: Path, method: str, command: str) -> None:
    def forget(tree: dict[str, Any]) -> None:
        for step in tree["steps"]:
            step["state"] = ""

    rewritten(run / "trees.jsonl", forget, line=3)
    words = [*COMMANDS[command], method] if command == "compare" else ["assign-credit", "run", "--method", method]
    line = refused(run, *words, *(["--explain", "best"] if command == "explain" else []))
    assert line.startswith("error: run/trees.jsonl:3: ")
    assert ": task train/2: steps[0].state: " in line
    assert "is empty; " in line
    assert line.endswith("or --method grpo")


def test_ppo_on_trees_without_a_critic(run: Path) -> None:
    line = refused(run, "assign-credit", "run", "--method", "ppo")
    assert line.startswith("error: run/trees.jsonl:1: ")
    assert ": task train/0: steps[0].value: " in line
    assert ": there is none" in line


def tokens(tree: dict[str, Any]) -> None:
    """Steps as a policy samples them; the toy's have no tokens, and train looks at those first."""
    for step in tree["steps"]:
        step |= {"token_ids": [1], "logprobs": [-1.0]}


def never_sampled(credit: dict[str, Any]) -> None:
    credit["steps"][1]["step"] = 999


def other_task(credit: dict[str, Any]) -> None:
    credit["task"] = "train/77"


def nan_advantage(credit: dict[str, Any]) -> None:
    credit["steps"][1]["advantage"] = float("nan")


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (never_sampled, "steps[1].step: 999 is not a step of task train/0"),
        (other_task, "task: is train/77, the tree's is train/0"),
        (nan_advantage, "at `$.steps[1].advantage`"),
    ],
)
@pytest.mark.parametrize("command", ["train", "compare"])
def test_credit_that_is_not_of_these_trees(run: Path, command: str, damage: Damage, told: str) -> None:
    """An advantage for a step that was never sampled, and its like, at `train` and wherever credit is read."""
    if command == "train":
        rewritten(run / "trees.jsonl", tokens, line=1)
    rewritten(run / "credit/grpo.jsonl", damage, line=1)
    without_checksums(run)
    (run / "model").mkdir()
    words = {
        "train": ["train", "run", "--credit", "grpo", "--model", "run/model", "-o", "run/new"],
        "compare": ["credit", "compare", "run", "grpo", "carl"],
    }[command]
    line = refused(run, *words)
    assert line.split()[:2] == ["error:", "run/credit/grpo.jsonl:1:"], line
    assert told in line
    assert not (run / "new").exists()


def test_credit_that_ends_early(run: Path) -> None:
    file = run / "credit/grpo.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:2]))
    line = refused(run, "credit", "compare", "run", "grpo", "carl")
    assert line.split()[:2] == ["error:", "run/credit/grpo.jsonl:"]
    assert "ends before" in line
    assert " run/trees.jsonl:3; " in line
    assert line.endswith("--overwrite")


def test_trees_that_were_lost_after_the_rollout_ended_are_missed(run: Path) -> None:
    file = run / "trees.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines()
    file.write_text("\n".join([*lines[:-1], "", ""]), encoding="utf-8")
    answer = asked(*COMMANDS["assign"])
    assert answer.exit_code == 0, answer.output
    fault = "holds 2 trees, not the 3 of manifest.json; go on with: agentcli rollout --resume -o run"
    assert f"warning: run/trees.jsonl: {fault}" in answer.stderr
    assert f"warning: run/trees.jsonl: {fault}" in asked("export", "run", "--to", "messages", "--all").stderr


def test_a_torn_tree_is_missed_without_a_manifest_too(run: Path) -> None:
    (run / "manifest.json").unlink()
    shutil.rmtree(run / "settings")
    file = run / "trees.jsonl"
    whole = file.read_bytes().rstrip(b"\n")
    for data, torn in ((whole, False), (whole[:-9], True), (whole + b"\n", False)):
        file.write_bytes(data)
        answer = asked(*COMMANDS["assign"], "--overwrite")
        assert (answer.exit_code, "trees.jsonl: its last line was only" in answer.stderr) == (0, torn), answer.output


def test_of_imported_trees_none_are_owed(run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    manifest["stages"]["import"] = manifest["stages"].pop("rollout")
    (run / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    answer = asked(*COMMANDS["assign"])
    assert (answer.exit_code, "has not ended" in answer.stderr) == (0, False), answer.output


def test_a_manifest_that_cannot_be_read_spoils_no_export(run: Path) -> None:
    (run / "manifest.json").write_text("[]", encoding="utf-8")
    answer = asked("export", "run", "--to", "messages", "--all")
    assert (answer.exit_code, "warning: run/manifest.json" in answer.stderr) == (0, True), answer.output


def test_trees_of_a_rollout_that_has_not_ended_are_not_taken_as_all(run: Path) -> None:
    (run / "manifest.json").unlink()
    fault = "warning: run/trees.jsonl: rollout has not ended; go on with: agentcli rollout --resume -o run"
    for words in (
        COMMANDS["assign"],
        ("export", "run", "--to", "messages", "--all"),
        ("credit", "compare", "run", "grpo", "carl"),
    ):
        answer = asked(*words)
        assert answer.exit_code == 0, answer.output
        assert fault in answer.stderr, words


def test_credit_of_trees_that_were_replaced_since_is_refused(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks and numbers of steps may be the same, so nothing else would tell."""
    monkeypatch.setattr("agentcli.stages.session.now", lambda: "2999-01-01T00:00:00+00:00")
    roll(toy(tasks=3), run, overwrite=True)
    # The same trees again have the same credit.
    assert "replaced since" not in asked("show", "run", "1", "--credit", "grpo").stderr
    roll(msgspec.structs.replace(toy(tasks=3), seed=5), run, overwrite=True)
    warning = "warning: run/credit/grpo.jsonl: is credit of the trees that rollout has replaced since"
    assert warning in asked("show", "run", "1", "--credit", "grpo").stderr
    assert warning in asked("export", "run", "--to", "conversations", "--credit", "grpo").stderr
    (run / "model").mkdir()
    (run / "model/config.json").write_text("{}", encoding="utf-8")
    ended = asked("train", "run", "--credit", "grpo", "--model", "run/model", "-o", "run/new")
    assert ended.exit_code == 3, ended.output
    assert "run/credit/grpo.jsonl: is credit of the trees that rollout has replaced since" in ended.output
    assert not Path("run/new").exists()
