"""Texts of worlds and models for a page: made harmless, and each stored once.

All lengths in a page are in UTF-16 units, as in JavaScript. Where the sampled tokens of
a response lie is computed by the tokenizer of the sampled model, if it is still in the
folder that the manifest names. If it splits a response differently than the policy did,
the positions are left out: none are better than wrong ones.
"""

from collections.abc import Callable
from pathlib import Path

from agentcli.records.faults import printable
from agentcli.records.types import Step

NO_TEXT = -1
"""Stands for the place of a missing text."""
PromptPart = tuple[int, int, int]
"""Units kept from the start and from the end of the previous prompt, and the place of
the text between them.
"""


def visible(text: str) -> str:
    """`text` with control, bidirectional and other invisible characters as escapes.

    Lines stay lines.
    """
    if text.replace("\n", "").isprintable():
        return text
    return "\n".join(printable(line.expandtabs(4)) for line in text.split("\n"))


def units(text: str) -> int:
    """The length of a text in UTF-16."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def kept_part(text: str, earlier: str) -> tuple[int, int]:
    """The characters that `text` shares with an earlier one, at its start and its end.

    The two parts do not overlap in either text.
    """
    start = _common_start(text, earlier)
    rest = text[start:]
    end = _common_start(rest[::-1], earlier[start:][::-1])
    return start, end


def _common_start(first: str, second: str) -> int:
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class TextTable:
    """The different texts of one tree, made visible, by their places."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._places: dict[str, int] = {}

    def place(self, text: str | None) -> int:
        """The place of a text; a new text is added."""
        if text is None:
            return NO_TEXT
        place = self._places.get(text)
        if place is None:
            place = self._places[text] = len(self.texts)
            self.texts.append(visible(text))
        return place

    def prompt(self, prompt: str, earlier: str) -> PromptPart:
        """A prompt as what it keeps of an earlier one; both are visible already."""
        start, end = kept_part(prompt, earlier)
        middle = prompt[start : len(prompt) - end]
        kept_end = prompt[len(prompt) - end :]
        return units(prompt[:start]), units(kept_end), self.place(middle)


TokenEnds = Callable[[Step], list[int]]
"""The ends of a step's tokens in its response, in UTF-16 units; [] where unknown."""


def no_ends(step: Step) -> list[int]:
    """Returns no positions: there is no tokenizer."""
    return []


def token_ends_of(model: str | None, run: Path) -> TokenEnds:
    """The function that finds the tokens of a model's responses.

    `model` is a folder as the manifest of `run` names it: seen from where the run was
    made, mostly the folder above runs/.
    """
    if model is None:
        return no_ends
    for folder in (Path(), *run.absolute().parents[:4]):
        file = folder / model / "tokenizer.json"
        if file.is_file():
            return _of_file(file)
    return no_ends


def _of_file(file: Path) -> TokenEnds:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(file))

    def token_ends(step: Step) -> list[int]:
        text = step.response
        if not step.token_ids or visible(text) != text:
            return []
        encoding = tokenizer.encode(text, add_special_tokens=False)
        # The last token may be the end of turn, which the response does not hold.
        if encoding.ids not in (step.token_ids, step.token_ids[:-1]):
            return []
        ends = [end for _, end in encoding.offsets]
        return ends if text.isascii() else [units(text[:end]) for end in ends]

    return token_ends
