"""A forward pass over rows of prompt and response: log-probabilities of the responses.

Rows are padded on the right, without an attention mask. In a causal model no position
attends to later ones, so the padding cannot affect tokens that count. The
language-model head runs only on columns in which some row has a token to predict. A
batch made by `microbatches.py` has several rows per sequence, and a mask that separates
them.

At a vocabulary of 150,000 the logits of a token are 0.6 MB of float32, and a loss holds
them several times: tempered, their softmax, their gradients. Training needs only a few
numbers per token. So where logits are many, the head runs a chunk of tokens at a time,
and once more in the backward pass.

Shape suffixes: B rows or sequences, T padded length, S = T - 1, K kept columns, N
response tokens in row-major order, n those of a chunk, D width of the model, V
vocabulary, X anything.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from agentcli.errors import DataError
from agentcli.policies.chat_tokens import ChatTokens
from agentcli.policies.load import placeholder_ids
from agentcli.policies.sampling import SMALLEST_TEMPERATURE
from agentcli.policies.sight import Eyesight
from agentcli.prompts.protocol import Exchange, Message
from agentcli.records.training_settings import TrainSettings
from agentcli.training.steps import refuse_pictures

PICTURES = "pictures/"
"""The prefix of a batch's picture inputs, which are not indexed by row."""

LOGITS_AT_ONCE = 2**26
"""More logits than these, 256 MiB in float32, are computed in chunks."""

CHANGING_LOGITS = (
    *("final_logit_softcapping", "output_logit_soft_cap", "softcap"),
    *("logit_scale", "logits_scaling", "lm_head_multiplier", "output_multiplier"),
    *("logits_soft_cap", "unpadded_vocab_size"),
)
"""Names in a configuration for what a model does to its logits after the head."""

Linear = Callable[[Tensor], Tensor]
"""The language-model head: hidden states (..., D) to logits (..., V)."""

Look = Callable[[Tensor, slice], Tensor]
"""Gives (n,) for the logits (n, V) of this slice of the N response tokens."""

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


def predicted_logits(
    model: Any, batch: Mapping[str, Tensor], head_dtype: torch.dtype | None = None
) -> Tensor:
    """Logits (N, V) that predict the response tokens of a batch, padded or packed.

    Column 0 of padded rows cannot be a response's: nothing comes before it. With
    `head_dtype` the head computes in that type, whatever the precision of the model.
    """
    packed = "places_N" in batch

    def compute(linear: Linear, hidden_BKD: Tensor) -> Tensor:
        # transformers can select columns, but only the same ones for every sequence.
        return linear(_chosen(batch, hidden_BKD)[None] if packed else hidden_BKD)

    with head_as(model, compute, head_dtype):
        logits_BKV = _output(model, batch)
    return logits_BKV[0] if packed else _chosen(batch, logits_BKV)


def target_scores(
    model: Any,
    batch: Mapping[str, Tensor],
    temperatures_N: Tensor | None = None,
    looks: Sequence[Look] = (),
    head_dtype: torch.dtype | None = None,
) -> tuple[Tensor, list[Tensor]]:
    """Log-probabilities (N,) of a batch's targets, and what each look gives (N,).

    Only the log-probabilities have a gradient. Logits that would take much memory are
    computed in chunks, and again in the backward pass; results change by rounding.
    `head_dtype` is that of `predicted_logits`.
    """
    targets_N = batch["targets_N"]
    network = network_of(model)
    head = network.get_output_embeddings()
    if not in_chunks(network, head, len(targets_N)):
        logits_NV = predicted_logits(model, batch, head_dtype)
        logprobs_N = token_logprobs(logits_NV, targets_N, temperatures_N)
        return logprobs_N, [look(logits_NV.detach(), slice(None)) for look in looks]
    seen: list[list[Tensor]] = []
    task = _HeadTask(targets_N, temperatures_N, looks, head_dtype, seen)

    def compute(_: Linear, hidden_BKD: Tensor) -> Tensor:
        hidden_ND = _chosen(batch, hidden_BKD)
        run: Any = _ChunkedHead.apply
        scores_N: Tensor = run(hidden_ND, head.weight, task)
        return scores_N

    with head_as(model, compute):
        logprobs_N = _output(model, batch)
    return logprobs_N, [torch.cat(parts) for parts in zip(*seen, strict=True)]


class _HeadTask(NamedTuple):
    """What is computed from the logits of N tokens."""

    targets_N: Tensor
    temperatures_N: Tensor | None
    looks: Sequence[Look]
    dtype: torch.dtype | None
    """The type that the head computes in; None: that of autocast, or of the model."""
    seen: list[list[Tensor]]
    """Where the looks' results are put, chunk after chunk."""

    def chunks(
        self, hidden_ND: Tensor, weight_VD: Tensor
    ) -> Iterator[tuple[slice, Tensor]]:
        """Slices of the tokens and their logits (n, V); hidden and weight are cast."""
        size = max(1, LOGITS_AT_ONCE // len(weight_VD))
        for start in range(0, len(hidden_ND), size):
            part = slice(start, start + size)
            yield part, nn.functional.linear(hidden_ND[part], weight_VD)


class _ChunkedHead(torch.autograd.Function):
    """Log-probabilities (N,) of targets from hidden states (N, D) and weights (V, D)."""

    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, task: _HeadTask
    ) -> Tensor:
        """Computes them and the looks of the task."""
        device = hidden_ND.device.type
        ctx.task = task
        ctx.dtype = task.dtype or hidden_ND.dtype
        if task.dtype is None and torch.is_autocast_enabled(device):
            ctx.dtype = torch.get_autocast_dtype(device)
        ctx.save_for_backward(hidden_ND, weight_VD)
        logprobs = []
        with torch.autocast(device, enabled=False):
            cast = (hidden_ND.to(ctx.dtype), weight_VD.to(ctx.dtype))
            for part, logits_nV in task.chunks(*cast):
                temperatures_n = part_of(task.temperatures_N, part)
                targets_n = task.targets_N[part]
                logprobs.append(token_logprobs(logits_nV, targets_n, temperatures_n))
                task.seen.append([look(logits_nV, part) for look in task.looks])
        return torch.cat(logprobs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None]:
        """With p = softmax(z / T), d log p[t] / d z[v] = (1[v = t] - p[v]) / T."""
        task: _HeadTask = ctx.task
        hidden_ND, weight_VD = (one.to(ctx.dtype) for one in ctx.saved_tensors)
        to_hidden_ND = torch.empty_like(hidden_ND)
        to_weight_VD = None
        if ctx.needs_input_grad[1]:
            # Chunks are added in float32: in bfloat16 a sum of many would lose digits.
            to_weight_VD = torch.zeros_like(weight_VD, dtype=torch.float32)
        for part, logits_nV in task.chunks(hidden_ND, weight_VD):
            temperatures_n = part_of(task.temperatures_N, part)
            slopes_nV = tempered(logits_nV, temperatures_n).softmax(-1).neg_()
            targets_n1 = task.targets_N[part, None]
            slopes_nV.scatter_add_(1, targets_n1, torch.ones_like(slopes_nV[:, :1]))
            # `tempered` divides by T, the last factor of the formula.
            slopes_nV *= tempered(gradients[0][part, None], temperatures_n)
            cast_nV = slopes_nV.to(ctx.dtype)
            to_hidden_ND[part] = cast_nV @ weight_VD
            if to_weight_VD is not None:
                to_weight_VD += cast_nV.T @ hidden_ND[part]
        return to_hidden_ND, to_weight_VD, None


def _output(model: Any, batch: Mapping[str, Tensor]) -> Tensor:
    """What the model's head gives for a batch: logits, unless `head_as` replaces it."""
    if "response_BT" in batch:
        inputs = pictures_of(batch)
        inputs["logits_to_keep"] = (
            batch["response_BT"][:, 1:].any(dim=0).nonzero()[:, 0]
        )
    elif "ends_BT" not in batch:
        # Every sequence is one path, which is what a causal model sees by itself.
        inputs = {}
    else:
        inputs = {
            "position_ids": batch["positions_BT"],
            "attention_mask": forest_mask(batch["ends_BT"]),
        }
    output: Tensor = model(input_ids=batch["ids_BT"], use_cache=False, **inputs).logits
    return output


def _chosen(batch: Mapping[str, Tensor], each_BKX: Tensor) -> Tensor:
    """Those of all values that predict a response token, (N, X)."""
    if "places_N" in batch:
        return each_BKX.flatten(0, 1)[batch["places_N"]]
    predicted_BS = batch["response_BT"][:, 1:]
    return each_BKX[predicted_BS[:, predicted_BS.any(dim=0)]]


def head_dtype(settings: TrainSettings) -> torch.dtype | None:
    """The type that the language-model head computes in; None: as the other layers."""
    return torch.float32 if settings.float32_head else None


def network_of(model: Any) -> Any:
    """The model without DDP and other wrappers, which keep it as `module`."""
    while hasattr(model, "module"):
        model = model.module
    return model


def in_chunks(network: Any, head: Any, tokens: int) -> bool:
    """Whether the logits of so many tokens are many, and exactly what the head gives."""
    # Not isinstance: a 4-bit head is a Linear too, and its weight is no matrix.
    if type(head) is not nn.Linear or head.bias is not None:
        return False
    if tokens * head.out_features <= LOGITS_AT_ONCE:
        return False
    # A hook withholds these from what the head gives, and expects logits.
    if placeholder_ids(network.config):
        return False
    config = network.config.get_text_config()
    changes = [getattr(config, name, None) for name in CHANGING_LOGITS]
    return all(change in (None, 1) for change in changes)


@contextmanager
def head_as(
    model: Any,
    compute: Callable[[Linear, Tensor], Tensor],
    dtype: torch.dtype | None = None,
) -> Iterator[None]:
    """Makes the model return `compute(head, hidden states)` as its logits.

    With `dtype`, the head that `compute` gets works in that type.
    """
    head = network_of(model).get_output_embeddings()
    linear = head.forward if dtype is None else partial(_linear, head, dtype)
    # An attribute hides the method of the class until it is deleted.
    head.forward = partial(compute, linear)
    try:
        yield
    finally:
        del head.forward


def _linear(head: Any, dtype: torch.dtype, hidden_BKD: Tensor) -> Tensor:
    """The head's logits, computed in this type."""
    bias_V = None if head.bias is None else head.bias.to(dtype)
    with torch.autocast(hidden_BKD.device.type, enabled=False):
        return nn.functional.linear(hidden_BKD.to(dtype), head.weight.to(dtype), bias_V)


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
    # The sampler's own floor, or the two distributions would differ.
    return logits_NV / temperatures_N[:, None].clamp(min=SMALLEST_TEMPERATURE)


def logprobs_look(targets_N: Tensor, temperatures_N: Tensor | None) -> Look:
    """A look at log-probabilities at a temperature, without a gradient."""

    def look(logits_nV: Tensor, part: slice) -> Tensor:
        temperatures_n = part_of(temperatures_N, part)
        return token_logprobs(logits_nV, targets_N[part], temperatures_n)

    return look


def part_of(each_N: Tensor | None, part: slice) -> Tensor | None:
    """The values of a slice of the tokens, where there are any."""
    return None if each_N is None else each_N[part]


@contextmanager
def scoring(model: Any) -> Iterator[None]:
    """Turns off dropout and gradients inside the block."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


def computes_in_bf16(device: torch.device, bf16: bool | None) -> bool:
    """Whether training computes in bfloat16: if `bf16`, by default on CUDA."""
    return device.type == "cuda" if bf16 is None else bf16


def precision(device: torch.device, bf16: bool | None) -> torch.autocast:
    """Autocast for training, to bfloat16 or to nothing."""
    half = computes_in_bf16(device, bf16)
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
    first_N, *others = [None if one is None else one.to(device) for one in temperatures]
    looks = [logprobs_look(batch["targets_N"], other_N) for other_N in others]
    # As in training: old values in another precision would give first ratios
    # other than 1.
    with precision(device, bf16):
        logprobs_N, seen = target_scores(model, batch, first_N, looks, head_dtype)
    return [each_N.cpu() for each_N in (logprobs_N, *seen)]


class StepTokeniser:
    """Gives the token ids of steps to train on. Each prompt is tokenised once."""

    def __init__(
        self, tokenizer: Any, model: Any, name: str, sight: Eyesight | None = None
    ) -> None:
        """Messages call the model `name`.

        `sight` reads the prompts, for a vision model.
        """
        self.sight = sight
        ends = model.generation_config.eos_token_id
        # Whether a prompt is too long was decided when it was sampled.
        self._tokens = ChatTokens(tokenizer, ends, max_prompt_tokens=0, sight=sight)
        self._vocabulary: int = model.get_input_embeddings().num_embeddings
        self._name = name

    def __call__(
        self,
        message: Message,
        response: list[int],
        place: str,
        turns: Sequence[Exchange] = (),
        prompt_ids: list[int] | None = None,
    ) -> tuple[list[int], list[int]]:
        """Token ids of prompt and response, after earlier turns.

        `prompt_ids` are the prompt's, if its text does not give them. Raises DataError
        for an unknown token, and for pictures that the model cannot read.
        """
        tokens = [*response, *(prompt_ids or ())]
        if max(tokens) >= self._vocabulary:
            raise DataError(
                f"{place}.token_ids: {max(tokens)} is not a token of {self._name} "
                f"({self._vocabulary} tokens); these trees were sampled from another "
                "model"
            )
        if self.sight is None:
            refuse_pictures(message.pictures, place, self._name)
        return prompt_ids or self._tokens.ids(message, turns), response
