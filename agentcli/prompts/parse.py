"""The interface between a policy's text and the environment: one reasoning tag, then one action tag.

`parse` reads a response and `format_response` writes one. The same reading decides whether a response is valid and whether
it branches (SPARK's trigger, 000 eq. 5), so the two can never disagree. It does not know which actions are admissible.
"""

import re
from functools import lru_cache

import msgspec

REASONING_TAGS = ("think", "explore")


class Parsed(msgspec.Struct, frozen=True):
    """What a response says. Either `problem` is None and the other three are set, or `problem` says what is wrong and
    they are None."""

    tag: str | None = None
    """Reasoning tag, lower case."""
    reasoning: str | None = None
    """Text inside the reasoning tag, stripped."""
    action: str | None = None
    """Text inside the action tag, runs of white space made one space."""
    problem: str | None = None

    @property
    def explores(self) -> bool:
        """The response is valid and reasons in <explore>."""
        return self.tag == "explore"


def parse(response: str, tags: tuple[str, ...] = REASONING_TAGS) -> Parsed:
    """Read `<tag> reasoning </tag> <action> action </action>`; never raises.

    The tags of a valid response, in textual order, are exactly these four, with one of `tags` for the reasoning, in any
    letter case, and neither pair is empty. A second tag of any kind makes the response ambiguous, hence malformed;
    text outside the tags is ignored.
    """
    marks = list(_marks(tags).finditer(response))
    names = [mark[0][1:-1].strip().lower() for mark in marks]
    if not any(name in tags for name in names):
        return Parsed(problem=f"no reasoning tag; expected one of {', '.join(f'<{tag}>' for tag in tags)}")
    if "action" not in names:
        return Parsed(problem="no <action> tag")
    tag = names[0]
    if tag not in tags or names != [tag, f"/{tag}", "action", "/action"]:
        found = " ".join(f"<{name}>" for name in names)
        return Parsed(problem=f"expected one closed reasoning tag, then one closed <action>; found {found}")
    reasoning = response[marks[0].end() : marks[1].start()].strip()
    action = " ".join(response[marks[2].end() : marks[3].start()].split())
    if not reasoning:
        return Parsed(problem=f"<{tag}> is empty")
    if not action:
        return Parsed(problem="<action> is empty")
    return Parsed(tag, reasoning, action)


def format_response(tag: str, sentence: str, action: str) -> str:
    """The canonical response; `parse` reads it back when neither text is blank or holds a tag."""
    return f"<{tag}> {sentence} </{tag}><action> {action} </action>"


@lru_cache
def _marks(tags: tuple[str, ...]) -> re.Pattern[str]:
    names = "|".join(map(re.escape, (*tags, "action")))
    return re.compile(rf"</?(?:{names})[ \t]*>", re.IGNORECASE)
