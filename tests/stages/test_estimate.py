"""What a dry run expects, held against what the stages leave."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import Settings
from agentcli.records.training_settings import LoraSettings
from agentcli.reports.output import readable
from agentcli.stages.estimate import checkpoint_bytes, expected_of_rollout, parameters_of, weight_shapes
from bad_input_runs import START, folder
from command_line import agentcli
from safetensors import safe_open

__all__ = ["folder"]

pytestmark = pytest.mark.usefixtures("folder")


def expected(*words: str) -> dict[str, Any]:
    answer = agentcli(*words, "--dry-run", "--json")
    assert answer.code == 0, answer
    values: dict[str, Any] = json.loads(answer.stdout)["expected"]
    return values


def tensors_in(file: Path) -> int:
    with safe_open(file, framework="np") as weights:
        return sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118


def test_parameters_are_counted_without_loading() -> None:
    count = tensors_in(Path(START, "model.safetensors"))
    whole = parameters_of(START, LoraSettings())
    assert whole is not None
    assert whole[:2] == (count, count)
    # The toy policy has one layer.
    assert whole.layer + whole.outside == count
    adapter = tensors_in(Path("runs/lora/checkpoint/adapter_model.safetensors"))
    for model in (START, "runs/lora/checkpoint"):
        adapted = parameters_of(model, LoraSettings(rank=2))
        assert adapted is not None
        assert adapted[:2] == (count + adapter, adapter)


@pytest.mark.parametrize("model", [None, "tiny", "nobody/nothing"])
def test_a_model_that_is_not_here_is_not_known(model: str | None) -> None:
    assert parameters_of(model, LoraSettings()) is None
    assert expected_of_rollout(Settings(), Path("runs/new"), model, 4).memory_bytes is None


def test_the_weights_of_an_iteration_take_what_was_expected() -> None:
    parameters = parameters_of(START, LoraSettings())
    assert parameters is not None
    run = RunDirectory(Path("runs/loop/iteration_000"))
    weights = (run.checkpoint / "model.safetensors").stat().st_size
    # Headers of the files are not counted.
    assert checkpoint_bytes(parameters) == pytest.approx(weights + run.optimizer.stat().st_size, rel=0.15)


def test_an_earlier_run_says_how_long_a_tree_takes() -> None:
    shutil.rmtree("runs/loop")
    record = RunDirectory(Path("runs/x")).finished("rollout")
    assert record is not None
    again = expected("rollout", "-c", "toy.yaml", "--model", START, "--tasks", "2", "-o", "runs/new")
    whole = expected("rollout", "-c", "toy.yaml", "--model", START, "-o", "runs/new")
    assert whole["disk_bytes"] == Path("runs/x/trees.jsonl").stat().st_size
    assert again["disk_bytes"] == round(whole["disk_bytes"] / 2)
    assert whole["seconds"] == round(record.seconds["wall"])
    other = expected("rollout", "-c", "toy.yaml", "--model", START, "--leaves", "3", "-o", "runs/new")
    assert (other["disk_bytes"], other["seconds"]) == (None, None)


def test_a_loop_expects_what_it_keeps() -> None:
    loop = ("run", "./toy.yaml", "--model", START, "-o", "runs/new", "--iterations", "9")
    kept = {keep: expected(*loop, "--keep", keep)["disk_bytes"] for keep in ("1", "2", "5", "20")}
    parameters = parameters_of(START, LoraSettings())
    assert parameters is not None
    one = checkpoint_bytes(parameters)
    assert kept["2"] - kept["1"] == one
    assert kept["20"] - kept["1"] == 8 * one
    assert expected(*loop)["seconds"] is not None


@pytest.mark.parametrize("words", [("train", "runs/x", "-o", "new"), ("sft", "runs/demos", "--model", START)])
def test_a_training_expects_sixteen_bytes_a_parameter(words: tuple[str, ...]) -> None:
    parameters = parameters_of(START, LoraSettings())
    assert parameters is not None
    adapter = tensors_in(Path("runs/lora/checkpoint/adapter_model.safetensors"))
    whole, half = (expected(*words, *lora)["memory"] for lora in ((), ("--lora", "2")))
    of_all = {name: whole[name] / parameters.all for name in ("weights", "gradients", "optimiser")}
    assert of_all == {"weights": 4, "gradients": 4, "optimiser": 8}
    assert half["weights"] == 4 * (parameters.all + adapter)
    assert half["gradients"] + half["optimiser"] == 12 * adapter
    assert half["activations"] < whole["activations"]


def test_an_estimate_is_read_in_the_units_of_people() -> None:
    values = {"disk_bytes": 18_000_000_000, "memory_bytes": None, "seconds": 3723, "basis": "because", "memory": {}}
    assert readable(values) == {"disk": "18.0 GB", "memory at most": "not known", "time": "1:02:03", "basis": "because"}


def test_damaged_weights_are_not_known() -> None:
    Path(START, "model.safetensors").write_bytes(b"x")
    assert parameters_of(START, LoraSettings()) is None
    assert weight_shapes("runs") is None
