"""One engine: what it answers, what it refuses, and a reload that kept an old head."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from agentcli.policies import vllm_engine
from agentcli.policies.load import load_model
from agentcli.policies.protocol import Reply, Request
from agentcli.policies.registry import make_policy
from agentcli.policies.reload_check import check_weights_of_engine
from agentcli.policies.vllm import VllmPolicy
from agentcli.records.settings import PolicySettings, Settings
from policy_requests import make_requests
from refusal import refusal, refused
from small_world import SmallWorld
from transformers import Qwen2Config
from vllm_commands import NEEDS_VLLM

pytestmark = NEEDS_VLLM

MODEL, OTHER = "sft/checkpoint", "other"
SETTINGS = Settings(policy=PolicySettings(kind="vllm", max_prompt_tokens=256, max_tokens=64))


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def policy(made: Path, runner: asyncio.Runner) -> Iterator[VllmPolicy]:
    async def start() -> VllmPolicy:
        policy = make_policy(SETTINGS, SmallWorld(), None, str(made / MODEL))
        assert isinstance(policy, VllmPolicy)
        return policy

    policy = runner.run(start())
    yield policy
    runner.run(policy.close())


async def ask(policy: VllmPolicy, requests: list[Request]) -> list[Reply]:
    return await asyncio.gather(*map(policy.respond, requests))


@pytest.mark.parametrize("temperature", [0.0, 0.4, 1.0])
def test_log_probabilities_are_those_of_the_sampled_distribution(
    policy: VllmPolicy, runner: asyncio.Runner, folder: Path, temperature: float
) -> None:
    requests = make_requests(16, seed=1, temperature=temperature)
    replies = runner.run(ask(policy, requests))
    samples = [(policy.tokens.prompted(request), reply) for request, reply in zip(requests, replies, strict=True)]
    check_weights_of_engine(MODEL, samples, "float32")
    assert {reply.logprob_temperature for reply in replies} == {temperature or 1.0}


def test_a_reply_is_its_request_s_in_any_company(policy: VllmPolicy, runner: asyncio.Runner) -> None:
    requests = make_requests(24, seed=2)
    replies = runner.run(ask(policy, requests))
    assert runner.run(ask(policy, requests[::-1])) == replies[::-1]
    assert runner.run(ask(policy, requests[:1])) == replies[:1]
    assert runner.run(ask(policy, make_requests(24, seed=3))) != replies


def test_what_is_cancelled_is_aborted(policy: VllmPolicy, runner: asyncio.Runner) -> None:
    async def cut() -> Any:
        outputs = policy._engine._engine.output_processor
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


def test_a_reload_that_keeps_the_old_head_is_refused(
    policy: VllmPolicy, runner: asyncio.Runner, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM's own reload does so where embeddings are tied, unless the files hold the head."""
    model = load_model(MODEL)
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
    model.save_pretrained(OTHER)
    policy.tokens._tokenizer.save_pretrained(OTHER)
    runner.run(policy.load(OTHER))

    @contextmanager
    def without_head(checkpoint: Path) -> Iterator[Path]:
        yield checkpoint

    monkeypatch.setattr(vllm_engine, "folder_with_head", without_head)
    with refusal(1, remedy="--resume"):
        runner.run(policy.load(MODEL))
