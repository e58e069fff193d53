"""Responses that act in several copies of one environment at once (DPEPO, 004 App. C).

A response is one `<think>`, then one `<parallel>` with an action for every copy that
shall act: `<env_i>` is copy i. The tags are the paper's.
"""

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from agentcli.prompts.protocol import Answer, Moment

_MARK = re.compile(
    r"<(/?(?:think|explore|action|parallel|env_\w*))[ \t]*>", re.IGNORECASE
)


class Parallel:
    """The form of such responses."""

    def read(self, response: str, moment: Moment) -> Answer:
        """Reasoning and the actions of the copies that a response names, if all of them
        are open.
        """
        return read_parallel(response, moment.open, len(moment.copies))

    def write(self, answer: Answer) -> str:
        """Reasoning in <think>, whatever the answer's tag, and the actions in their
        order.
        """
        return write_parallel(answer.reasoning or "", answer.actions)


class Mark(NamedTuple):
    """A tag in a response."""

    name: str
    """Lower case, with the slash of a closing tag."""
    start: int
    end: int


def read_parallel(response: str, copies: Collection[int], count: int) -> Answer:
    """Read `<think> reasoning </think> <parallel> <env_i> action </env_i> ...
    </parallel>`; never raises.

    The index in the tag is the copy. A response that names a copy outside `copies`, or
    one twice, or holds another tag, is malformed as a whole: what it means is not
    guessed. A single action may do without `<parallel>`. Letter case and text outside
    the tags do not matter. There are `count` copies, ended ones included. Where a
    response names one above, that is the problem that is reported.
    """
    marks = [
        Mark(match[1].lower(), match.start(), match.end())
        for match in _MARK.finditer(response)
    ]
    names = [mark.name for mark in marks]
    if names[:2] != ["think", "/think"]:
        return Answer(problem="expected one closed <think> first")
    for name in names[2:]:
        if _is_above(name, count):
            return Answer(
                problem=f"no <{name}> to act in; there are {count} copies", beyond=True
            )
    inner = marks[2:]
    if names[2:3] == ["parallel"] and names[-1] == "/parallel":
        inner = marks[3:-1]
    elif len(inner) > 2:
        return Answer(problem="expected several actions inside one closed <parallel>")
    reasoning = response[marks[0].end : marks[1].start].strip()
    if not reasoning:
        return Answer(problem="<think> is empty")
    actions, problem = _actions(response, inner, copies)
    if problem is None and (not actions or 2 * len(actions) != len(inner)):
        sequence = " ".join(f"<{name}>" for name in names[2:])
        problem = (
            f"expected closed <env_i> tags and nothing else; found {sequence or 'none'}"
        )
    if problem is None and not all(actions.values()):
        problem = "an <env_i> is empty"
    return Answer(problem=problem) if problem else Answer("think", reasoning, actions)


def write_parallel(reasoning: str, actions: Mapping[int, str]) -> str:
    """The canonical response; `read_parallel` reads it back when no text is blank or
    holds a tag.
    """
    moves = "".join(
        f"<env_{number}> {action} </env_{number}>" for number, action in actions.items()
    )
    return f"<think> {reasoning} </think><parallel>{moves}</parallel>"


def listed(copies: Collection[int]) -> str:
    """Copies by their names, e.g. "env_1, env_3"."""
    return ", ".join(f"env_{number}" for number in sorted(copies))


def _actions(
    response: str, marks: list[Mark], copies: Collection[int]
) -> tuple[dict[int, str], str | None]:
    """The actions of the copies that are named, up to the first tag that is not closed
    or is not a copy's; and what is wrong with the copies.
    """
    numbers = {f"env_{number}": number for number in copies}
    actions: dict[int, str] = {}
    for begin, end in zip(marks[::2], marks[1::2], strict=False):
        if not begin.name.startswith("env_") or end.name != f"/{begin.name}":
            break
        number = numbers.get(begin.name)
        if number is None:
            return {}, f"no <{begin.name}> to act in; there are {listed(copies)}"
        if number in actions:
            return {}, f"<{begin.name}> acts twice"
        actions[number] = " ".join(response[begin.end : end.start].split())
    return actions, None


def _is_above(name: str, count: int) -> bool:
    """Whether a tag names a copy above `count`, leading zeros aside."""
    digits = name.removeprefix("/").removeprefix("env_").lstrip("0")
    if "env_" not in name or not digits.isascii() or not digits.isdecimal():
        return False
    # Python refuses to convert very long numbers, so their lengths are compared first.
    return len(digits) > len(str(count)) or int(digits) > count
