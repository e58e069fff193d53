"""The random states of this process as tensors, for resuming a training.

LoRA's dropout uses torch's generators. Python's and numpy's are saved because a model's
own code may use them.
"""

import math
import random

import numpy as np
import torch
from torch import Tensor


def random_state(device: torch.device) -> dict[str, Tensor]:
    """States of Python's, numpy's and torch's global generators, as 1-D tensors.

    On a GPU, also the state of that device. All tensors are on the CPU.
    """
    _, words, gauss = random.getstate()
    _, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    second_gauss = math.nan if gauss is None else gauss
    states = {
        "python": torch.tensor(words, dtype=torch.int64),
        "python_gauss": torch.tensor([second_gauss], dtype=torch.float64),
        "numpy": torch.tensor([*keys, position, has_gauss], dtype=torch.int64),
        "numpy_gauss": torch.tensor([cached], dtype=torch.float64),
        "torch": torch.get_rng_state(),
    }
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    if device.type == "mps":
        states["mps"] = torch.mps.get_rng_state()
    return states


def restore_random_state(states: dict[str, Tensor], device: torch.device) -> None:
    """Restores the states. Raises KeyError if one is missing."""
    second_gauss = states["python_gauss"].item()
    gauss = None if math.isnan(second_gauss) else second_gauss
    random.setstate((3, tuple(states["python"].tolist()), gauss))

    *keys, position, has_gauss = states["numpy"].tolist()
    words = np.array(keys, dtype=np.uint32)
    cached = states["numpy_gauss"].item()
    np.random.set_state(("MT19937", words, position, has_gauss, cached))

    # torch reads a slice from the start of its storage, so a row must be cloned.
    torch.set_rng_state(states["torch"].clone())
    if device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"].clone(), device)
    if device.type == "mps":
        torch.mps.set_rng_state(states["mps"].clone())
