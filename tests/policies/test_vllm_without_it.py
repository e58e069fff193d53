"""What of the vllm policy can be held without vLLM: refusals, the files it is given, the check after a reload."""

import asyncio
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from agentcli.policies.chat_tokens import configured_ends
from agentcli.policies.hf import TransformersPolicy
from agentcli.policies.load import load_model, load_tokenizer
from agentcli.policies.reload_check import Sample, check_weights_of_engine
from agentcli.policies.vllm_engine import HEAD, environment, folder_with_head, longest_sequence, rank_of
from agentcli.records.settings import PolicySettings, Settings
from agentcli.stages.resolve import find_model
from agentcli.stages.serve import served_name
from command_line import agentcli
from peft import LoraConfig, get_peft_model
from policy_requests import make_requests
from refusal import refused
from safetensors import safe_open
from safetensors.torch import load_file, save_file

Saved = Callable[[str], Path]


@pytest.fixture
def saved(model: Any, tokenizer: Any, tmp_path: Path) -> Saved:
    """Saves the model under a name, a little further from the last one each time."""

    def save(name: str) -> Path:
        folder = tmp_path / name
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.02 * torch.randn_like(parameter)
        return folder

    return save


def sampled(folder: Path) -> list[Sample]:
    """Responses of the model in a folder."""
    policy = TransformersPolicy(load_model(str(folder)), load_tokenizer(str(folder)), PolicySettings())

    async def ask() -> list[Sample]:
        requests = make_requests(4, seed=3)
        replies = await asyncio.gather(*map(policy.respond, requests))
        return [(policy.tokens.prompted(request), reply) for request, reply in zip(requests, replies, strict=True)]

    return asyncio.run(ask())


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vllm is installed here")
def test_without_vllm_the_extra_is_named(tmp_path: Path) -> None:
    answer = agentcli("rollout", "--policy", "vllm", "--model", str(tmp_path), "-o", str(tmp_path / "new"))
    refused(answer, 4, names="vllm", remedy="pip install 'agentcli[vllm]'")
    refused(agentcli("serve", "--model", str(tmp_path)), 4, names="vllm", remedy="pip install 'agentcli[vllm]'")


def test_the_served_name_says_which_weights_answer(saved: Saved, tmp_path: Path) -> None:
    runs = [saved("one/checkpoint"), saved("two/checkpoint")]
    one, two = (served_name(str(run)) for run in runs)
    assert one.startswith("one-")
    assert one.removeprefix("one-") != two.removeprefix("two-")
    runs[0].parent.rename(tmp_path / "three")
    assert served_name(str(tmp_path / "three" / "checkpoint")) == one.replace("one", "three")
    assert served_name("org/model") == "org/model"


def test_the_model_is_found_as_that_of_the_transformers_policy(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    settings = Settings(policy=PolicySettings(kind="vllm"))
    assert find_model(settings, tmp_path) == str(tmp_path / "checkpoint")


def test_a_tied_model_gets_a_head_for_the_reload_alone(saved: Saved) -> None:
    tied = saved("tied")
    with folder_with_head(tied) as folder:
        weights = {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}
        assert torch.equal(weights[HEAD], weights["model.embed_tokens.weight"])
        assert (folder / "config.json").read_bytes() == (tied / "config.json").read_bytes()
    assert not folder.exists()
    with safe_open(tied / "model.safetensors", framework="pt") as weights:
        assert HEAD not in weights.keys()  # noqa: SIM118 - no mapping


def test_a_model_with_a_head_is_reloaded_as_it_is(saved: Saved) -> None:
    checkpoint = saved("untied")
    weights = load_file(checkpoint / "model.safetensors")
    save_file({**weights, HEAD: weights["model.embed_tokens.weight"] + 1}, checkpoint / "model.safetensors")
    with folder_with_head(checkpoint) as folder:
        assert folder == checkpoint


def test_responses_of_the_checkpoint_pass_and_those_of_other_weights_do_not(saved: Saved) -> None:
    first, second = saved("first"), saved("second")
    samples = sampled(first)
    check_weights_of_engine(str(first), samples, "float32")
    refused(lambda: check_weights_of_engine(str(second), samples, "float32"), 1, names=str(second), remedy="--resume")


def test_the_mean_is_judged_in_16_bits(saved: Saved) -> None:
    first = saved("first")
    samples = sampled(first)
    check_weights_of_engine(str(first), samples, "bfloat16")
    for _ in range(8):
        far = saved("far")
    refused(lambda: check_weights_of_engine(str(far), samples, "bfloat16"), 1, names=str(far))


def test_the_rank_of_an_adapter(model: Any, tmp_path: Path) -> None:
    adapted = get_peft_model(model, LoraConfig(r=3, target_modules="all-linear", task_type="CAUSAL_LM"))
    adapted.save_pretrained(tmp_path)
    assert rank_of(str(tmp_path)) == 3
    (tmp_path / "adapter_config.json").write_text("{}")
    refused(lambda: rank_of(str(tmp_path)), 3, names="adapter_config.json")


def test_what_an_engine_reads_is_set_for_its_start_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "INFO")
    monkeypatch.delenv("OMP_NUM_THREADS")
    before = dict(os.environ)
    with environment(threads=3):
        assert os.environ["VLLM_LOGGING_LEVEL"] == "INFO"
        assert os.environ["OMP_NUM_THREADS"] == "3"
        assert os.environ["VLLM_NO_USAGE_STATS"] == "1"
    assert dict(os.environ) == before


def test_what_a_model_says_of_itself(saved: Saved, model: Any) -> None:
    folder = saved("model")
    ends = configured_ends(str(folder))
    assert ends == model.generation_config.eos_token_id
    assert longest_sequence(str(folder)) == model.config.max_position_embeddings
    (folder / "generation_config.json").unlink()
    assert configured_ends(str(folder)) == model.config.eos_token_id
