"""Finds the tags of a response, for all forms of responses."""

import re
from typing import NamedTuple


class Tag(NamedTuple):
    """A tag in a response."""

    name: str
    """Lower case; a closing tag keeps its slash."""
    start: int
    end: int


def tag_pattern(names: str) -> re.Pattern[str]:
    """A pattern for opening and closing tags; `names` is a regular expression.

    Letter case does not matter.
    """
    # Models write <think > at times, and mean the tag.
    return re.compile(rf"<(/?(?:{names}))[ \t]*>", re.IGNORECASE)


def find_tags(pattern: re.Pattern[str], response: str) -> list[Tag]:
    """The tags of a response, in textual order."""
    tags = []
    for match in pattern.finditer(response):
        tags.append(Tag(match[1].lower(), match.start(), match.end()))
    return tags


def shown(names: list[str]) -> str:
    """Tags as shown in a message, e.g. "<think> </think>"."""
    return " ".join(f"<{name}>" for name in names)


def between(response: str, opening: Tag, closing: Tag) -> str:
    """The text between two tags, stripped."""
    return response[opening.end : closing.start].strip()


def one_line(text: str) -> str:
    """The text with every run of white space replaced by one space."""
    return " ".join(text.split())


def unfenced(text: str) -> str:
    """The text without a code fence around it."""
    body = text.strip()
    if body.startswith("```") and body.endswith("```"):
        body = body.removeprefix("```").removesuffix("```")
        # The language of a fence, as in ```json.
        if body[:4].lower() == "json":
            body = body[4:]
    return body.strip()
