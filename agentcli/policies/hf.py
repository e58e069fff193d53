"""The transformers policy: any causal language model answers, batched across everything
that is waiting.

A reply depends on its request and the model alone. On a CPU in float32 with one thread
it is bit-identical whoever shares the batch, because prompts are padded on the left to
a length that depends on their own length only, always by a token at least (transformers
attends by another kernel where a batch needs no mask), only equal lengths are batched,
rows come in multiples of eight, and the noise of a draw is a function of the request's
seed. Several threads and GPUs split their sums by batch size: there, log-probabilities
differ in the last bits, and a near tie may fall otherwise.
"""

import time
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import msgspec
import torch
from transformers import GenerationConfig, LogitsProcessorList

from agentcli.errors import PromptTooLongError, UsageError
from agentcli.policies.batching import Batcher
from agentcli.policies.chat import prompt_ids
from agentcli.policies.load import load_model, load_tokenizer, resolve_dtype
from agentcli.policies.protocol import Reply, Request
from agentcli.policies.sampling import Sampler
from agentcli.records.settings import PolicySettings
from agentcli.records.types import StopReason

ROWS = 8
"""Rows of a batch are padded to a multiple of this."""
PROMPT_BUCKET = 32
"""Prompts are padded to the next multiple of this many tokens, a multiple itself to the
one after it.
"""
PROMPTS_REMEMBERED = 4096
"""Siblings and revisited states ask with the same prompt: its tokens are kept."""


class _Item(msgspec.Struct, frozen=True):
    """One request, tokenised."""

    prompt: list[int]
    seed: int
    temperature: float
    max_tokens: int

    @property
    def key(self) -> tuple[int, int, bool]:
        """Requests with equal keys may share a batch."""
        return (
            (len(self.prompt) // PROMPT_BUCKET + 1) * PROMPT_BUCKET,
            self.max_tokens,
            self.temperature == 0,
        )


class TransformersPolicy:
    """Samples responses from a causal LM with a chat template. `settings` gives the
    limits and the batch shape.
    """

    def __init__(self, model: Any, tokenizer: Any, settings: PolicySettings) -> None:
        """Raises UsageError when neither the model nor the tokenizer names an
        end-of-turn token.
        """
        self.seconds = 0.0
        self._settings = settings
        self._model: Any = None
        self._take(model, tokenizer)
        self._batcher: Batcher[_Item, Reply] = Batcher(
            self._generate,
            lambda item: item.key,
            settings.batch_rows,
            settings.linger_ms / 1000,
        )

    def load(self, checkpoint: str) -> None:
        """Take the weights of another directory in the place of the present ones.

        A model of another shape (the first adapter of a loop) replaces the present one.
        Raises what `load_model` and `load_tokenizer` raise.
        """
        device = self._model.device
        tokenizer = load_tokenizer(checkpoint)
        loaded = load_model(
            checkpoint,
            device="cpu",
            dtype=resolve_dtype(self._settings.dtype, device.type),
        )
        self._take(loaded, tokenizer)
        self._model.to(device)

    def _take(self, model: Any, tokenizer: Any) -> None:
        """Answer with this model: its weights are copied into the present one where
        both have the same shape.
        """
        self._tokenizer = tokenizer
        self._ends = _end_tokens(model, tokenizer)
        self._pad = (
            tokenizer.pad_token_id
            if tokenizer.pad_token_id is not None
            else self._ends[0]
        )
        self._prompt_ids = lru_cache(PROMPTS_REMEMBERED)(partial(prompt_ids, tokenizer))
        if self._model is not None and _shape(model) == _shape(self._model):
            self._model.load_state_dict(model.state_dict())
            return
        self._model = model.eval()
        _forget_sampling_settings(model)

    async def respond(self, request: Request) -> Reply:
        """Raises PromptTooLongError for a prompt longer than policy.max_prompt_tokens."""
        prompt = self._prompt_ids(request.prompt)
        if len(prompt) > self._settings.max_prompt_tokens:
            raise PromptTooLongError(
                f"the prompt has {len(prompt)} tokens, policy.max_prompt_tokens is "
                f"{self._settings.max_prompt_tokens}; raise it, or shorten prompts "
                "with --history"
            )
        reply = await self._batcher.submit(
            _Item(prompt, request.seed, request.temperature, request.max_tokens)
        )
        if not request.parent_prompt:
            return reply
        shared = common_prefix(prompt, self._prompt_ids(request.parent_prompt))
        return msgspec.structs.replace(reply, shared_prompt_tokens=shared)

    @property
    def rows_per_batch(self) -> float:
        """Mean number of requests generated together so far."""
        return self._batcher.items / max(1, self._batcher.batches)

    async def close(self) -> None:
        """Let go of the worker thread and the model."""
        self._batcher.close()
        self._model = None

    def _generate(self, items: list[_Item]) -> list[Reply]:
        """One batch of equal keys, in the worker thread."""
        started = time.perf_counter()
        width, max_tokens, _ = items[0].key
        device = self._model.device
        sampler = Sampler(
            [item.seed for item in items],
            [item.temperature for item in items],
            self._ends[0],
            device,
        )
        ids_BT, mask_BT = self._padded([item.prompt for item in items], width)
        with torch.inference_mode():
            sequences = self._model.generate(
                input_ids=ids_BT.to(device),
                attention_mask=mask_BT.to(device),
                generation_config=GenerationConfig(
                    max_new_tokens=max_tokens,
                    do_sample=False,
                    eos_token_id=self._ends,
                    pad_token_id=self._pad,
                ),
                logits_processor=LogitsProcessorList([sampler]),
            )
            logprobs = sampler.logprobs(sequences)
        responses = [
            self._until_end(row) for row in sequences[: len(items), width:].tolist()
        ]
        replies = self._replies(items, responses, logprobs)
        self.seconds += time.perf_counter() - started
        return replies

    def _padded(
        self, prompts: list[list[int]], width: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """ids and mask [B, width], B a multiple of ROWS: prompts at the right end, then
        copies of the first one.
        """
        rows = prompts + prompts[:1] * (-len(prompts) % ROWS)
        ids = [[self._pad] * (width - len(row)) + row for row in rows]
        mask = [[0] * (width - len(row)) + [1] * len(row) for row in rows]
        return torch.tensor(ids), torch.tensor(mask)

    def _until_end(self, tokens: list[int]) -> list[int]:
        """The response up to and including its end-of-turn token."""
        for index, token in enumerate(tokens):
            if token in self._ends:
                return tokens[: index + 1]
        return tokens

    def _replies(
        self,
        items: list[_Item],
        responses: list[list[int]],
        logprobs: list[list[float]],
    ) -> list[Reply]:
        stopped = [response[-1] in self._ends for response in responses]
        bare = [
            response[:-1] if stop else response
            for response, stop in zip(responses, stopped, strict=True)
        ]
        texts = self._tokenizer.batch_decode(bare, skip_special_tokens=True)
        return [
            Reply(
                text=text,
                token_ids=tuple(response),
                logprobs=tuple(logprob[: len(response)]),
                temperature=item.temperature,
                logprob_temperature=item.temperature or 1.0,
                prompt_tokens=len(item.prompt),
                stop=StopReason.STOP if stop else StopReason.LENGTH,
            )
            for item, text, response, logprob, stop in zip(
                items, texts, responses, logprobs, stopped, strict=True
            )
        ]


def _shape(model: Any) -> tuple[Any, ...]:
    """All that two models must have in common so that one can take the other's weights."""
    config = model.config.to_dict()
    adapters = {
        name: adapter.to_dict()
        for name, adapter in getattr(model, "peft_config", {}).items()
    }
    tensors = {
        name: (tensor.shape, tensor.dtype)
        for name, tensor in model.state_dict().items()
    }
    return type(model), {**config, "_name_or_path": ""}, adapters, tensors


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both begin with."""
    unlike = (
        place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b
    )
    return next(unlike, min(len(one), len(other)))


def _end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """End-of-turn ids of the generation config and the tokenizer, the tokenizer's
    first.
    """
    configured = model.generation_config.eos_token_id
    several = configured if isinstance(configured, list) else [configured]
    ends = [
        token
        for token in dict.fromkeys([tokenizer.eos_token_id, *several])
        if token is not None
    ]
    if not ends:
        raise UsageError(
            "policy.model: neither generation_config.json nor the tokenizer names an "
            "eos token; set one there"
        )
    return ends


def _forget_sampling_settings(model: Any) -> None:
    """`generate` fills what a call leaves open from settings stored with the model
    (top_k, a repetition penalty), and an adapter keeps its own copy of them: with any
    of these, the tokens would not be drawn from the model's softmax.
    """
    for part in model.modules():
        if hasattr(part, "generation_config"):
            part.generation_config = GenerationConfig()
