"""The tokens that stand for pictures, which a model that sees must not answer with.

In its own answer it would take one for a picture that it was not given.
"""

from typing import Any

import torch
from torch import Tensor

MODALITIES = ("image", "video", "audio")
LEAST_LOGIT = -3e4
"""Its probability is 0 in every dtype, and, as it is finite, so is its entropy."""


def placeholder_ids(config: Any) -> list[int]:
    """The tokens that a model's configuration has for pictures and the like."""
    names = [f"{modality}_token_id" for modality in MODALITIES]
    tokens = [getattr(config, name, None) for name in names]
    return [token for token in tokens if token is not None]


def withhold_placeholders(network: Any) -> None:
    """Has the network never answer with them, in samples and in training alike.

    A model that reads texts only stays as it is.
    """
    tokens = placeholder_ids(network.config)
    if not tokens:
        return

    def withhold(_head: Any, _inputs: Any, logits: Tensor) -> Tensor:
        columns = torch.tensor(tokens, device=logits.device)
        return logits.index_fill(-1, columns, LEAST_LOGIT)

    network.get_output_embeddings().register_forward_hook(withhold)
