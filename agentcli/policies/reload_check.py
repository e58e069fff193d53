"""Checks that an engine answers with the weights that it was told to load.

Only its numbers can show this: an engine that keeps an old head, an old adapter or old
keys and values still answers as well as before. Therefore a few responses are sampled
and scored with the checkpoint itself, by transformers.
"""

from collections.abc import Sequence
from typing import Any

import torch

from agentcli.errors import PolicyError
from agentcli.policies.chat_tokens import Prompted
from agentcli.policies.load import load_model
from agentcli.policies.protocol import Reply

LARGEST_GAP = 1e-3
"""Allowed difference of log-probabilities in float32, at any token."""
LARGEST_MEAN_GAP = 0.1
"""Allowed mean difference in 16 bits, where single tokens differ by up to 0.5.

A correct engine was measured at 0.048 (docs/measured.md).
"""

Sample = tuple[Prompted, Reply]


def check_weights_of_engine(
    checkpoint: str, samples: Sequence[Sample], dtype: str
) -> None:
    """Raises PolicyError if the samples do not come from the checkpoint's model.

    `dtype` is the engine's; the model is loaded in it, on the CPU.
    """
    network = load_model(checkpoint, device="cpu", dtype=dtype)
    gaps = torch.cat([_gaps(network, *sample) for sample in samples])
    exact = dtype == "float32"
    gap = float(gaps.max() if exact else gaps.mean())
    limit = LARGEST_GAP if exact else LARGEST_MEAN_GAP
    # The comparison is false for NaN too.
    if not gap <= limit:
        raise PolicyError(
            f"policy.kind vllm: the engine does not answer with {checkpoint}, which it "
            f"was given: log-probabilities differ by {gap:.2g}, at most {limit:g} is "
            "allowed; type the command again with --resume, which starts a new engine"
        )


@torch.inference_mode()
def _gaps(network: Any, item: Prompted, reply: Reply) -> torch.Tensor:
    """Absolute differences to the network's log-probabilities, by token."""
    response_N = torch.tensor(reply.token_ids)
    ids_1T = torch.tensor([[*item.prompt, *reply.token_ids]])
    logits_TV = network(input_ids=ids_1T, use_cache=False).logits[0].float()
    start = len(item.prompt) - 1
    logits_NV = logits_TV[start:-1] / reply.logprob_temperature
    logprobs_NV = torch.log_softmax(logits_NV, dim=-1)
    logprobs_N = logprobs_NV.gather(-1, response_N[:, None])[:, 0]
    return (logprobs_N - torch.tensor(reply.logprobs)).abs()
