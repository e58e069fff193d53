"""One forward pass over prompt + response rows: their logits, and the log-probabilities
of what was sampled.

Rows are padded on the right and no attention mask is given: in a causal model no
position sees what comes after it, so the padding cannot reach a token that counts. The
language-model head runs only on the columns in which some row has a token to be
predicted.

Shape suffixes: B rows, T padded length, K kept columns, N response tokens in row-major
order, V vocabulary.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

SMALLEST_TEMPERATURE = 1e-30
"""The sampler's too. A smaller one would make the quotient infinite."""


def pad_rows(
    rows: Sequence[tuple[Sequence[int], Sequence[int]]], pad: int
) -> tuple[Tensor, Tensor]:
    """(prompt ids, response ids) rows as input ids (B, T) and the mask (B, T) of
    response tokens.
    """
    lengths = [len(prompt) + len(response) for prompt, response in rows]
    ids_BT = torch.full((len(rows), max(lengths)), pad, dtype=torch.long)
    response_BT = torch.zeros(ids_BT.shape, dtype=torch.bool)
    for index, (prompt, response) in enumerate(rows):
        ids_BT[index, : lengths[index]] = torch.tensor([*prompt, *response])
        response_BT[index, len(prompt) : lengths[index]] = True
    return ids_BT, response_BT


def target_logits(model: Any, ids_BT: Tensor, target_BT: Tensor) -> Tensor:
    """Logits (N, V) that predict the marked tokens of right-padded rows; column 0
    cannot be marked.
    """
    predicted_BS = target_BT[:, 1:]
    columns_K = predicted_BS.any(dim=0).nonzero().squeeze(1)
    logits_BKV: Tensor = model(
        input_ids=ids_BT, logits_to_keep=columns_K, use_cache=False
    ).logits
    return logits_BKV[predicted_BS[:, columns_K]]


def token_logprobs(
    logits_NV: Tensor, targets_N: Tensor, temperatures_N: Tensor | None = None
) -> Tensor:
    """Natural-log probabilities (N,) of the targets under softmax(logits /
    temperature), in float32. None: at temperature 1.
    """
    return -torch.nn.functional.cross_entropy(
        tempered(logits_NV, temperatures_N), targets_N, reduction="none"
    )


def tempered(logits_NV: Tensor, temperatures_N: Tensor | None) -> Tensor:
    """logits / temperature in float32, each token with its own; all temperatures above
    0. None: the logits themselves.
    """
    logits_NV = logits_NV.float()
    return (
        logits_NV
        if temperatures_N is None
        else logits_NV / temperatures_N[:, None].clamp(min=SMALLEST_TEMPERATURE)
    )


class Scoring(NamedTuple):
    """Rows whose log-probabilities are asked for."""

    ids_BT: Tensor
    response_BT: Tensor
    temperatures: Sequence[Tensor | None] = (None,)
    """Log-probabilities at each of these, all from one forward pass: (N,), or None for
    1.
    """


@torch.no_grad()
def response_logprobs(
    model: Any, batches: Iterable[Scoring], device: torch.device
) -> list[list[Tensor]]:
    """For each batch the log-probabilities (N,) of its response tokens at each of its
    temperatures, on the CPU, dropout off.

    Computed in the precision that training computes in: bfloat16 autocast on CUDA,
    float32 elsewhere.
    """
    was_training = model.training
    model.eval()
    logprobs = []
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        for batch in batches:
            ids_BT = batch.ids_BT.to(device)
            response_BT = batch.response_BT.to(device)
            logits_NV = target_logits(model, ids_BT, response_BT)
            targets_N = ids_BT[response_BT]
            divisors = [
                None if values_N is None else values_N.to(device)
                for values_N in batch.temperatures
            ]
            logprobs.append(
                [
                    token_logprobs(logits_NV, targets_N, values_N).cpu()
                    for values_N in divisors
                ]
            )
    model.train(was_training)
    return logprobs
