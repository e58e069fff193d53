"""Decides which states are the same: equal keys, or clusters (RewardFlow App. B.1, C.4).

exact       equal keys.
difflib     keys whose longest matching blocks cover a share of at least THRESHOLD
            (Ratcliff and Obershelp; as in the releases, which leave frequent characters
            of long keys out).
embedding   keys whose sentence embeddings have a cosine of at least THRESHOLD. An
            embedding is the mean of a transformer's last layer over all tokens.

Clusters are built greedily, in order of first appearance (step by step). A key joins
the first cluster whose representative (its first member) is similar enough; otherwise
it starts a new cluster. The result is deterministic, but depends on the order of
siblings and on errored trajectories, whose states are keys too. A tree has few states,
so all pairs of keys and representatives are compared.

Only `embedding` needs torch. It is imported inside the functions here, and nowhere else
in this package.
"""

import difflib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentcli.credit.states import states_of
from agentcli.credit.survey import Survey
from agentcli.credit.switches import StateSwitches, parse_similarity
from agentcli.errors import DataError, MissingError
from agentcli.records.faults import shown
from agentcli.records.types import Tree

if TYPE_CHECKING:
    import torch

WINDOWS_PER_BATCH = 64
TOLERANCE = 1e-6
"""Rounding error of a cosine in float32; that of equal keys is 1 up to this."""


def require_states(
    survey: Survey, reader: str, otherwise: str = "--method grpo"
) -> None:
    """Raises DataError for a tree without state keys, which `reader` compares."""
    tree = survey.tree
    for step in tree.steps:
        if not step.state and survey.live[step.id]:
            raise DataError(
                f"task {shown(tree.task.id)}: steps[{step.id}].state: is empty; "
                f"{reader} compares steps from the same state, take a world that "
                f"records states, import with --states observation, or {otherwise}"
            )


def state_keys(tree: Tree, switches: StateSwitches) -> list[str]:
    """The state that each step is taken from, as its cluster's representative."""
    keys = states_of(tree.steps, switches.state).before
    clusters = representatives(keys, switches)
    if clusters is None:
        return keys
    return [clusters[key] for key in keys]


def representatives(
    keys: Iterable[str], switches: StateSwitches
) -> dict[str, str] | None:
    """Maps each key to the first member of its cluster, as set by `switches`.

    None where only equal keys are the same.
    """
    kind, threshold = parse_similarity(switches.similarity)
    if threshold is None:
        return None
    distinct = list(dict.fromkeys(keys))
    if kind == "difflib":
        return difflib_clusters(distinct, threshold)
    return embedding_clusters(distinct, threshold, str(switches.embedding_model))


def difflib_clusters(keys: Sequence[str], threshold: float) -> dict[str, str]:
    """Clusters of distinct keys by difflib's ratio.

    The ratio is not symmetric. As in the releases, the new key is the first argument
    and the representative the second. difflib indexes the second argument, so one
    matcher per representative builds that index once. Also as there, what makes up over
    1 % of a representative of 200 characters or more is ignored (`autojunk`): hardly
    any letter is left, and so long a text is similar to hardly more than its equals.
    """
    clusters: dict[str, str] = {}
    matchers: dict[str, difflib.SequenceMatcher[str]] = {}
    for key in keys:
        for first, matcher in matchers.items():
            matcher.set_seq1(key)
            # Two upper bounds are checked first, because the ratio itself is slow.
            if matcher.real_quick_ratio() < threshold:
                continue
            if matcher.quick_ratio() < threshold:
                continue
            if matcher.ratio() >= threshold:
                clusters[key] = first
                break
        else:
            clusters[key] = key
            matchers[key] = difflib.SequenceMatcher(None, b=key)
    return clusters


def embedding_clusters(
    keys: Sequence[str],
    threshold: float,
    model: str,
) -> dict[str, str]:
    """Clusters of distinct keys by the cosine of their embeddings."""
    import torch

    vectors = embed(keys, model)
    clusters: dict[str, str] = {}
    first: list[int] = []
    for number, key in enumerate(keys):
        # Unit vectors: a product is a cosine. The first representative that is near
        # wins.
        near = torch.nonzero(vectors[first] @ vectors[number] >= threshold - TOLERANCE)
        if len(near):
            clusters[key] = keys[first[int(near[0])]]
        else:
            clusters[key] = key
            first.append(number)
    return clusters


def embed(texts: Sequence[str], model: str) -> "torch.Tensor":
    """Unit vectors of the texts, (texts, hidden).

    Each is the mean of the last layer over all tokens of its text. A text longer than
    the model's longest input is split into windows of that length, which do not attend
    to each other. Raises MissingError if `model` is not a directory with a model and
    its tokenizer.
    """
    import torch

    tokenizer, encoder, longest = _load(model)
    # All windows with their special tokens, and the text that each belongs to.
    encoded = tokenizer(
        list(texts),
        truncation=True,
        max_length=longest,
        return_overflowing_tokens=True,
    )
    windows = encoded["input_ids"]
    owners = encoded["overflow_to_sample_mapping"]
    sums = torch.zeros(len(texts), encoder.config.hidden_size)
    counts = torch.zeros(len(texts), 1)
    for start in range(0, len(windows), WINDOWS_PER_BATCH):
        place = slice(start, start + WINDOWS_PER_BATCH)
        tokens, mask = _padded(windows[place], tokenizer.pad_token_id)
        with torch.inference_mode():
            output = encoder(input_ids=tokens, attention_mask=mask)
            states = output.last_hidden_state  # (windows, tokens, hidden)
        rows = torch.tensor(owners[place])
        weights = mask.unsqueeze(-1).float()
        sums.index_add_(0, rows, (states.float() * weights).sum(1))
        counts.index_add_(0, rows, weights.sum(1))
    # A tokenizer without special tokens gives an empty text no token at all.
    return torch.nn.functional.normalize(sums / counts.clamp(min=1), dim=1)


def _padded(
    windows: Sequence[Sequence[int]], pad_token: int
) -> "tuple[torch.Tensor, torch.Tensor]":
    """Padded tokens and their attention mask, both (windows, tokens)."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    tokens = [torch.tensor(window) for window in windows]
    marks = [torch.ones_like(window) for window in tokens]
    padded = pad_sequence(tokens, batch_first=True, padding_value=pad_token)
    return padded, pad_sequence(marks, batch_first=True)


def check_embedding_model(switches: object) -> None:
    """Raises MissingError if the embedding model is not a model directory."""
    model = getattr(switches, "embedding_model", None)
    if model is not None:
        _require_directory(model)


def _require_directory(model: str) -> None:
    if not (Path(model) / "config.json").is_file():
        raise MissingError(
            f"credit.embedding_model: {model} is not a model directory (no config.json "
            "there)"
        )


# Every tree of a run asks for the same model again.
@lru_cache(maxsize=1)
def _load(model: str) -> tuple[Any, Any, int]:
    """The tokenizer, the model (float32, CPU), and its longest input in tokens."""
    _require_directory(model)
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging

    # The switch is global, so it is put back for whoever else loads a model.
    bar_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)
        encoder = AutoModel.from_pretrained(
            model, local_files_only=True, dtype="float32"
        )
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise MissingError(f"credit.embedding_model: {model}: {reason}") from error
    finally:
        if bar_enabled:
            logging.enable_progress_bar()
    limits = (
        tokenizer.model_max_length,
        getattr(encoder.config, "max_position_embeddings", None),
    )
    # A tokenizer that knows no limit says 10^30; then the model's own counts.
    return tokenizer, encoder.eval(), min(limit for limit in limits if limit)
