"""Loading directories, adapters and what is not there."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from agentcli.policies.load import adapter_shape, load_model, load_tokenizer, resolve_device, resolve_dtype
from peft import LoraConfig, get_peft_model
from refusal import refused

IDS = torch.tensor([[4, 5, 6]])


@pytest.fixture
def base(model: Any, tokenizer: Any, tmp_path: Path) -> Path:
    model.save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    return tmp_path / "base"


@pytest.fixture
def adapter(base: Path, tmp_path: Path) -> Path:
    """A LoRA adapter that changes the model's answers."""
    peft = get_peft_model(load_model(str(base)), LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    peft.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


def test_a_directory_loads_ready_to_answer(base: Path, model: Any, capfd: pytest.CaptureFixture[str]) -> None:
    loaded = load_model(str(base))
    assert not loaded.training
    assert loaded.dtype == torch.float32
    assert torch.equal(loaded(IDS).logits, model(IDS).logits)
    assert load_tokenizer(str(base)).padding_side == "left"
    assert capfd.readouterr().err == ""


def test_an_adapter_is_applied_by_either_name(base: Path, adapter: Path) -> None:
    plain, beside, itself = (
        load_model(*names)(IDS).logits for names in ((str(base),), (str(base), str(adapter)), (str(adapter),))
    )
    assert torch.equal(beside, itself)
    assert not torch.allclose(plain, beside)
    assert load_tokenizer(str(adapter)).get_vocab() == load_tokenizer(str(base)).get_vocab()


def test_two_adapters_are_refused(adapter: Path) -> None:
    refused(lambda: load_model(str(adapter), str(adapter)), names=str(adapter))


def test_an_adapter_says_its_shape(adapter: Path) -> None:
    config = adapter / "adapter_config.json"
    fields = json.loads(config.read_text())
    config.write_text(json.dumps(fields | {"r": 4, "lora_alpha": 16}))
    assert adapter_shape(str(adapter)) == {"rank": 4, "alpha": 16}


@pytest.mark.parametrize("fault", [{"r": "x"}, {"r": None}, {"r": 2.5}, {"lora_alpha": True}, {"lora_alpha": [8]}])
def test_a_shape_that_cannot_be_read_is_named(adapter: Path, fault: dict[str, Any]) -> None:
    config = adapter / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | fault))
    refused(lambda: adapter_shape(str(adapter)), 3, names=("adapter_config.json", *fault), remedy="save the adapter")


def test_what_is_not_there_is_named(base: Path, adapter: Path, tmp_path: Path) -> None:
    nothing = str(tmp_path / "nothing")
    line = refused(lambda: load_model(nothing), 4, names=nothing, remedy="--model")
    assert "--preset" not in line, "which would be of another world than the one that was typed"
    refused(lambda: load_model(str(base), nothing), 4, names=nothing)
    (tmp_path / "empty").mkdir()
    refused(lambda: load_model(str(tmp_path / "empty")), 3, names="empty")
    refused(lambda: load_tokenizer(str(tmp_path / "empty")), 3, names="empty/tokenizer_config.json")
    (tmp_path / "empty/tokenizer_config.json").write_text("{}")
    refused(lambda: load_tokenizer(str(tmp_path / "empty")), 3, names="empty")
    (adapter / "adapter_config.json").write_text("{}")
    refused(lambda: load_model(str(adapter)), 3, names="base_model_name_or_path")


def test_devices_and_dtypes() -> None:
    assert resolve_dtype("auto", "cpu") == "float32"
    assert resolve_dtype("auto", "cuda") == "bfloat16"
    assert resolve_dtype("float16", "cpu") == "float16"
    assert resolve_device("cpu") == "cpu"
    refused(lambda: resolve_dtype("fp8", "cpu"), names=("policy.dtype", "fp8"))
    refused(lambda: resolve_device("gpu"), names=("policy.device", "gpu"))


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == "cpu"
    refused(lambda: resolve_device("cuda:1"), names=("policy.device", "cuda:1"), remedy="--device cpu")


def test_a_wrong_hub_id_is_refused_before_torch_is_loaded() -> None:
    program = """
import sys
from agentcli.errors import MissingError
from agentcli.policies.load import load_tokenizer
try:
    load_tokenizer("nowhere")
except MissingError:
    print([name for name in ("torch", "transformers") if name in sys.modules])
"""
    dead = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9"}
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=dead)
    assert answer.stdout.strip() == "[]"


def test_a_model_that_is_nowhere_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's own loader would ask a hub that cannot be reached for most of a minute."""
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    begun = time.monotonic()
    for load in (load_tokenizer, load_model):
        refused(lambda load=load: load("nowhere"), code=4, names="nowhere", remedy="--model")
    assert time.monotonic() - begun < 10
