"""Turns demonstration trees into samples for imitation: prompts with responses.

Some steps are counted but not imitated: those with a `mask` (deliberate noise), those
whose response was malformed or inadmissible, empty responses, and all steps of a tree
with only errored leaves. Prompt and response are tokenised with the chat template, so a
sample is exactly what the policy will be asked and should answer. The end-of-turn token
belongs to the response; otherwise the policy would never learn to stop.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentcli.environments.protocol import Picture
from agentcli.errors import DataError, UsageError
from agentcli.policies.chat import prompt_ids, step_ids
from agentcli.policies.sight import Eyesight
from agentcli.prompts.protocol import Message
from agentcli.records.files import read_numbered, read_records
from agentcli.records.trees import leaves
from agentcli.records.types import Outcome, Step, Tree, Validity
from agentcli.training.loop.pictures import PictureShelf, refuse_pictures

LOOKED_AT = 64
"""About how many pictures are read to learn what a world's pictures look like."""


class Sample(NamedTuple):
    """Token ids of one prompt and its response."""

    prompt: list[int]
    """The chat prompt, generation prompt included."""
    response: list[int]
    """The response, end-of-turn token included."""


class ShownSample(Sample):
    """A sample with pictures, for a vision model."""

    message: Message
    """The message that the prompt was made from."""


class SampleCounts(msgspec.Struct, kw_only=True):
    """Numbers of steps, by how they were used."""

    trees: int = 0
    samples: int = 0
    masked: int = 0
    invalid: int = 0
    """Malformed or inadmissible responses."""
    empty: int = 0
    errored: int = 0


def read_steps(path: Path, counts: SampleCounts) -> Iterator[tuple[str, Step]]:
    """Streams (place, step) of the steps to imitate, and counts all steps of a file."""
    for number, tree in read_numbered(path, Tree):
        counts.trees += 1
        if all(leaf.outcome is Outcome.ERRORED for leaf in leaves(tree)):
            counts.errored += len(tree.steps)
            continue
        for step in tree.steps:
            # The reason is also the name of its counter.
            reason = left_out(step)
            count = reason or "samples"
            setattr(counts, count, getattr(counts, count) + 1)
            if reason is None:
                yield f"{path}:{number}: steps[{step.id}]", step


def left_out(step: Step) -> str | None:
    """Why a step is not imitated (masked, invalid or empty); None if it is."""
    if step.mask is not None:
        return "masked"
    if step.validity != Validity.VALID:
        return "invalid"
    return None if step.response.strip() else "empty"


def read_texts(trees: Iterable[Path]) -> Iterator[str]:
    """Streams prompt and response of all steps, imitated or not.

    A tokenizer made from the demonstrations needs all of them.
    """
    for path in trees:
        for tree in read_records(path, Tree):
            for step in tree.steps:
                yield step.prompt
                yield step.response


def first_pictures(trees: Iterable[Path]) -> list[Picture]:
    """The first distinct pictures, about LOOKED_AT of them; empty if there are none."""
    shelf = PictureShelf()
    pictures: dict[str, Picture] = {}
    for path in trees:
        for tree in read_records(path, Tree):
            for step in tree.steps:
                for picture in shelf.of(step, path):
                    pictures[picture.name] = picture
            if len(pictures) >= LOOKED_AT:
                return list(pictures.values())
    return list(pictures.values())


def tokenise(tokenizer: Any, step: Step, place: str, max_length: int) -> Sample:
    """One step as a sample, for a model that reads only text.

    Raises DataError if it is too long or has pictures, and UsageError for a chat
    template that cannot be learned from.
    """
    refuse_pictures(step.pictures, place, tokenizer.name_or_path or "this model")
    sample = sample_of(tokenizer, step.prompt, step.response)
    return checked_length(sample, place, max_length)


def checked_length(sample: Sample, place: str, max_length: int) -> Sample:
    """Returns the sample. Raises DataError if it is too long."""
    length = len(sample.prompt) + len(sample.response)
    if length > max_length:
        raise DataError(
            f"{place}: prompt and response are {length} tokens, sft.max_length is "
            f"{max_length}; set sft.max_length higher or prompt.history lower"
        )
    return sample


def sample_of(tokenizer: Any, text: str, answer: str) -> Sample:
    """A sample from a message and its answer.

    Raises UsageError for a chat template that cannot be learned from.
    """
    prompt = prompt_ids(tokenizer, text)
    return _parted(tokenizer, prompt, step_ids(tokenizer, text, answer))


def shown_sample(sight: Eyesight, message: Message, answer: str) -> ShownSample:
    """A sample from a message with pictures and its answer.

    Raises UsageError as `sample_of` does, and for input that the processor cannot read.
    """
    text = message.text
    # The answer does not depend on the pictures, and is faster to tokenise without
    # them.
    bare = sight.prompt_ids(Message((text,)))
    whole = sight.answered_ids(text, answer)
    sample = _parted(sight.processor.tokenizer, bare, whole)
    shown = ShownSample(sight.prompt_ids(message), sample.response)
    shown.message = message
    return shown


def messages_of(samples: Iterable[Sample]) -> list[Message]:
    """The messages of the samples that have pictures."""
    return [sample.message for sample in samples if isinstance(sample, ShownSample)]


def _parted(tokenizer: Any, prompt: list[int], whole: list[int]) -> Sample:
    """Splits a tokenised conversation into a prompt and one answer."""
    response = whole[len(prompt) :]
    if whole[: len(prompt)] != prompt:
        raise _unusable(tokenizer, "begin the assistant's turn as it prompts for one")
    if tokenizer.eos_token_id not in response:
        raise _unusable(tokenizer, "end the assistant's turn with the eos token")
    # A template may add text after the end of the turn, e.g. a line break.
    response = response[: response.index(tokenizer.eos_token_id) + 1]
    return Sample(prompt, response)


def _unusable(tokenizer: Any, lack: str) -> UsageError:
    return UsageError(
        f"{tokenizer.name_or_path}: its chat template does not {lack}; change "
        "chat_template.jinja or use another model"
    )
