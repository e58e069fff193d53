"""Apple's GPU: `auto` finds it, and what cannot be done there is refused in one line. Nothing here was run on one."""

import pytest
import torch
from agentcli.policies.load import resolve_device, resolve_dtype
from agentcli.records.settings import PolicySettings, Settings
from agentcli.records.training_settings import LoraSettings, SftSettings, TrainSettings
from agentcli.stages.memory import device_of
from agentcli.stages.plan import with_changes
from agentcli.stages.sampling import check_policy
from agentcli.training.loop.distributed import Processes
from agentcli.training.loop.trainer import trainer_arguments
from agentcli.training.objectives import check_sharding
from refusal import refused
from transformers import TrainingArguments


@pytest.fixture
def apple(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch sees Apple's GPU."""
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 12_000_000_000)


@pytest.mark.usefixtures("apple")
def test_auto_finds_it() -> None:
    assert resolve_device("auto") == resolve_device("mps") == "mps"
    assert resolve_device("cpu") == "cpu"
    assert resolve_dtype("auto", "mps") == "float32"
    device = device_of(PolicySettings())
    assert (device.name, device.free, device.is_gpu) == ("mps", 12_000_000_000, True)
    refused(lambda: resolve_device("cuda"), 2, "policy.device", "--device cpu")


def test_it_is_refused_where_it_is_not() -> None:
    assert resolve_device("auto") == "cpu"
    refused(lambda: resolve_device("mps"), 2, "policy.device", "--device cpu")


@pytest.mark.usefixtures("apple")
def test_a_trainer_computes_in_float32_and_recomputes(monkeypatch: pytest.MonkeyPatch) -> None:
    # The device itself cannot be opened here.
    monkeypatch.setattr(TrainingArguments, "device", property(lambda self: torch.device("cpu")))
    monkeypatch.setattr(TrainingArguments, "world_size", property(lambda self: 1))
    arguments = trainer_arguments(TrainingArguments, 0, Processes(0, 1))
    assert not arguments.use_cpu
    assert not arguments.bf16
    assert arguments.gradient_checkpointing


@pytest.mark.usefixtures("apple")
@pytest.mark.parametrize(
    ("section", "settings", "processes", "named"),
    [
        ("train", TrainSettings(), 2, "torchrun"),
        ("train", TrainSettings(sharding="fsdp"), 2, "torchrun"),
        ("sft", SftSettings(lora=LoraSettings(rank=4, bits=4)), 1, "sft.lora.bits=4"),
        ("train", TrainSettings(optimizer="adamw_8bit"), 1, "train.optimizer=adamw_8bit"),
        ("train", TrainSettings(bf16=True), 1, "train.bf16=true"),
    ],
)
def test_a_training_that_it_cannot_do_is_refused(
    section: str, settings: TrainSettings | SftSettings, processes: int, named: str
) -> None:
    refused(lambda: check_sharding(section, settings, processes), 2, named, "leave it out")


@pytest.mark.usefixtures("apple")
def test_a_plain_training_is_not_refused() -> None:
    check_sharding("train", TrainSettings(lora=LoraSettings(rank=4)), 1)
    check_sharding("sft", SftSettings(bf16=False), 1)


@pytest.mark.usefixtures("apple")
def test_vllm_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentcli.stages.sampling.require_installed", lambda *words: None)
    settings = with_changes(Settings(), policy={"kind": "vllm"})
    refused(lambda: check_policy(settings, "vllm"), 2, "policy.kind", "--policy transformers")
    check_policy(with_changes(settings, policy={"device": "cpu"}), "vllm")
