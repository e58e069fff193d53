"""Finds the tags of a response, and reads one reasoning tag, then one action tag.

For instance `<think> why </think><action> go to fridge 1 </action>`. The same parse
decides whether a response is valid and whether it branches (SPARK's trigger,
eq. 5), so the two can never disagree.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from agentcli.prompts.protocol import Answer, Moment
from agentcli.records.faults import one_line

REASONING_TAGS = ("think", "explore")


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
        name = match[1].lower()
        tags.append(Tag(name, match.start(), match.end()))
    return tags


def shown(names: list[str]) -> str:
    """Tags as shown in a message, e.g. "<think> </think>"."""
    return " ".join(f"<{name}>" for name in names)


def between(response: str, opening: Tag, closing: Tag) -> str:
    """The text between two tags, stripped."""
    return response[opening.end : closing.start].strip()


def unfenced(text: str) -> str:
    """The text without a code fence around it."""
    body = text.strip()
    if body.startswith("```") and body.endswith("```"):
        body = body.removeprefix("```").removesuffix("```")
        # The language of a fence, as in ```json.
        if body[:4].lower() == "json":
            body = body[4:]
    return body.strip()


class Tagged:
    """The form of responses with a reasoning tag and an action tag."""

    tags: tuple[str, ...] = REASONING_TAGS
    """Reasoning tags that a response may have."""
    fixed: str | None = None

    def read(self, response: str, moment: Moment) -> Answer:
        """The tag, reasoning and action of a response; `moment` is not used."""
        return read_tagged(response, self.tags)

    def write(self, answer: Answer, moment: Moment) -> str:
        """The answer as text; raises ValueError unless it has exactly one action."""
        (action,) = answer.actions.values()
        return write_tagged(answer.tag or "", answer.reasoning or "", action)


def read_tagged(response: str, tags: tuple[str, ...] = REASONING_TAGS) -> Answer:
    """Reads `<tag> reasoning </tag> <action> action </action>`; never raises.

    A valid response has exactly these four tags in this order, in any letter case, with
    one of `tags` as the reasoning tag, and neither pair is empty. A second tag of any
    kind makes the response ambiguous and therefore malformed. Text outside the tags is
    ignored.
    """
    marks = find_tags(_pattern(tags), response)
    names = [mark.name for mark in marks]
    if set(tags).isdisjoint(names):
        choices = ", ".join(f"<{tag}>" for tag in tags)
        return Answer(problem=f"no reasoning tag; expected one of {choices}")
    if "action" not in names:
        return Answer(problem="no <action> tag")
    tag = names[0]
    expected = [tag, f"/{tag}", "action", "/action"]
    # With a second tag of any kind it is unclear which one is meant.
    if tag not in tags or names != expected:
        problem = (
            "expected one closed reasoning tag, then one closed <action>; found "
            f"{shown(names)}"
        )
        return Answer(problem=problem)
    opening, closing, action_opening, action_closing = marks
    reasoning = between(response, opening, closing)
    action = one_line(between(response, action_opening, action_closing))
    if not reasoning:
        return Answer(problem=f"<{tag}> is empty")
    if not action:
        return Answer(problem="<action> is empty")
    return Answer(tag, reasoning, {1: action})


def write_tagged(tag: str, reasoning: str, action: str) -> str:
    """The canonical response.

    `read_tagged` reads it back if neither text is blank or contains a tag.
    """
    return f"<{tag}> {reasoning} </{tag}><action> {action} </action>"


@lru_cache
def _pattern(tags: tuple[str, ...]) -> re.Pattern[str]:
    names = [re.escape(tag) for tag in tags]
    return tag_pattern("|".join([*names, "action"]))
