"""Times the vllm policy against vLLM itself, and against the transformers policy.

One engine serves both of the first two, which take turns on the same prompts with an
empty cache, forth in one round and back in the next. Printed are medians of wall
seconds; of the ratios within a round the median, the least and the greatest. The
transformers policy has `policy.batching=fast`. It runs where vLLM is installed.

    python scripts/bench_vllm.py --model DIR --prompts 16 --siblings 4
"""

import argparse
import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any

import torch
from bench_policy import ENGLISH, ask

from agentcli.environments.registry import make_world
from agentcli.policies.hf import TransformersPolicy
from agentcli.policies.load import load_model, load_tokenizer
from agentcli.policies.protocol import Policy
from agentcli.policies.registry import make_policy
from agentcli.policies.vllm_engine import VllmPolicy
from agentcli.records.settings import PolicySettings, Settings

Answer = Callable[[list[str], int], Awaitable[int]]
"""Answers prompts, with seeds that follow from a number; how many tokens."""


async def main() -> None:
    """Measures and prints."""
    options = _options()
    torch.set_num_threads(1)
    rows = options.prompts * options.siblings
    policy = PolicySettings(
        kind="vllm", batch_rows=rows, batching="fast", max_tokens=options.max_tokens
    )
    settings = Settings(policy=policy)
    engine = make_policy(
        settings, make_world(settings.environment), None, options.model
    )
    assert isinstance(engine, VllmPolicy)
    model = load_model(options.model)
    plain = TransformersPolicy(model, load_tokenizer(options.model), policy)
    ways: dict[str, Answer] = {
        "vLLM itself": _itself(engine, options.max_tokens),
        "vllm policy": _asking(engine, options.max_tokens),
        "transformers policy": _asking(plain, options.max_tokens),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(-1, options.repeats):
        prompts = _prompts(options, random.Random(repeat))
        for name in list(ways)[:: -1 if repeat % 2 else 1]:
            answer = ways[name]
            await engine._engine.reset_prefix_cache()
            started = time.perf_counter()
            tokens = await answer(prompts, repeat + 1)
            took = time.perf_counter() - started
            print(f"round {repeat}: {name}: {took:.2f} s, {tokens} tokens", flush=True)
            # The first round warms up.
            if repeat >= 0:
                seconds[name].append(took)
    await engine.close()
    for name, took_all in seconds.items():
        pairs = zip(seconds["vllm policy"], took_all, strict=True)
        ratios = sorted(other / one for one, other in pairs)
        print(
            f"{name:20} {median(took_all):8.2f} s   {median(ratios):6.2f} x the vllm "
            f"policy's ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        )


def _asking(policy: Policy, max_tokens: int) -> Answer:
    async def answer(prompts: list[str], salt: int) -> int:
        return await ask(policy, prompts, max_tokens, salt)

    return answer


def _itself(policy: VllmPolicy, max_tokens: int) -> Answer:
    """The engine without the policy, asked with the same tokens and seeds."""
    from vllm import SamplingParams, TokensPrompt
    from vllm.sampling_params import RequestOutputKind

    engine: Any = policy._engine

    async def one(ids: list[int], seed: int) -> int:
        parameters = SamplingParams(
            temperature=1.0,
            seed=seed,
            max_tokens=max_tokens,
            logprobs=0,
            stop_token_ids=policy.tokens.ends,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        prompt = TokensPrompt(prompt_token_ids=ids)
        async for output in engine.generate(prompt, parameters, f"raw-{seed}"):
            length = len(output.outputs[0].token_ids)
        return length

    async def answer(prompts: list[str], salt: int) -> int:
        seeds = [1_000_003 * salt + index for index in range(len(prompts))]
        ids = map(policy.tokens.prompt_ids, prompts)
        return sum(await asyncio.gather(*map(one, ids, seeds)))

    return answer


def _prompts(options: argparse.Namespace, rng: random.Random) -> list[str]:
    """Random words; every prompt is there once for each sibling."""
    prompts = []
    for _ in range(options.prompts):
        length = rng.randint(options.words // 2, options.words)
        prompts += [" ".join(rng.choices(ENGLISH, k=length))] * options.siblings
    return prompts


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Times the vllm policy.")
    parser.add_argument("--model", required=True, help="Model directory.")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--siblings", type=int, default=1)
    parser.add_argument("--words", type=int, default=200, help="Longest prompt.")
    parser.add_argument("--max-tokens", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main())
