"""A vision policy trained from scratch: a tiny policy with a small encoder (LLaVA).

Pictures are cut into patches, and every patch becomes a token of the prompt. If a world
draws its cells as wide as a patch, the policy reads cell by cell, which it learns in
minutes.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from agentcli.environments.protocol import Picture
from agentcli.policies.load import withhold_placeholders
from agentcli.policies.sight import opened
from agentcli.policies.tiny import PICTURE, drawn, text_config
from agentcli.records.training_settings import TinySettings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


LEAST_SPREAD = 1 / 255
"""Lower bound of a colour's standard deviation, which may be 0 in the pictures."""


class Look(NamedTuple):
    """What the pictures of a world have in common."""

    side: int
    """Length of the longest side, in pixels."""
    mean: list[float]
    """Mean of red, green and blue, each from 0 to 1."""
    spread: list[float]
    """Standard deviation of each colour."""


def look_of(pictures: Sequence[Picture]) -> Look:
    """Computes the look of some pictures."""
    images = [opened(picture) for picture in pictures]
    # The longest side of any picture, so none loses a row of pixels.
    side = max(max(image.size) for image in images)
    pixels = np.concatenate([np.asarray(image).reshape(-1, 3) for image in images])
    colours = pixels / 255
    spread = np.maximum(colours.std(axis=0), LEAST_SPREAD)
    return Look(int(side), colours.mean(axis=0).tolist(), spread.tolist())


def make_processor(
    tokenizer: "PreTrainedTokenizerFast", settings: TinySettings, look: Look
) -> Any:
    """The processor of a tiny policy for pictures with this look.

    Pictures of other sizes are scaled to the same square. Colours are normalised by the
    world's mean: what all patches share would hide how they differ.
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
    """A float32 LLaVA with the text model of a tiny policy, initialised from `seed`.

    The global random state does not change. Raises UsageError if the sizes do not
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
        # The head pools all patches into one vector; here each is a token.
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
    """The side of the square in pixels, a whole number of patches."""
    return -(-look.side // settings.patch) * settings.patch
