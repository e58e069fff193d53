"""A policy from scratch that sees: a tiny policy with a small eye (LLaVA).

Pictures are cut into patches, and every patch becomes a token of the prompt. A world
that draws a cell as wide as a patch is read cell by cell, which is learned in minutes.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from agentcli.environments.protocol import Picture
from agentcli.policies.placeholders import withhold_placeholders
from agentcli.policies.sight import opened
from agentcli.policies.tiny import PICTURE, drawn, text_config
from agentcli.records.training_settings import TinySettings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


LEAST_SPREAD = 1 / 255
"""Of a colour, where pictures have it alike everywhere."""


class Look(NamedTuple):
    """What the pictures of a world have in common."""

    side: int
    """Pixels of the longest side."""
    mean: list[float]
    """Mean of red, green and blue, from 0 to 1."""
    spread: list[float]
    """Standard deviation of each."""


def look_of(pictures: Sequence[Picture]) -> Look:
    """The look of some pictures."""
    images = [opened(picture) for picture in pictures]
    side = max(max(image.size) for image in images)
    pixels = np.concatenate([np.asarray(image).reshape(-1, 3) for image in images])
    colours = pixels / 255
    spread = np.maximum(colours.std(axis=0), LEAST_SPREAD)
    return Look(int(side), colours.mean(axis=0).tolist(), spread.tolist())


def make_processor(
    tokenizer: "PreTrainedTokenizerFast", settings: TinySettings, look: Look
) -> Any:
    """The processor of a tiny policy for pictures of this look.

    Those of another size are scaled to the same square. Colours are centred on those of
    the world: what all patches share would hide what tells them apart.
    """
    from transformers import LlavaProcessor
    from transformers.models.siglip.image_processing_pil_siglip import (
        SiglipImageProcessorPil,
    )

    square = _square(settings, look)
    make_images: Any = SiglipImageProcessorPil
    image_processor = make_images(
        size={"height": square, "width": square},
        image_mean=look.mean,
        image_std=look.spread,
    )
    make: Any = LlavaProcessor
    return make(
        image_processor=image_processor,
        tokenizer=tokenizer,
        patch_size=settings.patch,
        vision_feature_select_strategy="full",
        chat_template=tokenizer.chat_template,
        image_token=PICTURE,
    )


def make_seeing_model(
    settings: TinySettings,
    tokenizer: "PreTrainedTokenizerFast",
    look: Look,
    seed: int,
) -> Any:
    """A float32 LLaVA with the text model of a tiny policy, drawn from `seed`.

    The global random state stays as it is. Raises UsageError for a shape that does not
    divide.
    """
    from transformers import (
        LlavaConfig,
        LlavaForConditionalGeneration,
        SiglipVisionConfig,
    )

    eye = SiglipVisionConfig(
        hidden_size=settings.hidden,
        intermediate_size=settings.intermediate,
        num_hidden_layers=settings.eye_layers,
        num_attention_heads=settings.heads,
        image_size=_square(settings, look),
        patch_size=settings.patch,
        vision_use_head=False,
    )
    config = LlavaConfig(
        vision_config=eye,
        text_config=text_config(settings, tokenizer),
        image_token_index=tokenizer.vocab[PICTURE],
        vision_feature_select_strategy="full",
        vision_feature_layer=-1,
    )
    model = drawn(LlavaForConditionalGeneration, config, tokenizer, seed)
    withhold_placeholders(model)
    return model


def _square(settings: TinySettings, look: Look) -> int:
    """Pixels of a side, whole patches."""
    return -(-look.side // settings.patch) * settings.patch
