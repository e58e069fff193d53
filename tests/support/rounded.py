"""A model whose linear layers compute in bfloat16, as bitsandbytes' 4-bit layers do, without their quantised weights."""

from typing import Any

import torch
from agentcli.policies.load import load_network


class RoundedLinear(torch.nn.Linear):
    """Casts its input, like Linear4bit with bnb_4bit_compute_dtype=bfloat16; the output has the input's type."""

    compute_dtype = torch.bfloat16

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        bias = None if self.bias is None else self.bias.to(self.compute_dtype)
        output = torch.nn.functional.linear(input.to(self.compute_dtype), self.weight.to(self.compute_dtype), bias)
        return output.to(input.dtype)


def rounded(network: Any) -> Any:
    """The network with all linear layers but the head rounded."""
    for module in network.modules():
        if type(module) is torch.nn.Linear and module is not network.get_output_embeddings():
            module.__class__ = RoundedLinear
    return network


def load_rounded(device: str, kind: Any, model: str, dtype: Any, *words: str, **options: Any) -> Any:
    """In the place of `load_quantised`: frozen, and rounded."""
    assert device == "cpu"
    return rounded(load_network(kind, model, dtype, *words, **options)).requires_grad_(False)
