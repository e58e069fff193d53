"""One engine: what it answers, what it refuses, and reloads that kept old weights."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from agentcli.policies import vllm_engine
from agentcli.policies.load import load_model
from agentcli.policies.protocol import Reply, Request
from agentcli.policies.registry import make_policy
from agentcli.policies.vllm_engine import VllmPolicy, check_vllm, engine_options
from agentcli.records.settings import PolicySettings, RolloutSettings, Settings, VllmSettings
from agentcli.records.training_settings import LoraSettings, TrainSettings
from peft import LoraConfig, get_peft_model
from policy_requests import make_requests
from refusal import refusal, refused
from small_world import SmallWorld
from transformers import Qwen2Config
from vllm_commands import NEEDS_VLLM, ON_CPU, REPLICAS

pytestmark = NEEDS_VLLM

MODEL, OTHER = "sft/checkpoint", "other"
SETTINGS = Settings(policy=PolicySettings(kind="vllm", dtype="float32", max_prompt_tokens=256, max_tokens=64))
LARGEST_GAP = 1e-3
STEP = 1e-6
"""What one update moves a weight by at the default learning rate."""


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


async def started(settings: Settings, model: Path) -> VllmPolicy:
    policy = make_policy(settings, SmallWorld(), None, str(model))
    assert isinstance(policy, VllmPolicy)
    return policy


@pytest.fixture(scope="module")
def policy(made: Path, runner: asyncio.Runner) -> Iterator[VllmPolicy]:
    policy = runner.run(started(SETTINGS, made / MODEL))
    yield policy
    runner.run(policy.close())


def moved(model: Any, step: float) -> Any:
    """The model after every weight took a step, up or down."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += step * torch.randn_like(parameter).sign()
    return model


@torch.inference_mode()
def gap(network: Any, prompt: list[int], reply: Reply) -> float:
    """The largest difference to the network's log-probabilities."""
    ids_1T = torch.tensor([[*prompt, *reply.token_ids]])
    logits_NV = network(input_ids=ids_1T).logits[0, len(prompt) - 1 : -1].float() / reply.logprob_temperature
    logprobs_NV = torch.log_softmax(logits_NV, dim=-1)
    logprobs_N = logprobs_NV.gather(-1, torch.tensor(reply.token_ids)[:, None])[:, 0]
    return float((logprobs_N - torch.tensor(reply.logprobs)).abs().max())


async def ask(policy: VllmPolicy, requests: list[Request]) -> list[Reply]:
    return await asyncio.gather(*map(policy.respond, requests))


@pytest.mark.parametrize("temperature", [0.0, 0.4, 1.0])
def test_log_probabilities_are_those_of_the_sampled_distribution(
    policy: VllmPolicy, runner: asyncio.Runner, folder: Path, temperature: float
) -> None:
    requests = make_requests(16, seed=1, temperature=temperature)
    replies = runner.run(ask(policy, requests))
    network = load_model(MODEL, device="cpu", dtype="float32")
    for request, reply in zip(requests, replies, strict=True):
        assert gap(network, policy.tokens.prompted(request).prompt, reply) < LARGEST_GAP
    assert {reply.logprob_temperature for reply in replies} == {temperature or 1.0}


@pytest.mark.skipif(not ON_CPU, reason="vLLM promises no equal bits on a GPU")
def test_a_reply_is_its_request_s_in_any_company(policy: VllmPolicy, runner: asyncio.Runner) -> None:
    requests = make_requests(24, seed=2)
    replies = runner.run(ask(policy, requests))
    assert runner.run(ask(policy, requests[::-1])) == replies[::-1]
    assert runner.run(ask(policy, requests[:1])) == replies[:1]
    assert runner.run(ask(policy, make_requests(24, seed=3))) != replies


def test_what_is_cancelled_is_aborted(policy: VllmPolicy, runner: asyncio.Runner) -> None:
    async def cut() -> Any:
        outputs = policy._engine.output_processor
        work = asyncio.gather(*(policy.respond(request) for request in make_requests(16, seed=4, max_tokens=64)))
        while not outputs.get_num_unfinished_requests():  # noqa: ASYNC110 - vLLM has no event for it
            await asyncio.sleep(0)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        return outputs.get_num_unfinished_requests()

    assert runner.run(cut()) == 0


def test_a_prompt_without_room_for_its_response_is_refused(policy: VllmPolicy, runner: asyncio.Runner) -> None:
    (request,) = make_requests(1, seed=5, max_tokens=4000)
    refused(lambda: runner.run(policy.respond(request)), 1, names="policy.max_tokens", remedy="max_model_len")


def test_heads_that_a_cpu_cannot_compute_are_refused(tmp_path: Path) -> None:
    Qwen2Config(hidden_size=96, num_attention_heads=4).save_pretrained(tmp_path)
    model = str(tmp_path)
    refused(lambda: vllm_engine.refuse_odd_heads(model), names=(model, "24"), remedy="--policy transformers")


def test_what_is_in_flight_sets_the_size_of_a_batch_and_options_replace_it(made: Path) -> None:
    model = str(made / MODEL)
    growing = msgspec.structs.replace(SETTINGS, rollout=RolloutSettings(concurrency=16, leaves=8))
    options = engine_options(model, growing, 0)
    assert (options["max_num_seqs"], options["max_num_batched_tokens"]) == (128, 8192)
    assert (
        engine_options(model, msgspec.structs.replace(SETTINGS, rollout=RolloutSettings(concurrency=1)), 0)[
            "max_num_seqs"
        ]
        == 64
    )
    wanted = {"max_num_seqs": 5, "hf_overrides": {"rope_theta": 1.0}}
    chosen = PolicySettings(kind="vllm", vllm=VllmSettings(options=wanted, replicas=3))
    options = engine_options(model, Settings(policy=chosen, train=TrainSettings(float32_head=True)), 0)
    assert (options["max_num_seqs"], options["data_parallel_size"]) == (5, 3)
    assert options["hf_overrides"] == {"rope_theta": 1.0, "head_dtype": "float32"}


def test_an_option_that_vllm_does_not_have_is_refused() -> None:
    chosen = PolicySettings(kind="vllm", vllm=VllmSettings(options={"max_num_seq": 3}))
    refused(lambda: check_vllm(Settings(policy=chosen)), names="policy.vllm.options.max_num_seq", remedy="max_num_seqs")


async def skipped(self: VllmPolicy, folder: Path) -> None:
    """In the place of VllmPolicy._reload."""


def test_an_engine_that_missed_one_small_update_is_refused(
    policy: VllmPolicy, runner: asyncio.Runner, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved(load_model(MODEL, device="cpu"), STEP).save_pretrained("updated")
    runner.run(policy.load("updated"))
    runner.run(policy.load(MODEL))
    monkeypatch.setattr(VllmPolicy, "_reload", skipped)
    runner.run(policy.load(MODEL))
    refused(lambda: runner.run(policy.load("updated")), 1, names="updated", remedy="--resume")


@pytest.mark.skipif(not ON_CPU, reason="on a GPU the head and the embeddings are one parameter")
def test_a_reload_that_keeps_the_old_head_is_refused(
    policy: VllmPolicy, runner: asyncio.Runner, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM's own reload does so where embeddings are tied, unless the files hold the head."""
    moved(load_model(MODEL, device="cpu"), 0.02).save_pretrained(OTHER)
    runner.run(policy.load(OTHER))

    @contextmanager
    def without_head(checkpoint: Path) -> Iterator[Path]:
        yield checkpoint

    monkeypatch.setattr(vllm_engine, "folder_with_head", without_head)
    with refusal(1, remedy="--resume"):
        runner.run(policy.load(MODEL))


def test_replicas_load_an_adapter_and_one_that_kept_another_is_refused(runner: asyncio.Runner, folder: Path) -> None:
    adapted = get_peft_model(
        load_model(MODEL, device="cpu"), LoraConfig(r=3, lora_alpha=5, target_modules="all-linear")
    )
    adapted.peft_config["default"].base_model_name_or_path = str(folder / MODEL)
    for name in ("first-adapter", "second-adapter"):
        for path, parameter in adapted.named_parameters():
            if "lora_" in path:
                parameter.data += STEP * torch.randn_like(parameter).sign()
        adapted.save_pretrained(name)
    chosen = msgspec.structs.replace(SETTINGS.policy, vllm=VllmSettings(replicas=REPLICAS))
    settings = msgspec.structs.replace(SETTINGS, policy=chosen, train=TrainSettings(lora=LoraSettings(rank=3)))
    policy = runner.run(started(settings, folder / MODEL))
    runner.run(policy.load("first-adapter"))
    runner.run(policy.load("second-adapter"))
    # vLLM ignores an adapter whose number it has.
    last = next(policy._numbers)
    policy._numbers = iter([last - 1])
    refused(lambda: runner.run(policy.load("first-adapter")), 1, names="first-adapter", remedy="--resume")
    runner.run(policy.close())
