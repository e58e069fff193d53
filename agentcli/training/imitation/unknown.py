"""Words of texts to learn that a tokenizer does not know.

A word-level tokenizer makes one and the same token of all of them. A policy that is
trained on such a token learns it easily, the loss is low, and what it answers says
nothing.
"""

import logging
from collections import Counter
from typing import Any

from agentcli.records.faults import printable

log = logging.getLogger(__name__)
MOST_FREQUENT = 5
"""Unknown words that are named."""
LONGEST = 30
"""Characters of a word that are shown."""


class UnknownWords:
    """Counts the tokens of samples, and which of them stand for unknown words."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._id = unknown_id(tokenizer)
        self._words = Counter[str]()
        self.tokens = 0
        """All tokens, the unknown included."""
        self.unknown = 0

    def add(self, ids: list[int], text: str) -> None:
        """Counts the tokens `ids` that were made of `text`."""
        self.tokens += len(ids)
        if self._id is None or self._id not in ids:
            return
        self.unknown += ids.count(self._id)
        # Without the template, whose own tokens are known.
        encoding = self._tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True
        )
        places = zip(encoding.input_ids, encoding.offset_mapping, strict=True)
        self._words.update(
            text[start:end] for token, (start, end) in places if token == self._id
        )

    def frequent(self) -> dict[str, int]:
        """The most frequent unknown words, and how often each occurs."""
        by_count = sorted(self._words.items(), key=lambda item: (-item[1], item[0]))
        return dict(by_count[:MOST_FREQUENT])

    def warn(self, texts: str, model: str) -> None:
        """Logs a line that names them and says what to do, unless all is known.

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
    """The token that stands for unknown words only; None where there is none."""
    unknown: int | None = tokenizer.unk_token_id
    # A byte-level tokenizer may name its end of text here, and knows every word.
    if unknown in (tokenizer.eos_token_id, tokenizer.pad_token_id):
        return None
    return unknown if tokenizer.is_fast else None
