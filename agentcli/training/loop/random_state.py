"""The random states of this process as tensors, and back: what a resumed training must
draw from.

LoRA's dropout draws from torch's generators; Python's and numpy's are kept because a
model's own code may draw from them.
"""

import math
import random

import numpy as np
import torch
from torch import Tensor


def random_state(device: torch.device) -> dict[str, Tensor]:
    """Python's, numpy's and torch's global generators, and the CUDA device's where
    there is one. One-dimensional, on the CPU.
    """
    _, words, gauss = random.getstate()
    _, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    states = {
        "python": torch.tensor(words, dtype=torch.int64),
        "python_gauss": torch.tensor(
            [math.nan if gauss is None else gauss], dtype=torch.float64
        ),
        "numpy": torch.tensor([*keys, position, has_gauss], dtype=torch.int64),
        "numpy_gauss": torch.tensor([cached], dtype=torch.float64),
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def restore_random_state(states: dict[str, Tensor], device: torch.device) -> None:
    """The reverse. Raises KeyError for a state that is not there. Clones, because torch
    reads a slice from its storage's start.
    """
    gauss = states["python_gauss"].item()
    random.setstate(
        (3, tuple(states["python"].tolist()), None if math.isnan(gauss) else gauss)
    )
    *keys, position, has_gauss = states["numpy"].tolist()
    np.random.set_state(
        (
            "MT19937",
            np.array(keys, dtype=np.uint32),
            position,
            has_gauss,
            states["numpy_gauss"].item(),
        )
    )
    torch.set_rng_state(states["torch"].clone())
    if device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"].clone(), device)
