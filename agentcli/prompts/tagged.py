"""Responses with one reasoning tag, then one action tag: `<think> why </think><action>
go to fridge 1 </action>`.

The same reading decides whether a response is valid and whether it branches (SPARK's
trigger, 000 eq. 5), so the two can never disagree.
"""

import re
from functools import lru_cache

from agentcli.prompts.protocol import Answer, Moment

REASONING_TAGS = ("think", "explore")


class Tagged:
    """The form of such responses."""

    tags: tuple[str, ...] = REASONING_TAGS
    """Reasoning tags that a response may have."""
    fixed: str | None = None

    def read(self, response: str, moment: Moment) -> Answer:
        """Tag, reasoning and action of a response; `moment` has no part in it."""
        return read_tagged(response, self.tags)

    def write(self, answer: Answer) -> str:
        """The answer's one action. An answer without one, or with several, is a
        ValueError.
        """
        (action,) = answer.actions.values()
        return write_tagged(answer.tag or "", answer.reasoning or "", action)


def read_tagged(response: str, tags: tuple[str, ...] = REASONING_TAGS) -> Answer:
    """Read `<tag> reasoning </tag> <action> action </action>`; never raises.

    The tags of a valid response, in textual order, are exactly these four, with one of
    `tags` for the reasoning, in any letter case, and neither pair is empty. A second
    tag of any kind makes the response ambiguous, hence malformed; text outside the tags
    is ignored.
    """
    marks = list(_marks(tags).finditer(response))
    names = [mark[1].lower() for mark in marks]
    if not any(name in tags for name in names):
        return Answer(
            problem=(
                "no reasoning tag; expected one of "
                f"{', '.join(f'<{tag}>' for tag in tags)}"
            )
        )
    if "action" not in names:
        return Answer(problem="no <action> tag")
    tag = names[0]
    if tag not in tags or names != [tag, f"/{tag}", "action", "/action"]:
        sequence = " ".join(f"<{name}>" for name in names)
        return Answer(
            problem=(
                "expected one closed reasoning tag, then one closed <action>; found "
                f"{sequence}"
            )
        )
    reasoning = response[marks[0].end() : marks[1].start()].strip()
    action = " ".join(response[marks[2].end() : marks[3].start()].split())
    if not reasoning:
        return Answer(problem=f"<{tag}> is empty")
    if not action:
        return Answer(problem="<action> is empty")
    return Answer(tag, reasoning, {1: action})


def write_tagged(tag: str, reasoning: str, action: str) -> str:
    """The canonical response; `read_tagged` reads it back when neither text is blank or
    holds a tag.
    """
    return f"<{tag}> {reasoning} </{tag}><action> {action} </action>"


@lru_cache
def _marks(tags: tuple[str, ...]) -> re.Pattern[str]:
    names = "|".join(map(re.escape, (*tags, "action")))
    return re.compile(rf"<(/?(?:{names}))[ \t]*>", re.IGNORECASE)
