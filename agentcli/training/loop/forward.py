"""One forward pass over rows of prompt and response: logits and log-probabilities.

Rows are padded on the right and no attention mask is given. In a causal model no
position sees what comes after it, so the padding cannot reach a token that counts. The
language-model head runs only on the columns in which some row has a token to predict.

Shape suffixes: B rows, T padded length, S = T - 1, K kept columns, N response tokens in
row-major order, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from agentcli.policies.sampling import SMALLEST_TEMPERATURE

TokenRow = tuple[Sequence[int], Sequence[int]]
"""Token ids of one prompt and of its response."""


def pad_rows(rows: Sequence[TokenRow], pad: int) -> tuple[Tensor, Tensor]:
    """Input ids (B, T) of the rows, and the mask (B, T) of their response tokens."""
    lengths = [len(prompt) + len(response) for prompt, response in rows]
    ids_BT = torch.full((len(rows), max(lengths)), pad, dtype=torch.long)
    response_BT = torch.zeros(ids_BT.shape, dtype=torch.bool)
    for index, (prompt, response) in enumerate(rows):
        end = lengths[index]
        ids_BT[index, :end] = torch.tensor([*prompt, *response])
        response_BT[index, len(prompt) : end] = True
    return ids_BT, response_BT


def target_logits(model: Any, ids_BT: Tensor, target_BT: Tensor) -> Tensor:
    """Logits (N, V) that predict the marked tokens of right-padded rows.

    Column 0 cannot be marked: nothing comes before it.
    """
    predicted_BS = target_BT[:, 1:]
    columns_K = predicted_BS.any(dim=0).nonzero().squeeze(1)
    output = model(input_ids=ids_BT, logits_to_keep=columns_K, use_cache=False)
    logits_BKV: Tensor = output.logits
    return logits_BKV[predicted_BS[:, columns_K]]


def token_logprobs(
    logits_NV: Tensor,
    targets_N: Tensor,
    temperatures_N: Tensor | None = None,
) -> Tensor:
    """Log-probabilities (N,) of the targets under softmax(logits / T), in float32 nats.

    Without temperatures, T is 1.
    """
    tempered_NV = tempered(logits_NV, temperatures_N)
    return -torch.nn.functional.cross_entropy(tempered_NV, targets_N, reduction="none")


def tempered(logits_NV: Tensor, temperatures_N: Tensor | None) -> Tensor:
    """Logits over temperature in float32, each token with its own, all above 0."""
    logits_NV = logits_NV.float()
    if temperatures_N is None:
        return logits_NV
    return logits_NV / temperatures_N[:, None].clamp(min=SMALLEST_TEMPERATURE)


@contextmanager
def scoring(model: Any) -> Iterator[None]:
    """Turns dropout and gradients off inside the block."""
    was_training = model.training
    model.eval()
    with torch.no_grad():
        yield
    model.train(was_training)


def response_logprobs(
    model: Any,
    ids_BT: Tensor,
    response_BT: Tensor,
    temperatures: Sequence[Tensor | None],
    device: torch.device,
) -> list[Tensor]:
    """Log-probabilities (N,) of the response tokens at each temperature, on the CPU.

    All come from one forward pass, in the precision that training computes in: bfloat16
    autocast on CUDA, float32 elsewhere. A temperature is (N,), or None for 1.
    """
    ids_BT = ids_BT.to(device)
    response_BT = response_BT.to(device)
    targets_N = ids_BT[response_BT]
    logprobs = []
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        logits_NV = target_logits(model, ids_BT, response_BT)
        for temperatures_N in temperatures:
            if temperatures_N is not None:
                temperatures_N = temperatures_N.to(device)
            scores_N = token_logprobs(logits_NV, targets_N, temperatures_N)
            logprobs.append(scores_N.cpu())
    return logprobs
