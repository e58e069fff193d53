"""Finds words in the training texts that the tokenizer does not know.

A word-level tokenizer maps all of them to the same token. A policy trained on it learns
that token easily and reaches a low loss, but its answers are useless.
"""

import logging
from collections import Counter
from typing import Any

from agentcli.records.faults import printable

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
