"""What a dry run expects, held against what the stages leave."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from agentcli.policies.load import adapter_base
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import Settings, VllmSettings
from agentcli.records.training_settings import LoraSettings, TrainSettings
from agentcli.reports.output import readable
from agentcli.stages.memory import (
    Device,
    ModelSize,
    RowSize,
    holds_reference,
    known_size,
    need_of_loop,
    need_of_update,
    size_of,
)
from agentcli.stages.plan import with_changes
from bad_input_runs import START, folder
from command_line import succeeded
from safetensors import safe_open

__all__ = ["folder"]

pytestmark = pytest.mark.usefixtures("folder")


def expected(*words: str) -> dict[str, Any]:
    answer = succeeded(*words, "--dry-run", "--json")
    values: dict[str, Any] = json.loads(answer.stdout)["expected"]
    return values


def tensors_in(file: Path) -> int:
    with safe_open(file, framework="np") as weights:
        return sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118


def test_parameters_are_counted_without_loading() -> None:
    count = tensors_in(Path(START, "model.safetensors"))
    whole = size(START)
    assert whole[:2] == (count, count)
    with safe_open(Path(START, "model.safetensors"), framework="np") as weights:
        in_layers = [name for name in weights.keys() if ".layers." in name]  # noqa: SIM118
        assert whole.layer == sum(math.prod(weights.get_slice(name).get_shape()) for name in in_layers)
    adapter = tensors_in(Path("runs/lora/checkpoint/adapter_model.safetensors"))
    for model in (START, "runs/lora/checkpoint"):
        assert size(model, rank=2)[:2] == (count + adapter, adapter)


def size(model: str, rank: int = 0) -> ModelSize:
    known = known_size(model, LoraSettings(rank=rank))
    assert isinstance(known, ModelSize), known
    return known


@pytest.mark.parametrize("model", [None, "tiny", "nobody/nothing"])
def test_a_model_that_is_not_here_is_not_known(model: str | None) -> None:
    reason = known_size(model, LoraSettings())
    assert isinstance(reason, str)
    if model == "nobody/nothing":
        assert model in reason
    assert "\n" not in reason


def test_a_hub_id_is_estimated_by_the_configuration_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """No weight was fetched."""
    cache = Path("cache").resolve()
    snapshot = cache / "models--somebody--model" / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    shutil.copy(Path(START, "config.json"), snapshot)
    revision = cache / "models--somebody--model" / "refs" / "main"
    revision.parent.mkdir()
    revision.write_text("1")
    for module in ("huggingface_hub.constants.HF_HUB_CACHE", "huggingface_hub.file_download.constants.HF_HUB_CACHE"):
        monkeypatch.setattr(module, str(cache))
    monkeypatch.setattr("transformers.utils.hub.constants.HF_HUB_CACHE", str(cache))
    assert size("somebody/model") == size(START)


GPU = Device("cuda", 80_000_000_000, 80_000_000_000)
QWEN_7B = {
    "hidden_size": 3584,
    "intermediate_size": 18_944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152_064,
    "tie_word_embeddings": False,
}


def held(reference: bool = False, **changed: Any) -> dict[str, int]:
    """What a loop with a model of 7B and an adapter holds of a GPU, at its fullest moment."""
    from transformers import AutoModelForCausalLM, Qwen2Config

    train = {"lora": LoraSettings(rank=16), "rows_per_microbatch": 8, **changed.pop("train", {})}
    settings = with_changes(Settings(), train=train, **changed)
    size = size_of(AutoModelForCausalLM, Qwen2Config(**QWEN_7B), settings.train.lora.rank)
    return need_of_loop(size, settings, GPU, reference=reference).parts


def test_the_parameters_of_a_published_model_are_those_of_its_card() -> None:
    from transformers import AutoModelForCausalLM, Qwen2Config

    assert size_of(AutoModelForCausalLM, Qwen2Config(**QWEN_7B), 0).all == 7_615_616_512


def test_a_loop_counts_what_is_held_together() -> None:
    parts = held()
    # float32 for training beside bfloat16 for sampling.
    assert parts["weights"] == pytest.approx(2 * parts["sampler at rest"], rel=0.01)
    scored = held(reference=True)
    assert scored["reference"] == pytest.approx(parts["weights"], rel=0.01)
    # It is freed before gradients and moments exist.
    assert "optimiser" not in scored


def test_a_frozen_base_takes_its_bits() -> None:
    lora = LoraSettings(rank=2, bits=4)
    train = TrainSettings(lora=lora)
    parts = need_of_update(size(START, rank=2), RowSize(1, 8, 4), train, GPU, whole=1).parts
    adapter = size(START, rank=2).trained
    assert parts["weights"] == size(START).all // 2 + 4 * adapter


def test_a_loop_counts_what_vllm_takes() -> None:
    everything = {"lora": LoraSettings()}
    asleep = held(train=everything, policy={"kind": "vllm"})
    assert asleep["sampler at rest"] < 3_000_000_000
    # An engine that does not sleep keeps its share of the GPU while the trainer works.
    awake = held(policy={"kind": "vllm", "vllm": VllmSettings(sleep=0)})
    assert awake["sampler at rest"] == pytest.approx(72_000_000_000)
    # A reward model is beside the engine's share.
    judged = held(policy={"kind": "vllm"}, rollout={"prm": "prm"})
    assert sum(judged.values()) > 72_000_000_000 + 15_000_000_000


@pytest.mark.parametrize(
    ("start", "rank", "reference", "beta", "held"),
    [
        (START, 0, None, 0.1, False),
        (START, 0, START, 0.1, True),
        (START, 0, START, 0.0, False),
        (START, 2, START, 0.1, False),
        ("runs/lora/checkpoint", 2, "its base", 0.1, False),
        ("runs/lora/checkpoint", 2, "runs/lora/checkpoint", 0.1, True),
    ],
)
def test_a_reference_of_its_own_is_counted(start: str, rank: int, reference: str, beta: float, held: bool) -> None:
    if reference == "its base":
        reference = str(adapter_base(start))
    lora = LoraSettings(rank=rank)
    assert holds_reference(TrainSettings(lora=lora, reference=reference, beta=beta), start) == held


def test_the_weights_of_an_iteration_take_what_was_expected() -> None:
    run = RunDirectory(Path("runs/loop/iteration_000"))
    weights = (run.checkpoint / "model.safetensors").stat().st_size
    # Headers of the files are not counted.
    assert 12 * size(START).trained == pytest.approx(weights + run.optimizer.stat().st_size, rel=0.15)


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
    loop = ("run", "--preset", "./toy.yaml", "--model", START, "-o", "runs/new", "--iterations", "9")
    kept = {keep: expected(*loop, "--keep", keep)["disk_bytes"] for keep in ("1", "2", "5", "20")}
    one = 12 * size(START).trained
    assert kept["2"] - kept["1"] == one
    assert kept["20"] - kept["1"] == 8 * one
    assert expected(*loop)["seconds"] is not None


@pytest.mark.parametrize("words", [("train", "runs/x", "-o", "new"), ("sft", "runs/demos", "--model", START)])
def test_a_training_expects_sixteen_bytes_a_parameter(words: tuple[str, ...]) -> None:
    parameters = size(START)
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
