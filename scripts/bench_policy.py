"""Times a reply of the policy against a bare `generate` on the same prompts.

Makes a random tiny model in memory; prints one JSON line with CPU seconds (best of the
repeats), which other work on the machine disturbs less than wall time, and tokens per
CPU second.
"""

import argparse
import asyncio
import json
import random
import time

import torch
from transformers import GenerationConfig

from agentcli.environments.protocol import Context
from agentcli.policies.chat import prompt_ids
from agentcli.policies.hf import PROMPT_BUCKET, TransformersPolicy
from agentcli.policies.protocol import Request
from agentcli.policies.tiny import make_model, make_tokenizer
from agentcli.prompts.protocol import Message, Moment
from agentcli.prompts.tagged import Tagged
from agentcli.records.settings import PolicySettings
from agentcli.records.training_settings import TinySettings
from agentcli.records.types import Task


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--prompt-words", type=int, default=58)
    parser.add_argument("--max-tokens", type=int, default=12)
    parser.add_argument("--vocabulary", type=int, default=480)
    parser.add_argument("--hidden", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)

    words = [f"word{index}" for index in range(options.vocabulary)]
    tokenizer = make_tokenizer(words, [])
    model = make_model(TinySettings(hidden=options.hidden), tokenizer, seed=0)
    rng = random.Random(0)
    policy_seconds, bare = [], []
    tokens = 0
    policy = TransformersPolicy(
        model, tokenizer, PolicySettings(batch_rows=options.requests)
    )
    for repeat in range(options.repeats):
        prompts = [
            " ".join(rng.choices(words, k=options.prompt_words))
            for _ in range(options.requests)
        ]
        started = time.process_time()
        tokens = asyncio.run(_ask(policy, prompts, options.max_tokens, repeat))
        policy_seconds.append(time.process_time() - started)
        bare.append(
            _generate(
                model,
                [prompt_ids(tokenizer, prompt) for prompt in prompts],
                options.max_tokens,
            )
        )
    asyncio.run(policy.close())
    best = min(policy_seconds)
    overhead = (best - min(bare)) / options.requests
    print(
        json.dumps(
            {
                "policy_cpu_seconds": round(best, 4),
                "generate_cpu_seconds": round(min(bare), 4),
                "overhead_us_per_request": round(1e6 * overhead, 1),
                "tokens": tokens,
                "tokens_per_cpu_second": round(tokens / best),
            }
        )
    )


async def _ask(
    policy: TransformersPolicy, prompts: list[str], max_tokens: int, salt: int
) -> int:
    task = Task(id="bench", world="bench", split="bench", kind="bench")
    moment = Moment(copies=(Context(task=task, instruction="", observations=("",)),))
    requests = [
        Request(
            message=Message((prompt,)),
            moment=moment,
            states=(),
            form=Tagged(),
            seed=1_000_003 * salt + index,
            episode_seed=0,
            temperature=1.0,
            max_tokens=max_tokens,
        )
        for index, prompt in enumerate(prompts)
    ]
    replies = await asyncio.gather(*map(policy.respond, requests))
    return sum(len(reply.token_ids) for reply in replies)


def _generate(
    model: torch.nn.Module, prompts: list[list[int]], max_tokens: int
) -> float:
    """CPU seconds of a bare greedy `generate` over the same prompts, padded as the
    policy pads them, that never stops early.
    """
    width = (max(map(len, prompts)) // PROMPT_BUCKET + 1) * PROMPT_BUCKET
    ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts])
    config = GenerationConfig(
        max_new_tokens=max_tokens, do_sample=False, pad_token_id=0
    )
    started = time.process_time()
    with torch.inference_mode():
        model.generate(
            input_ids=ids, attention_mask=(ids != 0).long(), generation_config=config
        )
    return time.process_time() - started


if __name__ == "__main__":
    main()
