"""What agentcli adds to the workers of a vLLM engine: a sum over the weights they hold.

vLLM fuses tensors of a checkpoint, pads them, and splits them over GPUs. The sum of a
checkpoint is the same in any such arrangement, so it can be compared without knowing
the model. It is the sum of h(x) over all weights x modulo 2**64, where h mixes the bits
of a float32 and h(0) is 0, as padding is. After a change of any weight it is another
one, up to a coincidence in 2**64.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

CHUNK = 2**24
"""Elements that are summed together; each takes up to 24 bytes meanwhile."""
MIXER = 0x9E3779B97F4A7C15 - 2**64
"""An odd number near 2**64 divided by the golden ratio, as a signed one of 64 bits."""

Sums = dict[str, int]


class WeightSums:
    """Methods that vLLM adds to its class of workers (worker_extension_cls)."""

    # Attributes of vLLM's own class.
    model_runner: Any
    model_config: Any
    parallel_config: Any
    device: torch.device
    rank: int

    def sums_of_weights(self, folder: str, adapter: int | None) -> tuple[Sums, int]:
        """Sums of what this worker holds, by name, and of its share of the files.

        With `adapter`, that of the active adapter with this number. Shares of all
        workers make up the .safetensors files of the folder.
        """
        held = self._model() if adapter is None else self._adapter(adapter)
        dtype = self.model_config.dtype
        sums = {name: sum_of(tensor, dtype) for name, tensor in held}
        scale = 1.0 if adapter is None else _scale_of(folder)
        workers = self.parallel_config.world_size
        share = 0
        for number, (name, tensor) in enumerate(_tensors(folder)):
            # Every tensor is read by one worker only: together they may read gigabytes.
            if number % workers == self.rank % workers:
                placed = tensor().to(self.device).to(dtype)
                share += sum_of(placed * scale if "lora_B" in name else placed, dtype)
        return sums, share % 2**64

    def _model(self) -> Iterator[tuple[str, Tensor]]:
        """The parameters, each part of a fused one by itself.

        Parts are separate because GPUs may share some: heads of keys, for instance.
        """
        shown = set[int]()
        for path, module in self.model_runner.get_model().named_modules():
            packed = _packed_weight(module, self.model_config.dtype)
            if packed is not None:
                yield from _split(f"{path}.weight", packed, module)
            for name, parameter in module.named_parameters(recurse=False):
                stale = packed is not None and name == "weight"
                # Tied weights are one parameter under two names.
                if not stale and id(parameter) not in shown:
                    shown.add(id(parameter))
                    yield from _split(f"{path}.{name}", parameter, module)

    def _adapter(self, number: int) -> Iterator[tuple[str, Tensor]]:
        from vllm.lora.layers import BaseLayerWithLoRA

        model = self.model_runner.get_model()
        slot = model.lora_manager.lora_index_to_id.index(number)
        for path, module in model.named_modules():
            if not isinstance(module, BaseLayerWithLoRA):
                continue
            for kind in ("lora_a_stacked", "lora_b_stacked"):
                stacks = getattr(module, kind)
                if isinstance(stacks, Tensor):
                    stacks = (stacks,)
                for part, stack in enumerate(stacks):
                    yield f"{path}.{kind}.{part}", stack[slot]


def sum_of(tensor: Tensor, dtype: torch.dtype) -> int:
    """The sum of h over a tensor of any shape, rounded to the engine's dtype before."""
    total = 0
    for part in tensor.detach().flatten().split(CHUNK):
        # Adding 0 turns -0 into 0.
        rounded = part.to(dtype).float() + 0.0
        mixed = rounded.view(torch.int32).long() * MIXER
        # A product's low bits know nothing of its factor's high ones.
        mixed ^= mixed >> 32
        total += int((mixed * MIXER).sum())
    return total % 2**64


def same_sums(workers: Iterable[tuple[Sums, int]]) -> bool:
    """Whether the workers of one engine hold what the files say.

    Equal sums under one name are copies that several GPUs hold, and count once.
    """
    held = dict[str, set[int]]()
    wanted = 0
    for sums, share in workers:
        wanted += share
        for name, one in sums.items():
            held.setdefault(name, set()).add(one)
    total = sum(sum(parts) for parts in held.values())
    return (total - wanted) % 2**64 == 0


def _tensors(folder: str) -> Iterator[tuple[str, Callable[[], Tensor]]]:
    """The names in the .safetensors files of a folder, and what reads their tensors."""
    from safetensors import safe_open

    for path in sorted(Path(folder).glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in sorted(file.keys()):
                yield name, partial(file.get_tensor, name)


def _scale_of(adapter: str) -> float:
    """The factor that vLLM multiplies lora_B by when it loads an adapter."""
    from vllm.lora.peft_helper import PEFTHelper

    return float(PEFTHelper.from_local_dir(adapter, None).vllm_lora_scaling_factor)


def _packed_weight(module: Any, dtype: torch.dtype) -> Tensor | None:
    """What a layer on a CPU multiplies by; None for any other module.

    There vLLM may keep the weight in a form of its own alone. The products with the
    unit vectors are its columns, exactly.
    """
    from vllm.model_executor.layers.vocab_parallel_embedding import (
        ParallelLMHead,
        VocabParallelEmbedding,
    )

    # An embedding is looked up, though it has been packed too.
    if not hasattr(module, "cpu_linear") or type(module) is VocabParallelEmbedding:
        return None
    if isinstance(module, ParallelLMHead):
        width = module.embedding_dim
    else:
        width = module.input_size_per_partition
    columns: Tensor = module.quant_method.apply(module, torch.eye(width, dtype=dtype))
    return columns.T


def _split(name: str, tensor: Tensor, module: Any) -> Iterator[tuple[str, Tensor]]:
    """The parts of a fused layer, which are stacked along the first dimension."""
    sizes = getattr(module, "output_partition_sizes", [])
    if tensor.shape[:1] == (sum(sizes),):
        for part, rows in enumerate(tensor.split(sizes)):
            yield f"{name}.{part}", rows
    else:
        yield name, tensor
