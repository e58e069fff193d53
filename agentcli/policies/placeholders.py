"""The tokens that stand for pictures, which a vision model must not sample.

In its own response it would mistake one for a picture, although there is none.
"""

from typing import Any

import torch
from torch import Tensor

MODALITIES = ("image", "video", "audio")
LEAST_LOGIT = -3e4
"""Gives probability 0 in every dtype; because it is finite, so is the entropy."""


def placeholder_ids(config: Any) -> list[int]:
    """The tokens that a model's configuration reserves for pictures and the like."""
    names = [f"{modality}_token_id" for modality in MODALITIES]
    tokens = [getattr(config, name, None) for name in names]
    return [token for token in tokens if token is not None]


def withhold_placeholders(network: Any) -> None:
    """Prevents the network from sampling them, both in sampling and in training.

    A text-only model is not changed.
    """
    tokens = placeholder_ids(network.config)
    if not tokens:
        return

    def withhold(_head: Any, _inputs: Any, logits: Tensor) -> Tensor:
        columns = torch.tensor(tokens, device=logits.device)
        return logits.index_fill(-1, columns, LEAST_LOGIT)

    network.get_output_embeddings().register_forward_hook(withhold)
