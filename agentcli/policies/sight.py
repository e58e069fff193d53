"""How a vision model reads a message: texts and pictures through its processor.

Sampling, sft and train all use it, so that training uses the same input as sampling. A
processor adds as many tokens to the prompt as the model needs for a picture, and
returns the further tensors that the model takes.

Shape suffixes: T padded length of a batch.
"""

from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from agentcli.environments.protocol import Picture
from agentcli.errors import UsageError
from agentcli.policies.chat import (
    plain,
    set_template_kwargs,
    stop_clock,
    template_kwargs,
)
from agentcli.policies.load import adapter_base, first_line, loading, sees
from agentcli.prompts.protocol import Message

ALIGNED = ("mm_token_type_ids", "token_type_ids")
"""Tensors with one number per token: 0 for text and for padding."""
MADE_OF_TOKENS = ("input_ids", "attention_mask")
"""Tensors that the code that builds a batch makes from the tokens."""
BYTES_REMEMBERED = 2**29
"""Size of the cache of processed messages: siblings, updates and batches repeat them.
"""


class ModelInputs(NamedTuple):
    """One message in the form that a model takes."""

    ids: list[int]
    """Token ids up to the start of the model's turn."""
    tensors: dict[str, Tensor]
    """The inputs besides the tokens, by the name of the model's argument."""

    @property
    def bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())


class Eyesight:
    """Reads messages with the processor of a vision model."""

    def __init__(self, processor: Any) -> None:
        self.processor = processor
        self._readings: dict[Message, ModelInputs] = {}
        self._bytes = 0

    def prompt_ids(self, message: Message) -> list[int]:
        """Token ids of the message up to the start of the model's turn.

        Raises UsageError for a message that the processor cannot read.
        """
        return self._read(message).ids

    def tensors(
        self, messages: Sequence[Message], width: int, padding_side: str = "right"
    ) -> dict[str, Tensor]:
        """The inputs besides the tokens, for a batch of prompts.

        The rows of the batch are `width` tokens long. Tensors of different sizes are
        padded with zeros, as processors do.
        """
        readings = [self._read(message) for message in messages]
        batch = {}
        for name in sorted({name for reading in readings for name in reading.tensors}):
            parts = []
            for reading in readings:
                part = reading.tensors.get(name)
                if part is not None and name in ALIGNED:
                    part = _widened(part, width, padding_side)
                if part is not None:
                    parts.append(part)
            batch[name] = _stacked(parts)
        return batch

    def _read(self, message: Message) -> ModelInputs:
        reading = self._readings.get(message)
        if reading is not None:
            return reading
        processed = self._applied(
            [{"role": "user", "content": self._content(message)}],
            len(message.pictures),
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        )
        tensors = dict(processed)
        for name in MADE_OF_TOKENS:
            tensors.pop(name, None)
        reading = ModelInputs(processed["input_ids"][0].tolist(), tensors)
        self._bytes += reading.bytes
        if self._bytes > BYTES_REMEMBERED:
            self._readings.clear()
            self._bytes = reading.bytes
        self._readings[message] = reading
        return reading

    def rendered(self, prompt: str, response: str | None = None) -> str:
        """A conversation without pictures as text, as in chat.py."""
        turns = [{"role": "user", "content": self._content(Message((prompt,)))}]
        if response is not None:
            answer = self._content(Message((response,)))
            turns.append({"role": "assistant", "content": answer})
        prompts = response is None
        text: str = self._applied(turns, 0, add_generation_prompt=prompts)
        return text

    def _applied(
        self, turns: Sequence[Any], pictures: int, **options: bool | str
    ) -> Any:
        """What the processor makes of a conversation with this many pictures."""
        # Processors raise various exceptions for input that they cannot take.
        try:
            return self.processor.apply_chat_template(
                turns, **options, **template_kwargs(self.processor.tokenizer)
            )
        except (ValueError, TypeError, LookupError, StopIteration) as error:
            raise UsageError(
                f"policy.model: its {type(self.processor).__name__} cannot read a "
                f"message with {pictures} pictures ({first_line(error)}); "
                "name another --model"
            ) from error

    def _content(self, message: Message) -> list[dict[str, Any]]:
        """Texts and pictures in order, with control tokens broken up."""
        content: list[dict[str, Any]] = []
        for part in message.parts:
            if isinstance(part, str):
                content.append({"type": "text", "text": self.plain(part)})
            else:
                content.append({"type": "image", "image": opened(part)})
        return content

    def plain(self, text: str) -> str:
        """The text with control tokens broken up, including those for pictures."""
        text = plain(self.processor.tokenizer, text)
        for token in self.processor.all_special_multimodal_tokens:
            text = text.replace(token, f"{token[0]} {token[1:]}")
        return text


def load_sight(
    model: str, chat_template_kwargs: Mapping[str, Any] | None = None
) -> Eyesight | None:
    """Loads the processor with which a model reads messages with pictures.

    None for a text-only model. An adapter uses its base model's. Raises MissingError if
    there is nothing to load, DataError for a damaged directory.
    """
    if not sees(model):
        return None
    source = adapter_base(model) or model
    from transformers import AutoProcessor

    with loading("policy.model", source, "processor"):
        processor = AutoProcessor.from_pretrained(source, padding_side="left")
    stop_clock(processor)
    set_template_kwargs(processor.tokenizer, source, chat_template_kwargs)
    return Eyesight(processor)


def opened(picture: Picture) -> Any:
    """The picture as a Pillow image in RGB."""
    from PIL import Image

    return Image.open(BytesIO(picture.png), formats=["PNG"]).convert("RGB")


def beside_weights(tokenizer: Any, sight: Eyesight | None) -> Any:
    """What is saved with the weights: tokenizer, or processor containing it."""
    return tokenizer if sight is None else sight.processor


def picture_names(messages: Iterable[Message]) -> list[list[str]]:
    """The names of the pictures in messages; equal names mean equal pictures."""
    return [[picture.name for picture in message.pictures] for message in messages]


def _widened(part: Tensor, width: int, side: str) -> Tensor:
    """A tensor (1, T') padded with zeros to (1, T)."""
    missing = width - part.shape[1]
    return pad(part, (missing, 0) if side == "left" else (0, missing))


def _stacked(parts: Sequence[Tensor]) -> Tensor:
    """Concatenates tensors, padding smaller ones with zeros."""
    sizes = torch.tensor([part.shape[1:] for part in parts])
    largest = sizes.amax(dim=0).tolist() if sizes.numel() else []
    filled = []
    for part in parts:
        # `pad` counts from the last dimension.
        margins: list[int] = []
        for size, most in zip(reversed(part.shape[1:]), reversed(largest), strict=True):
            margins += [0, most - size]
        filled.append(pad(part, margins) if any(margins) else part)
    return torch.cat(filled)
