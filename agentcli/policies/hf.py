"""The transformers policy: a causal language model answers all that is waiting.

The noise of a draw is a function of the request's seed. How requests come together is
layouts.py's: exact, where a reply depends on its request and the model alone, or fast.
"""

import time
from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import takewhile
from typing import Any

import msgspec
import torch
from transformers import GenerationConfig, LogitsProcessorList

from agentcli.errors import PromptTooLongError, UsageError
from agentcli.policies.batching import Batcher
from agentcli.policies.chat import prompt_ids
from agentcli.policies.layouts import Prompted, layout_of
from agentcli.policies.load import load_model, load_tokenizer, resolve_dtype
from agentcli.policies.protocol import Reply, Request
from agentcli.policies.sampling import Sampler
from agentcli.records.settings import PolicySettings
from agentcli.records.types import StopReason

PROMPTS_REMEMBERED = 4096
"""Siblings and revisited states ask with the same prompt: its tokens are kept."""


class TransformersPolicy:
    """Samples responses from a causal language model with a chat template.

    `settings` gives the limits and the batch shape. Raises UsageError when neither the
    model nor the tokenizer names an end-of-turn token.
    """

    def __init__(self, model: Any, tokenizer: Any, settings: PolicySettings) -> None:
        self.seconds = 0.0
        self._settings = settings
        self._model: Any = None
        self._take(model, tokenizer)
        self._layout = layout_of(settings.batching, model.device.type)
        self._batcher: Batcher[Prompted, Reply] = Batcher(
            work=self._generate,
            key=self._layout.key,
            rows=settings.batch_rows,
            linger_seconds=settings.linger_ms / 1000,
        )

    def load(self, checkpoint: str) -> None:
        """Takes the weights of another directory in the place of the present ones.

        A model of another shape (the first adapter of a loop) replaces the present one.
        Raises what `load_model` and `load_tokenizer` raise.
        """
        device = self._model.device
        dtype = resolve_dtype(self._settings.dtype, device.type)
        tokenizer = load_tokenizer(checkpoint)
        loaded = load_model(checkpoint, device="cpu", dtype=dtype)
        self._take(loaded, tokenizer)
        self._model.to(device)

    def _take(self, model: Any, tokenizer: Any) -> None:
        """Answers with this model from now on.

        Its weights are copied into the present one where both have the same shape.
        """
        self._tokenizer = tokenizer
        self._ends = _end_tokens(model, tokenizer)
        self._pad: int = tokenizer.pad_token_id
        if self._pad is None:
            self._pad = self._ends[0]
        self._prompt_ids = lru_cache(PROMPTS_REMEMBERED)(partial(prompt_ids, tokenizer))
        if self._model is not None and _shape(model) == _shape(self._model):
            self._model.load_state_dict(model.state_dict())
            return
        # Another shape, or the first model.
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
        item = Prompted(prompt, request.seed, request.temperature, request.max_tokens)
        reply = await self._batcher.submit(item)
        if not request.parent_prompt:
            return reply
        shared = common_prefix(prompt, self._prompt_ids(request.parent_prompt))
        return msgspec.structs.replace(reply, shared_prompt_tokens=shared)

    @property
    def rows_per_batch(self) -> float:
        """Mean number of requests generated together so far."""
        return self._batcher.items / max(1, self._batcher.batches)

    async def close(self) -> None:
        """Lets go of the worker thread and the model."""
        self._batcher.close()
        self._model = None

    def _generate(self, items: list[Prompted]) -> list[Reply]:
        """Replies to one batch of equal keys, in the worker thread."""
        started = time.perf_counter()
        sampler = Sampler(
            seeds=[item.seed for item in items],
            temperatures=[item.temperature for item in items],
            end=self._ends[0],
            device=self._model.device,
        )
        configuration = GenerationConfig(
            max_new_tokens=items[0].max_tokens,
            do_sample=False,
            eos_token_id=self._ends,
            pad_token_id=self._pad,
        )
        prompts = [item.prompt for item in items]
        with torch.inference_mode():
            batch = self._layout.batch(self._model, prompts, self._pad)
            sequences = self._model.generate(
                input_ids=batch.ids_BT,
                attention_mask=batch.mask_BT,
                past_key_values=batch.cache,
                generation_config=configuration,
                logits_processor=LogitsProcessorList([sampler]),
            )
            logprobs = sampler.logprobs(sequences)
        width = batch.ids_BT.shape[1]
        generated = sequences[: len(items), width:].tolist()
        responses = [self._until_end(tokens) for tokens in generated]
        replies = self._replies(items, responses, logprobs)
        self.seconds += time.perf_counter() - started
        return replies

    def _until_end(self, tokens: list[int]) -> list[int]:
        """The response up to and including its end-of-turn token."""
        for index, token in enumerate(tokens):
            if token in self._ends:
                return tokens[: index + 1]
        return tokens

    def _replies(
        self,
        items: list[Prompted],
        responses: list[list[int]],
        logprobs: list[list[float]],
    ) -> list[Reply]:
        """The replies of a batch. Their text is without the end-of-turn token."""
        bare = []
        for response in responses:
            ended = response[-1] in self._ends
            bare.append(response[:-1] if ended else response)
        texts = self._tokenizer.batch_decode(bare, skip_special_tokens=True)
        replies = []
        for item, response, text, logprobs_row in zip(
            items, responses, texts, logprobs, strict=True
        ):
            ended = response[-1] in self._ends
            reply = Reply(
                text=text,
                token_ids=tuple(response),
                logprobs=tuple(logprobs_row[: len(response)]),
                temperature=item.temperature,
                logprob_temperature=item.temperature or 1.0,
                prompt_tokens=len(item.prompt),
                stop=StopReason.STOP if ended else StopReason.LENGTH,
            )
            replies.append(reply)
        return replies


def _shape(model: Any) -> tuple[Any, ...]:
    """Everything two models must share for one to take the other's weights."""
    config = {**model.config.to_dict(), "_name_or_path": ""}
    peft_configs = getattr(model, "peft_config", {})
    adapters = {name: adapter.to_dict() for name, adapter in peft_configs.items()}
    tensors = {
        name: (tensor.shape, tensor.dtype)
        for name, tensor in model.state_dict().items()
    }
    return type(model), config, adapters, tensors


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both begin with."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """End-of-turn ids of the tokenizer, then of the generation config."""
    configured = model.generation_config.eos_token_id
    if not isinstance(configured, list):
        configured = [configured]
    tokens = dict.fromkeys([tokenizer.eos_token_id, *configured])
    ends = [token for token in tokens if token is not None]
    if not ends:
        raise UsageError(
            "policy.model: neither generation_config.json nor the tokenizer names an "
            "eos token; set one there"
        )
    return ends


def _forget_sampling_settings(model: Any) -> None:
    """Removes top_k, a repetition penalty and the like that are stored with the model.

    `generate` fills what a call leaves open from them, and an adapter keeps its own
    copy. With any of these, tokens would not be drawn from the model's softmax.
    """
    for part in model.modules():
        if hasattr(part, "generation_config"):
            part.generation_config = GenerationConfig()
