"""Where the sampled tokens of a response lie in its text.

They are computed by the tokenizer of the sampled model, if it is still in the folder
that the manifest names. If it splits a response differently than the policy did, the
positions are left out: none are better than wrong ones.
"""

from collections.abc import Callable
from pathlib import Path

from agentcli.analysis.page.texts import units, visible
from agentcli.records.types import Step

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
