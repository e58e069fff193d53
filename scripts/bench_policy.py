"""Times the policy against a bare, padded `generate` on the same prompts, in CPU seconds.

Both ways of batching take turns with the bare call, so that whatever else the machine
does slows all of them; printed are medians, and ratios to the bare call of the same
round. Prompts are random words of the model's; without --model a random tiny one is
made. Responses are greedy for the bare call, and sampled for the policy.

    python scripts/bench_policy.py
    python scripts/bench_policy.py --model DIR --prompts 4 --words 330 420 --siblings 2
"""

import argparse
import asyncio
import random
import time
from statistics import median
from typing import Any

import torch
from transformers import GenerationConfig

from agentcli.environments.protocol import Context
from agentcli.policies.chat import prompt_ids
from agentcli.policies.hf import TransformersPolicy
from agentcli.policies.load import load_model, load_tokenizer
from agentcli.policies.protocol import Policy, Request
from agentcli.policies.tiny import make_model, make_tokenizer
from agentcli.prompts.protocol import Message, Moment
from agentcli.prompts.tagged import Tagged
from agentcli.records.settings import PolicySettings
from agentcli.records.training_settings import TinySettings
from agentcli.records.types import Task

ENGLISH = ["the", "agent", "opens", "a", "fridge", "looking", "for", "an", "apple"]
LAYOUTS = ("exact", "fast")


def main() -> None:
    """Measures and prints."""
    options = _options()
    torch.set_num_threads(1)
    model, tokenizer, words = _model(options)
    seconds: dict[str, list[float]] = {"bare": [], **{name: [] for name in LAYOUTS}}
    tokens = 0
    for repeat in range(options.repeats):
        prompts = _prompts(options, words, random.Random(repeat))
        ids = [prompt_ids(tokenizer, prompt) for prompt in prompts]
        seconds["bare"].append(_generate(model, ids, options.max_tokens))
        for name in LAYOUTS:
            settings = PolicySettings(batch_rows=len(prompts), batching=name)
            policy = TransformersPolicy(model, tokenizer, settings)
            started = time.process_time()
            tokens = asyncio.run(ask(policy, prompts, options.max_tokens, repeat))
            seconds[name].append(time.process_time() - started)
    rows = options.prompts * options.siblings
    print(f"{rows} rows, {tokens} tokens, {options.repeats} rounds, {model.dtype}")
    for name, took in seconds.items():
        ratios = [one / bare for one, bare in zip(took, seconds["bare"], strict=True)]
        print(f"{name:6} {median(took):8.3f} CPU s   {median(ratios):6.2f} x bare")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="a model directory; none: a random tiny one")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--siblings", type=int, default=1, help="rows of each prompt")
    parser.add_argument("--words", type=int, nargs=2, default=(58, 58))
    parser.add_argument("--max-tokens", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=5)
    return parser.parse_args()


def _model(options: argparse.Namespace) -> tuple[Any, Any, list[str]]:
    """The model, its tokenizer, and words that it knows."""
    if options.model:
        model = load_model(options.model, device="cpu", dtype=options.dtype)
        return model, load_tokenizer(options.model), ENGLISH
    words = [f"word{index}" for index in range(480)]
    tokenizer = make_tokenizer(words, [])
    return make_model(TinySettings(), tokenizer, seed=0), tokenizer, words


def _prompts(
    options: argparse.Namespace, words: list[str], rng: random.Random
) -> list[str]:
    low, high = options.words
    prompts = []
    for index in range(options.prompts):
        length = low + (high - low) * index // max(1, options.prompts - 1)
        prompts += [" ".join(rng.choices(words, k=length))] * options.siblings
    return prompts


async def ask(policy: Policy, prompts: list[str], max_tokens: int, salt: int) -> int:
    """How many tokens a policy answers prompts with."""
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


def _generate(model: Any, prompts: list[list[int]], max_tokens: int) -> float:
    """CPU seconds of a bare greedy `generate`, padded to the longest, that never stops."""
    width = max(map(len, prompts))
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
