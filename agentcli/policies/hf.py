"""The transformers policy: batches waiting requests for a causal language model.

The random noise of a sample is a function of the request's seed. layouts.py decides how
requests are batched: exact (a reply depends only on its request and the model) or fast.
"""

import sys
import time
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessorList

from agentcli.policies.batching import Batcher
from agentcli.policies.chat_tokens import (
    ChatTokens,
    Prompted,
    refuse_crowded,
    until_end,
)
from agentcli.policies.layouts import Batch, layout_of
from agentcli.policies.load import load_model, load_tokenizer, resolve_dtype
from agentcli.policies.protocol import Reply, Request
from agentcli.policies.sampling import Sampler
from agentcli.policies.sight import Eyesight, load_sight
from agentcli.records.settings import PolicySettings


class TransformersPolicy:
    """Samples responses from a causal language model with a chat template.

    `settings` gives the limits and the batch size, `sight` reads the messages of a
    vision model. Raises UsageError if neither the model nor the tokenizer names an
    end-of-turn token.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        settings: PolicySettings,
        sight: Eyesight | None = None,
    ) -> None:
        self.seconds = 0.0
        self._settings = settings
        self._model: Any = None
        self._take(model, tokenizer, sight)
        self._layout = layout_of(
            settings.batching, model.device.type, shares=sight is None
        )
        self._batcher: Batcher[Prompted, Reply] = Batcher(
            work=self._generate,
            key=self._layout.key,
            rows=settings.batch_rows,
            linger_seconds=settings.linger_ms / 1000,
        )

    async def load(self, checkpoint: str) -> None:
        """Replaces the weights by those of another directory.

        A model of another shape (the first adapter of a loop) replaces the whole model.
        Raises what `load_model` and `load_tokenizer` raise.
        """
        device = self._model.device
        dtype = resolve_dtype(self._settings.dtype, device.type)
        values = self._settings.chat_template_kwargs
        tokenizer = load_tokenizer(checkpoint, values)
        # On the CPU first: the GPU need not hold two models.
        loaded = load_model(checkpoint, device="cpu", dtype=dtype)
        self._take(loaded, tokenizer, load_sight(checkpoint, values))
        # Keys and values of conversations were computed with the former weights.
        self._layout.forget()
        self._model.to(device)

    def _take(self, model: Any, tokenizer: Any, sight: Eyesight | None) -> None:
        """Uses this model from now on.

        If the shapes are the same, its weights are copied into the current model.
        """
        self.tokens = ChatTokens(
            tokenizer,
            model.generation_config.eos_token_id,
            self._settings.max_prompt_tokens,
            sight,
        )
        self._pad: int = tokenizer.pad_token_id
        if self._pad is None:
            # It is masked, so any token will do.
            self._pad = self.tokens.ends[0]
        text = model.config.get_text_config()
        self._longest = getattr(text, "max_position_embeddings", None) or sys.maxsize
        if self._model is not None and _shape(model) == _shape(self._model):
            self._model.load_state_dict(model.state_dict())
            return
        # Another shape, or the first model.
        self._model = model.eval()
        _forget_sampling_settings(model)

    async def respond(self, request: Request) -> Reply:
        """Samples one response.

        Raises PromptTooLongError for a prompt longer than policy.max_prompt_tokens, or
        one that leaves no room for the response in the model's context.
        """
        item = self.tokens.prompted(request)
        refuse_crowded(item, self._longest)
        reply = await self._batcher.submit(item)
        return self.tokens.with_shared_tokens(reply, item, request)

    async def rest(self) -> None:
        """Does nothing: a training loads its own weights in addition to these."""

    async def close(self) -> None:
        """Ends the worker thread and releases the model."""
        self._batcher.close()
        self._model = None

    def _generate(self, items: list[Prompted]) -> list[Reply]:
        """Replies to one batch of items with equal keys, in the worker thread."""
        started = time.perf_counter()
        sampler = Sampler(
            seeds=[item.seed for item in items],
            temperatures=[item.temperature for item in items],
            end=self.tokens.ends[0],
            device=self._model.device,
        )
        configuration = GenerationConfig(
            max_new_tokens=items[0].max_tokens,
            # Noise is in the scores already (sampling.py); argmax is the draw.
            do_sample=False,
            eos_token_id=self.tokens.ends,
            pad_token_id=self._pad,
            return_dict_in_generate=True,
        )
        with torch.inference_mode():
            batch = self._layout.batch(self._model, items, self._pad)
            output = self._model.generate(
                input_ids=batch.ids_BT,
                attention_mask=batch.mask_BT,
                past_key_values=batch.cache,
                **self._pictures(items, batch),
                generation_config=configuration,
                logits_processor=LogitsProcessorList([sampler]),
            )
            sequences = output.sequences
            logprobs = sampler.logprobs(sequences)
        width = batch.ids_BT.shape[1]
        generated = sequences[: len(items), width:].tolist()
        responses = [until_end(row, self.tokens.ends) for row in generated]
        self._layout.keep(items, batch, responses, output.past_key_values)
        replies = []
        for item, response, row in zip(items, responses, logprobs, strict=True):
            replies.append(self.tokens.reply(item, response, row[: len(response)]))
        self.seconds += time.perf_counter() - started
        return replies

    def _pictures(self, items: list[Prompted], batch: Batch) -> dict[str, Any]:
        """The additional inputs of a vision model for one batch."""
        if self.tokens.sight is None:
            return {}
        rows, width = batch.ids_BT.shape
        # Copies of the first prompt fill the batch.
        filled = items + items[:1] * (rows - len(items))
        messages = [item.message for item in filled if item.message is not None]
        tensors = self.tokens.sight.tensors(messages, width, "left")
        device = self._model.device
        return {name: value.to(device) for name, value in tensors.items()}


def _shape(model: Any) -> tuple[Any, ...]:
    """Everything that two models must share for one to take the other's weights."""
    # Every checkpoint of a loop has another path, and the same shape.
    config = {**model.config.to_dict(), "_name_or_path": ""}
    peft_configs = getattr(model, "peft_config", {})
    adapters = {name: adapter.to_dict() for name, adapter in peft_configs.items()}
    tensors = {
        name: (tensor.shape, tensor.dtype)
        for name, tensor in model.state_dict().items()
    }
    return type(model), config, adapters, tensors


def _forget_sampling_settings(model: Any) -> None:
    """Removes sampling settings, e.g. top_k, that are stored with the model.

    `generate` uses them as defaults, and an adapter has its own copy. With any of
    these, tokens would not be drawn from the model's softmax.
    """
    for part in model.modules():
        if hasattr(part, "generation_config"):
            part.generation_config = GenerationConfig()
