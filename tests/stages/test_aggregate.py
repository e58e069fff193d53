"""train.aggregate: what the loss is a mean of where nobody says so: what the paper of the credit's method prints."""

import json
import shutil
from pathlib import Path

import credit_trees
import pytest
import torch
from agentcli.credit import carl
from agentcli.credit.registry import METHODS, known
from agentcli.records.files import RecordWriter, read_json
from agentcli.records.settings import Settings
from agentcli.records.training_settings import TrainSettings
from agentcli.records.types import Manifest, Outcome, StopReason
from agentcli.stages.layers import list_presets, resolve
from agentcli.stages.train import method_of, with_aggregate
from agentcli.training.policy_gradient.losses import token_weights
from agentcli.training.steps import Row, read_rows
from bad_input_runs import START, folder
from command_line import agentcli, succeeded
from refusal import refused

__all__ = ["folder"]

OF_003 = {"carl", "arpo", "treerl", "treerpo"}
PRESETS_OF_003 = {"grpo-search"}
"""Presets of CARL whose method is not CARL's own."""


def test_the_methods_of_003_average_over_tokens_and_all_others_over_trajectories() -> None:
    assert {name for name, method in METHODS.items() if method.aggregate == "token"} == OF_003
    assert {method.aggregate for name, method in METHODS.items() if name not in OF_003} == {"step"}
    assert known("a package's own").aggregate == "step"


def test_what_is_set_is_kept_and_an_objective_without_credit_has_none() -> None:
    assert with_aggregate(Settings(), "carl").train == TrainSettings(aggregate="token")
    assert with_aggregate(Settings(), "rewardflow").train == TrainSettings(aggregate="step")
    asked = Settings(train=TrainSettings(aggregate="sequence"))
    assert with_aggregate(asked, "carl") == asked
    assert with_aggregate(Settings(), None).train.aggregate is None


@pytest.mark.parametrize("preset", [path.stem for path in list_presets()])
def test_no_preset_of_003_averages_over_trajectories(preset: str) -> None:
    settings = resolve(preset, [], {}, [], {})
    method = settings.credit["method"]
    is_of_003 = method in OF_003 or preset in PRESETS_OF_003
    assert with_aggregate(settings, method).train.aggregate == ("token" if is_of_003 else "step")
    if is_of_003:
        assert settings.train.aggregate == "token"
        texts = [agentcli("preset", "show", preset)]
        if texts[0].stderr.startswith("the rest: "):
            texts.append(agentcli(*texts[0].stderr.split()[3:]))
        lines = [line for text in texts for line in text.stdout.splitlines()]
        line = next(line for line in lines if "aggregate:" in line)
        assert "# CARL eq. 2" in line


def carl_tree(folder: Path) -> tuple[Path, Path]:
    """Root state: 0 | 1. After 0: 2 | 3 | 4, after 2 the only child 5. Step n has 1 + 3n tokens."""
    parents = [None, None, 0, 0, 0, 2]
    steps = []
    for number, parent in enumerate(parents):
        tokens = 1 + 3 * number
        sampled = {"token_ids": [1] * tokens, "logprobs": [-1.0] * tokens, "stop": StopReason.STOP}
        end = None if number in parents else Outcome.SUCCESS if number == 5 else Outcome.FAILURE
        steps.append(
            credit_trees.step(number, parent, state=str(parent), next_state=str(number), outcome=end, **sampled)
        )
    tree = credit_trees.tree(*steps)
    tree.method = "carl"
    for name, record in (("trees", tree), ("credit", carl.assign(tree, carl.CarlSettings()))):
        with RecordWriter(folder / f"{name}.jsonl") as writer:
            writer.write(record)
    return folder / "trees.jsonl", folder / "credit.jsonl"


def weights(rows: list[Row], method: str) -> list[float]:
    """Of one token of each row."""
    aggregate = with_aggregate(Settings(), method).train.aggregate
    assert aggregate is not None
    lengths = torch.tensor([len(row.token_ids) for row in rows])
    shares = torch.tensor([row.share for row in rows], dtype=torch.float64)
    found: list[float] = token_weights(aggregate, lengths, torch.tensor([row.weight for row in rows]), shares).tolist()
    return found


def test_inside_one_tree_of_carl_every_trained_token_weighs_the_same(tmp_path: Path) -> None:
    """D_upd is the steps 0 to 4, of 1 + 4 + 7 + 10 + 13 = 35 tokens. Averaged over trajectories a token of step 0 would weigh
    (1/2 + 1/2 + 1/2) / 4 = 3/8, and one of step 4 (1/2) / 4 / 13 = 1/104: 39 times less."""
    trees, credit = carl_tree(tmp_path)
    rows, counts = read_rows(trees, credit)
    assert [len(row.token_ids) for row in rows] == [1, 4, 7, 10, 13]
    assert (counts.rows, counts.rows_unassigned) == (5, 1)
    assert weights(rows, method_of(credit)) == pytest.approx([1 / 35] * 5, rel=1e-12)
    uneven = weights(rows, "rewardflow")
    assert uneven[0] == pytest.approx(3 / 8)
    assert uneven[0] / uneven[4] == pytest.approx(39)


def test_credit_of_two_methods_in_one_file_is_refused(tmp_path: Path) -> None:
    trees, credit = carl_tree(tmp_path)
    trees.write_bytes(trees.read_bytes() * 2)
    credit.write_bytes(credit.read_bytes() + credit.read_bytes().replace(b'"carl"', b'"grpo"'))
    refused(lambda: read_rows(trees, credit), 3, names="credit.jsonl:2")
    credit.write_bytes(b"")
    refused(lambda: method_of(credit), 3, names="credit.jsonl")


@pytest.mark.parametrize("value", ["mean", "3", "steps"])
def test_unknown_values_are_refused_with_those_that_there_are(value: str) -> None:
    refused(lambda: resolve(None, [], {}, [f"train.aggregate={value}"], {}), names="train.aggregate")


@pytest.mark.usefixtures("folder")
def test_train_says_what_it_used_and_what_was_asked_for_stays_open() -> None:
    """A second training of the same run, on credit of another method, is not averaged as the first."""
    for method, aggregate in (("carl", "token"), ("grpo", "step")):
        shutil.rmtree("new", ignore_errors=True)
        words = ("assign-credit", "runs/x", "--method", method, "--overwrite", "-q")
        assert (
            agentcli(*words, "--set", "credit.update=all" if method == "carl" else "credit.success_reward=1").code == 0
        )
        words = ("train", "runs/x", "--credit", method, "--overwrite", "--model", START)
        plan = json.loads(agentcli(*words, "--dry-run", "--json").stdout)
        assert plan["settings"]["train"]["aggregate"] == aggregate
        assert agentcli(*words, "-q").code == 0
        stage = read_json(Path("runs/x/manifest.json"), Manifest).stages["train"]
        assert (stage.statistics["aggregate"], stage.settings["train"]["aggregate"]) == (aggregate, None)


@pytest.mark.usefixtures("folder")
def test_the_loop_says_it_too() -> None:
    words = (
        "run",
        "--preset",
        "./toy.yaml",
        "--model",
        START,
        "-o",
        "new",
        "--set",
        "rollout.method=carl",
        "--roots",
        "1",
    )
    words = (*words, "--set", "credit.method=carl", "--set", "credit.update=all")
    plan = json.loads(agentcli(*words, "--dry-run", "--json").stdout)
    assert plan["settings"]["train"]["aggregate"] == "token"
    answer = succeeded(*words)
    assert "train.aggregate: token, which credit.method carl comes with\n" in answer.stderr
    assert read_json(Path("new/manifest.json"), Manifest).stages["run"].statistics["aggregate"] == "token"
    inner = read_json(Path("new/iteration_000/manifest.json"), Manifest).stages["train"]
    assert inner.statistics["aggregate"] == "token"
