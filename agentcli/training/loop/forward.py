"""A forward pass over rows of prompt and response: logits and log-probabilities.

Rows are padded on the right, without an attention mask. In a causal model no position
attends to later ones, so the padding cannot affect tokens that count. The
language-model head runs only on columns in which some row has a token to predict. A
batch made by `packing.py` has several rows per sequence, and a mask that separates
them.

Shape suffixes: B rows or sequences, T padded length, S = T - 1, K kept columns, N
response tokens in row-major order, V vocabulary.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from agentcli.policies.sampling import SMALLEST_TEMPERATURE
from agentcli.records.training_settings import TrainSettings

PICTURES = "pictures/"
"""The prefix of a batch's picture inputs, which are not indexed by row."""

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


def target_logits(
    model: Any, ids_BT: Tensor, target_BT: Tensor, **pictures: Tensor
) -> Tensor:
    """Logits (N, V) that predict the marked tokens of right-padded rows.

    Column 0 cannot be marked: nothing comes before it. `pictures` are the additional
    inputs of a vision model.
    """
    predicted_BS = target_BT[:, 1:]
    columns_K = predicted_BS.any(dim=0).nonzero().squeeze(1)
    output = model(
        input_ids=ids_BT, logits_to_keep=columns_K, use_cache=False, **pictures
    )
    logits_BKV: Tensor = output.logits
    return logits_BKV[predicted_BS[:, columns_K]]


def predicted_logits(
    model: Any, batch: Mapping[str, Tensor], head_dtype: torch.dtype | None = None
) -> Tensor:
    """Logits (N, V) that predict the response tokens of a batch, padded or packed.

    With `head_dtype` the language-model head computes in that type, whatever the
    precision of the model.
    """
    if head_dtype is not None:
        with head_in(model, head_dtype):
            return predicted_logits(model, batch)
    if "response_BT" in batch:
        pictures = pictures_of(batch)
        return target_logits(model, batch["ids_BT"], batch["response_BT"], **pictures)
    with head_on(model, batch["places_N"]):
        output = model(
            input_ids=batch["ids_BT"],
            position_ids=batch["positions_BT"],
            attention_mask=forest_mask(batch["ends_BT"]),
            use_cache=False,
        )
    logits_NV: Tensor = output.logits[0]
    return logits_NV


def pictures_of(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The picture inputs of a batch, by the names of the model's arguments."""
    pictures = {}
    for name, value in batch.items():
        if name.startswith(PICTURES):
            pictures[name.removeprefix(PICTURES)] = value
    return pictures


def named_pictures(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The additional inputs of a vision model, under their names in a batch."""
    return {f"{PICTURES}{name}": value for name, value in tensors.items()}


def forest_mask(ends_BT: Tensor) -> Tensor:
    """The mask (B, 1, T, T) of keys that each query sees: its ancestors and itself."""
    places_T = torch.arange(ends_BT.shape[1], device=ends_BT.device)
    earlier_TT = places_T <= places_T[:, None]
    descends_BTT = places_T[:, None] < ends_BT[:, None, :]
    return (earlier_TT & descends_BTT)[:, None]


def head_dtype(settings: TrainSettings) -> torch.dtype | None:
    """The type that the language-model head computes in; None: as the other layers."""
    return torch.float32 if settings.float32_head else None


def network_of(model: Any) -> Any:
    """The model without DDP and other wrappers, which keep it as `module`."""
    while hasattr(model, "module"):
        model = model.module
    return model


@contextmanager
def head_in(model: Any, dtype: torch.dtype) -> Iterator[None]:
    """Makes the language-model head compute in this type, also under autocast."""
    head = network_of(model).get_output_embeddings()

    def forward(hidden_BKD: Tensor) -> Tensor:
        bias_V = None if head.bias is None else head.bias.to(dtype)
        with torch.autocast(hidden_BKD.device.type, enabled=False):
            return linear(hidden_BKD.to(dtype), head.weight.to(dtype), bias_V)

    head.forward = forward
    try:
        yield
    finally:
        del head.forward


@contextmanager
def head_on(model: Any, places_N: Tensor) -> Iterator[None]:
    """Makes the language-model head run only at these positions of a flat batch.

    transformers can select columns, but only the same ones for every sequence. Logits
    are (1, N, V).
    """

    def choose(_: Any, inputs: tuple[Tensor]) -> tuple[Tensor]:
        (hidden_BTD,) = inputs
        return (hidden_BTD.flatten(0, 1)[places_N][None],)

    hook = network_of(model).get_output_embeddings().register_forward_pre_hook(choose)
    try:
        yield
    finally:
        hook.remove()


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
    """Logits / temperature in float32; each token has its own temperature, above 0."""
    logits_NV = logits_NV.float()
    if temperatures_N is None:
        return logits_NV
    return logits_NV / temperatures_N[:, None].clamp(min=SMALLEST_TEMPERATURE)


@contextmanager
def scoring(model: Any) -> Iterator[None]:
    """Turns off dropout and gradients inside the block."""
    was_training = model.training
    model.eval()
    with torch.no_grad():
        yield
    model.train(was_training)


def precision(device: torch.device, bf16: bool | None) -> torch.autocast:
    """Autocast for training: bfloat16 if `bf16` (default on CUDA), else float32."""
    half = device.type == "cuda" if bf16 is None else bf16
    return torch.autocast(device.type, torch.bfloat16, enabled=half)


def response_logprobs(
    model: Any,
    batch: Mapping[str, Tensor],
    temperatures: Sequence[Tensor | None],
    device: torch.device,
    bf16: bool | None,
    head_dtype: torch.dtype | None = None,
) -> list[Tensor]:
    """Log-probabilities (N,) of the response tokens at each temperature, on the CPU.

    One forward pass computes all of them, in the precision of training. A temperature
    is (N,), or None for 1.
    """
    batch = {name: value.to(device) for name, value in batch.items()}
    logprobs = []
    with precision(device, bf16):
        logits_NV = predicted_logits(model, batch, head_dtype)
        for temperatures_N in temperatures:
            if temperatures_N is not None:
                temperatures_N = temperatures_N.to(device)
            scores_N = token_logprobs(logits_NV, batch["targets_N"], temperatures_N)
            logprobs.append(scores_N.cpu())
    return logprobs
