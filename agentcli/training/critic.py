"""Critics and process reward models: their directories, and the numbers they give.

V(s) is read at the last token of the prompt, from a transformers model for token
classification with one label. Its head is `linear`, or the `mlp` of Rare-tool section
3.3; a new head outputs 0. A critic's directory has one file more than a model's,
critic.json. With a linear head it loads with AutoModelForTokenClassification; with an
mlp the backbone loads with AutoModel, and the head is in head.safetensors. A LoRA
adapter stores the head with its own weights. A directory without critic.json is treated
as a model and gets a new head. A process reward model has the same format: it is read
at the last token of the response, and critic.json says so.

A critic reads the prompt and gives V(s). A process reward model reads prompt and
response and gives a score. There are three forms of it, told apart by directory or hub
id:

    critic.json with `reads: response`   trained by train.objective=process-reward
    token or sequence classification     one label: its number; two: the probability of
                                         the second, as TRL's PRMTrainer trains it
    causal language model                asked whether the step is good: the probability
                                         of Yes against No (as in RewardFlow App. C.2)

All are decoders, read at the last token. Shape suffixes: B rows, T padded length.

The number depends only on the step's texts and on the model, so it is computed when a
tree is finished; sampling does not change. As in the policy, only texts with the same
padded length share a batch, and rows come in multiples of eight: on a CPU in float32
with one thread a number is bit-identical whatever else is in the batch.
"""

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from agentcli.errors import DataError
from agentcli.policies.batching import Batcher
from agentcli.policies.chat import prompt_ids, step_ids
from agentcli.policies.chat_tokens import PROMPTS_REMEMBERED, ChatTokens
from agentcli.policies.layouts import ROWS, bucket
from agentcli.policies.load import (
    CRITIC,
    adapter_base,
    architecture,
    attach_adapter,
    is_critic,
    load_model,
    load_network,
    load_tokenizer,
    resolve_device,
    resolve_dtype,
)
from agentcli.prompts.recorded import message_of, turns_before, whole_text
from agentcli.records.files import read_json, write_json
from agentcli.records.settings import PolicySettings
from agentcli.records.training_settings import LoraSettings
from agentcli.records.types import (
    LARGEST_REWARD,
    SCHEMA_VERSION,
    Record,
    Step,
    StopReason,
    Tree,
)
from agentcli.training.loop import checkpoints
from agentcli.training.objectives import Head
from agentcli.training.steps import refuse_pictures

HEAD = "head.safetensors"
SCORE = "score"
"""The name of the head in transformers' token classification models."""

Loader = Callable[..., Any]
"""`load_network`, or a function that takes the same arguments and quantises."""


Reads = Literal["prompt", "response"]


class CriticCard(Record, kw_only=True):
    """The content of critic.json."""

    schema_version: int = SCHEMA_VERSION
    head: Head
    reads: Reads | msgspec.UnsetType = msgspec.UNSET
    """Where the output is read; not written for a critic, which is read at the prompt.
    """


def load_critic(
    source: str,
    head: Head = "linear",
    device: str = "auto",
    dtype: str = "float32",
    setting: str = "rollout.critic",
) -> Any:
    """Loads a critic from its directory, or makes one from a model with a new `head`.

    For an adapter without a critic, its base model is used. Messages name `setting`.
    Raises UsageError for an impossible device, MissingError if there is nothing to
    load, and DataError if the directory holds only a part of a critic.
    """
    place = resolve_device(device)
    torch_dtype = getattr(torch, resolve_dtype(dtype, place))
    return _open(source, head, torch_dtype, setting).to(place).eval()


def load_trainable_critic(
    source: str, head: Head, lora: LoraSettings, setting: str
) -> Any:
    """A critic in float32 whose weights, or those of its adapter, require a gradient.

    The head is always trained. The critic is on the CPU, or with lora.bits 4 on this
    process's GPU. Raises what `load_critic` and `check_bits` raise.
    """
    if Path(source).is_dir():
        # A new adapter stores this path as its base; it must work from any folder.
        source = str(Path(source).resolve())
    checkpoints.check_bits(lora)
    load: Loader = load_network
    if lora.bits == 4:
        load = partial(checkpoints.load_quantised, checkpoints.own_gpu())
    critic = _open(source, head, torch.float32, setting, load).eval()
    if hasattr(critic, "peft_config"):
        return checkpoints.continue_adapter(critic)
    if lora.rank == 0:
        return critic.requires_grad_(True)
    return checkpoints.add_adapter(
        critic,
        lora,
        "TOKEN_CLS",
        modules_to_save=[SCORE],
        # Otherwise `all-linear` would also adapt the head, which is saved whole.
        exclude_modules=rf"{SCORE}(\..*)?",
    )


def state_values(critic: Any, ids_BT: Tensor, last_B: Tensor) -> Tensor:
    """V (B,) in float32, read at position `last_B` of right-padded prompts.

    No attention mask is needed: a position never attends to what comes after it.
    """
    scores_BT = critic(input_ids=ids_BT, use_cache=False).logits[..., 0]
    values_B: Tensor = scores_BT.gather(1, last_B[:, None])[:, 0].float()
    return values_B


def save_critic(
    critic: Any, tokenizer: Any, out: Path, reads: Reads = "prompt"
) -> None:
    """Replaces `out` by the directory of this critic. Raises WriteError."""
    is_adapter = hasattr(critic, "peft_config")
    score = critic.score.modules_to_save["default"] if is_adapter else critic.score
    is_linear = isinstance(score, nn.Linear)
    with checkpoints.replacing(out) as folder:
        if is_linear or is_adapter:
            checkpoints.write_model(critic, tokenizer, folder)
        else:
            weights = critic.state_dict()
            backbone = {
                name: weights[name]
                for name in weights
                if not name.startswith(f"{SCORE}.")
            }
            checkpoints.write_model(critic, tokenizer, folder, state_dict=backbone)
            save_file(score.state_dict(), folder / HEAD)
        card = CriticCard(head="linear" if is_linear else "mlp")
        if reads == "response":
            card.reads = reads
        write_json(folder / CRITIC, card)


def _open(
    source: str, head: Head, dtype: Any, setting: str, load: Loader = load_network
) -> Any:
    """The network from a critic's directory or from a model."""
    card = None
    if is_critic(source):
        card = read_json(Path(source) / CRITIC, CriticCard)
        head = card.head
    base = adapter_base(source)
    if base is not None:
        # The base model of a critic's adapter may itself be a critic.
        network = _open(base, head, dtype, setting, load)
        return network if card is None else attach_adapter(network, source, setting)
    return _network(source, head, dtype, setting, load, is_new=card is None)


def _network(
    source: str, head: Head, dtype: Any, setting: str, load: Loader, is_new: bool
) -> Any:
    """The network from a directory that is not an adapter."""
    from transformers import AutoModelForTokenClassification

    replaces_head = is_new or head == "mlp"
    network = load(
        AutoModelForTokenClassification,
        source,
        dtype,
        setting,
        "critic",
        head=SCORE if replaces_head else None,
        num_labels=1,
    )
    if not isinstance(getattr(network, SCORE, None), nn.Linear):
        raise DataError(
            f"{setting} {source}: a {type(network).__name__} has no head {SCORE!r} to "
            "read a value from; take a decoder such as Qwen2 or Llama"
        )
    # Without a rate in the configuration, transformers uses a dropout of 0.1.
    network.config.classifier_dropout = 0.0
    network.dropout.p = 0.0
    if replaces_head:
        place = network.score.weight.device
        network.score = _new_head(head, network.score.in_features).to(place, dtype)
    if not is_new and head == "mlp":
        _fill_head(network.score, Path(source) / HEAD)
    return network


def _new_head(head: Head, width: int) -> nn.Module:
    """A new head whose last layer is 0, so that every value is 0."""
    last = nn.Linear(width, 1)
    # Only the last layer: with a hidden layer of zeros as well, no weight would ever
    # get a gradient.
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    if head == "linear":
        return last
    return nn.Sequential(nn.Linear(width, width), nn.Tanh(), last)


def _fill_head(score: nn.Module, path: Path) -> None:
    """Loads the head's weights from a file. Raises DataError if they do not fit."""
    try:
        score.load_state_dict(load_file(path))
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise DataError(
            f"{path}: no value head can be read there ({reason}); train the critic "
            "again, or leave it out"
        ) from error


Values = Callable[[Any, Tensor, Tensor], Tensor]
"""A function that gives the numbers (B,) at positions (B,) of token ids (B, T)."""

QUESTION = """\
An agent works on a task. It was shown:

{prompt}

It answered:

{response}

Is this a good step towards the goal of its task? Answer Yes or No."""
ANSWERS = ("No", "Yes")


@dataclass(frozen=True)
class StepReader:
    """A model, and how it turns a step into a number."""

    place: str
    """Its setting and name, for error messages."""
    field: Literal["value", "score"]
    """The field of Step that stores the number."""
    network: Any
    pad: int
    ids: Callable[[Tree, Step], list[int]]
    """Token ids of what it reads of a step: the prompt, and for a score also the
    response.
    """
    values: Values


def read_values(source: str, settings: PolicySettings, ends: Any = None) -> StepReader:
    """Loads the critic of a directory. Raises what `load_critic` raises.

    `ends` are the ids that end the policy's turns (`configured_ends`), where a
    conversation grows: the critic's own files do not name them all.
    """
    tokenizer = load_tokenizer(source, settings.chat_template_kwargs)
    return StepReader(
        place=f"rollout.critic {source}",
        field="value",
        network=load_critic(source, device=settings.device, dtype=settings.dtype),
        pad=tokenizer.pad_token_id,
        ids=partial(_asked_ids, ChatTokens(tokenizer, ends, max_prompt_tokens=0)),
        values=state_values,
    )


def read_scores(source: str, settings: PolicySettings) -> StepReader:
    """Loads a process reward model from a directory or hub id.

    Raises what `load_critic` and `load_tokenizer` raise, and DataError if the model
    cannot score a step.
    """
    tokenizer = load_tokenizer(source)
    ids = partial(
        _step_ids, lru_cache(PROMPTS_REMEMBERED)(partial(step_ids, tokenizer))
    )
    values: Values = state_values
    if is_critic(source):
        network = _scoring_critic(source, settings)
    elif architecture(source, "rollout.prm").endswith("ForCausalLM"):
        network = load_model(source, device=settings.device, dtype=settings.dtype)
        question = lru_cache(PROMPTS_REMEMBERED)(partial(_question_ids, tokenizer))
        ids = partial(_step_ids, question)
        values = partial(_chances_of_yes, _answer_ids(tokenizer, source))
    else:
        network = _classifier(source, settings)
        values = _class_scores
    return StepReader(
        place=f"rollout.prm {source}",
        field="score",
        network=network,
        pad=tokenizer.pad_token_id,
        ids=ids,
        values=values,
    )


def _scoring_critic(source: str, settings: PolicySettings) -> Any:
    """A model trained by process-reward. Raises DataError for a critic of states."""
    if read_json(Path(source) / CRITIC, CriticCard).reads != "response":
        raise DataError(
            f"rollout.prm {source}: is a critic, which reads no response; name it with "
            "--critic, or train a process reward model with: agentcli train RUN --set "
            "train.objective=process-reward"
        )
    device, dtype = settings.device, settings.dtype
    return load_critic(source, device=device, dtype=dtype, setting="rollout.prm")


def _classifier(source: str, settings: PolicySettings) -> Any:
    """A decoder with one or two labels. Raises DataError for any other model."""
    import transformers

    kind = architecture(source, "rollout.prm")
    loaders = {
        "ForTokenClassification": transformers.AutoModelForTokenClassification,
        "ForSequenceClassification": transformers.AutoModelForSequenceClassification,
    }
    loader = next((loaders[end] for end in loaders if kind.endswith(end)), None)
    if loader is None or adapter_base(source) is not None:
        raise DataError(
            f"rollout.prm {source}: a {kind} scores no steps; name a model for token or "
            "sequence classification, a causal language model, or a checkpoint of "
            "train.objective=process-reward"
        )
    place = resolve_device(settings.device)
    dtype = getattr(torch, resolve_dtype(settings.dtype, place))
    network = load_network(loader, source, dtype, "rollout.prm", "process reward model")
    labels = network.config.num_labels
    if labels > 2 or not hasattr(network, SCORE):
        raise DataError(
            f"rollout.prm {source}: a {kind} with {labels} labels; name a decoder, such "
            "as Qwen2 or Llama, with one or two"
        )
    return network.to(place).eval()


def _class_scores(network: Any, ids_BT: Tensor, last_B: Tensor) -> Tensor:
    """The output for the only label, or the probability of the second of two."""
    # Not the model's own forward: for sequences it finds the end by the padding's
    # id, which may also be the last token of a row.
    hidden_BTD = network.base_model(input_ids=ids_BT, use_cache=False)[0]
    rows_B = torch.arange(len(last_B), device=last_B.device)
    scores_BL: Tensor = network.score(hidden_BTD[rows_B, last_B]).float()
    return scores_BL[:, 0] if scores_BL.shape[1] == 1 else scores_BL.softmax(-1)[:, 1]


def _asked_ids(tokens: ChatTokens, tree: Tree, step: Step) -> list[int]:
    """Token ids of what the policy was asked."""
    return tokens.ids(message_of(step), turns_before(tree, step))


def _step_ids(
    ids: Callable[[str, str], list[int]], tree: Tree, step: Step
) -> list[int]:
    """Token ids of a prompt, as one text, and its response."""
    return ids(whole_text(tree, step), step.response)


def _question_ids(tokenizer: Any, prompt: str, response: str) -> list[int]:
    """Token ids of the question whether a step is good."""
    return prompt_ids(tokenizer, QUESTION.format(prompt=prompt, response=response))


def _answer_ids(tokenizer: Any, source: str) -> list[int]:
    """The first tokens of No and Yes. Raises DataError if they cannot be told apart."""
    firsts = [
        tokenizer(answer, add_special_tokens=False).input_ids[:1] for answer in ANSWERS
    ]
    ids = [token for first in firsts for token in first]
    if len(set(ids)) < len(ANSWERS) or tokenizer.unk_token_id in ids:
        raise DataError(
            f"rollout.prm {source}: its tokenizer cannot tell Yes from No, so it cannot "
            "be asked; name a process reward model"
        )
    return ids


def _chances_of_yes(
    answers: list[int], network: Any, ids_BT: Tensor, last_B: Tensor
) -> Tensor:
    """The probability of Yes when only Yes and No are possible."""
    # The model keeps the same columns of all rows, so each row then picks its own.
    columns_K, kept_B = last_B.unique(return_inverse=True)
    output = network(input_ids=ids_BT, logits_to_keep=columns_K, use_cache=False)
    rows_B = torch.arange(len(last_B), device=last_B.device)
    logits_BA: Tensor = output.logits[rows_B, kept_B][:, answers].float()
    return logits_BA.softmax(-1)[:, 1]


DECIMALS = 6
"""Decimals that numbers are rounded to, as log-probabilities are."""


class Appraiser:
    """Computes the value or score of every step of a tree.

    `settings` are the policy's; they give the size of a batch.
    """

    def __init__(self, reader: StepReader, settings: PolicySettings) -> None:
        self.seconds = 0.0
        """Time spent computing so far."""
        self._reader = reader
        self._batcher: Batcher[list[int], float] = Batcher(
            work=self._numbers,
            key=bucket,
            rows=settings.batch_rows,
            linger_seconds=settings.linger_ms / 1000,
        )

    async def appraise(self, tree: Tree) -> None:
        """Sets the value or score of every step at which the policy was asked.

        Raises DataError if a number is not finite.
        """
        asked = [
            step
            for step in tree.steps
            # A trajectory that never began has an errored leaf without a prompt.
            if step.prompt and step.stop is not StopReason.OVERLONG
        ]
        for step in asked:
            refuse_pictures(
                step.pictures,
                f"task {tree.task.id}: steps[{step.id}]",
                self._reader.place,
            )
        reads = [tuple(self._reader.ids(tree, step)) for step in asked]
        # Siblings share their prompt: a critic reads it once.
        each_once = list(dict.fromkeys(reads))
        waiting = [self._batcher.submit(list(ids)) for ids in each_once]
        numbers = dict(zip(each_once, await asyncio.gather(*waiting), strict=True))
        for step, ids in zip(asked, reads, strict=True):
            setattr(step, self._reader.field, numbers[ids])

    async def close(self) -> None:
        self._batcher.close()

    def _numbers(self, batch: list[list[int]]) -> list[float]:
        """The numbers for token ids of equal width; runs in the worker thread."""
        started = time.perf_counter()
        reader = self._reader
        # Another number of rows may take another kernel, and round otherwise.
        rows = batch + batch[:1] * (-len(batch) % ROWS)
        width = bucket(batch[0])
        ids_BT = torch.tensor([row + [reader.pad] * (width - len(row)) for row in rows])
        last_B = torch.tensor([len(row) - 1 for row in rows])
        device = reader.network.device
        with torch.inference_mode():
            numbers_B = reader.values(
                reader.network, ids_BT.to(device), last_B.to(device)
            )
        numbers: list[float] = numbers_B[: len(batch)].tolist()
        for number in numbers:
            if not (math.isfinite(number) and abs(number) <= LARGEST_REWARD):
                raise DataError(
                    f"{reader.place}: gives a {reader.field} of {number}; train it "
                    "again at a lower learning rate"
                )
        self.seconds += time.perf_counter() - started
        return [round(number, DECIMALS) for number in numbers]
