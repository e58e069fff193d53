"""Turns demonstration trees into samples for imitation: prompts with responses.

Some steps are counted but not imitated: those with a `mask` (deliberate noise), those
whose response was malformed (even if a parser could read it) or inadmissible, empty
responses, and all steps of a tree with only errored leaves. A sample is exactly what
the policy will be asked and should answer: the prompt as in sampling, the answer's own
tokens, and what ends the turn. The chat template never writes the answer, because some
templates move or add reasoning. Every sample is read by the dialect as in sampling.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentcli.environments.protocol import Context, Picture
from agentcli.errors import DataError
from agentcli.policies.chat_tokens import THOUGHT, ChatTokens
from agentcli.prompts.protocol import Dialect, Exchange, Message, Moment
from agentcli.records.faults import printable
from agentcli.records.files import read_numbered, read_records
from agentcli.records.trees import leaves
from agentcli.records.types import PARSED, Outcome, Step, Tree, Validity
from agentcli.training.steps import PictureShelf

LOOKED_AT = 64
"""About how many pictures are read to learn what a world's pictures look like."""
SWITCH = "enable_thinking"
"""The variable with which templates of reasoning models (Qwen3, GLM) leave it out."""


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


def read_steps(path: Path, counts: SampleCounts) -> Iterator[tuple[str, Tree, Step]]:
    """Streams the steps to imitate with place and tree, and counts all steps of a file."""
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
                yield f"{path}:{number}: steps[{step.id}]", tree, step


def left_out(step: Step) -> str | None:
    """Why a step is not imitated (masked, invalid or empty); None if it is."""
    if step.mask is not None:
        return "masked"
    # What only a parser could read would teach a form that the dialect refuses.
    if step.validity != Validity.VALID or PARSED in step.notes:
        return "invalid"
    return None if step.response.strip() else "empty"


def read_texts(trees: Iterable[Path]) -> Iterator[str]:
    """Streams prompt and response of all steps, imitated or not.

    A tokenizer made from the demonstrations needs all of them.
    """
    for path in trees:
        for tree in read_records(path, Tree):
            for step in tree.steps:
                yield step.system or ""
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


def sample_of(
    tokens: ChatTokens, message: Message, answer: str, turns: Sequence[Exchange] = ()
) -> Sample:
    """A sample from a message and its answer, after earlier turns.

    Raises UsageError for a chat template that does not end the assistant's turn, and
    for input that the processor of a vision model cannot read.
    """
    response = tokens.answer_ids(answer)
    prompt = tokens.ids(message, turns)
    if tokens.sight is None:
        return Sample(prompt, response)
    shown = ShownSample(prompt, response)
    shown.message = message
    return shown


def refuse_long_sample(sample: Sample, place: str, max_length: int) -> None:
    """Raises DataError if the sample is longer than sft.max_length."""
    length = len(sample.prompt) + len(sample.response)
    if length > max_length:
        raise DataError(
            f"{place}: prompt and response are {length} tokens, sft.max_length is "
            f"{max_length}; set sft.max_length higher or prompt.history lower"
        )


class SampledForm:
    """Reads a demonstration as it will be read when the policy says it.

    `dialect_of` gives the dialect in which the policy will answer: for one environment,
    or (True) for several numbered copies.
    """

    def __init__(
        self, tokens: ChatTokens, dialect_of: Callable[[bool], Dialect]
    ) -> None:
        self._tokens = tokens
        self._dialect_of = cache(dialect_of)

    def check(self, sample: Sample, tree: Tree, step: Step, place: str) -> None:
        """Raises DataError if the dialect cannot read the tokens of the response."""
        context = Context(
            task=tree.task,
            instruction=tree.instruction,
            observations=(step.observation,),
            admissible=tuple(step.admissible),
        )
        copies = max((move.copy for move in step.moves), default=1)
        numbered = bool(step.moves)
        moment = Moment(copies=(context,) * copies, numbered=numbered)
        text = self._tokens.text(sample.response)
        problem = self._dialect_of(numbered).read(text, moment).problem
        if problem is not None:
            raise DataError(
                f"{place}.response: could not be read when the policy says it "
                f"({problem}); {self._remedy()}"
            )

    def _remedy(self) -> str:
        """What to set: the prompt or the tokens do not fit the form of responses."""
        if not self._tokens.opened:
            return (
                "set prompt.style to the form of the demonstrations, or name another "
                "--model"
            )
        remedy = "name another --model"
        if self._tokens.mentions(SWITCH):
            remedy = f"add --set policy.chat_template_kwargs.{SWITCH}=false"
        return f"the chat template opens every answer with {THOUGHT}: {remedy}"


def messages_of(samples: Iterable[Sample]) -> list[Message]:
    """The messages of the samples that have pictures."""
    return [sample.message for sample in samples if isinstance(sample, ShownSample)]


log = logging.getLogger(__name__)
MOST_FREQUENT = 5
"""How many unknown words a warning names."""
LONGEST = 30
"""How many characters of a word are shown."""


class UnknownWords:
    """Counts the tokens of samples, and those that stand for unknown words."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._id = unknown_id(tokenizer)
        self._words = Counter[str]()
        self.tokens = 0
        """Number of all tokens, unknown ones included."""
        self.unknown = 0

    def add(self, ids: list[int], text: str) -> None:
        """Counts the tokens `ids`, which were made from `text`."""
        self.tokens += len(ids)
        if self._id is None or self._id not in ids:
            return
        self.unknown += ids.count(self._id)
        # Tokenise without the chat template, whose own tokens are known.
        encoding = self._tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True
        )
        places = zip(encoding.input_ids, encoding.offset_mapping, strict=True)
        self._words.update(
            text[start:end] for token, (start, end) in places if token == self._id
        )

    def frequent(self) -> dict[str, int]:
        """The most frequent unknown words and how often each occurs."""
        by_count = sorted(self._words.items(), key=lambda item: (-item[1], item[0]))
        return dict(by_count[:MOST_FREQUENT])

    def warn(self, texts: str, model: str) -> None:
        """Logs one line that names the unknown words and what to do, if there are any.

        `texts` says what was read.
        """
        if not self.unknown:
            return
        words = []
        for word, count in self.frequent().items():
            words.append(f"{printable(word[:LONGEST])!r} {count}")
        log.warning(
            f"warning: {self.unknown} of {self.tokens} tokens of {texts} "
            f"({self.unknown / self.tokens:.1%}) are unknown to the tokenizer of "
            f"{model}, most often {', '.join(words)}; it cannot read or write these "
            "words: make a policy that knows them with --model tiny, or name another "
            "--model"
        )


def unknown_id(tokenizer: Any) -> int | None:
    """The token that is used only for unknown words; None if there is no such token."""
    unknown: int | None = tokenizer.unk_token_id
    # A byte-level tokenizer knows every word, and may name its end-of-text token here.
    if unknown in (tokenizer.eos_token_id, tokenizer.pad_token_id):
        return None
    return unknown if tokenizer.is_fast else None
