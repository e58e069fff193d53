"""The way to an answer: what must be known, and how each tool can be asked for it."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from agentcli.worlds.tool_qa.kinds import FACTORS, KINDS, Property
from agentcli.worlds.tool_qa.knowledge import PLACES
from agentcli.worlds.tool_qa.questions.templates import TEMPLATES, Template

NUMBERS = "abcd"
EXPONENT = "e"
SUBJECT = "s"
VALUES = "vw"


class Need(NamedTuple):
    """Something that must be known on the way; the last one is the answer."""

    fact: str
    """Name of the fact that is looked up; empty for a result."""
    calls: tuple[tuple[str, str], ...]
    """Tool and argument; an argument with {v} or {w} waits for a value before it."""
    value: str = ""
    """The text that says it, a number or a word; empty for one who must find out."""


class Reading(NamedTuple):
    """A question as its template reads it."""

    template: Template
    slots: dict[str, str]


def filled(form: str, slots: Mapping[str, str]) -> str:
    """A text with its slots filled; those without a value stay."""
    for name, value in slots.items():
        form = form.replace(f"{{{name}}}", value)
    return form


@lru_cache(maxsize=1)
def _patterns() -> list[tuple[re.Pattern[str], Template]]:
    return [(_pattern(template.text), template) for template in TEMPLATES]


def _pattern(text: str) -> re.Pattern[str]:
    """Reads the slots of a question back."""
    pattern = re.escape(text)
    for name in NUMBERS + EXPONENT:
        pattern = pattern.replace(rf"\{{{name}\}}", rf"(?P<{name}>\d+)", 1)
    return re.compile(pattern.replace(r"\{s\}", r"(?P<s>\w+)"))


@lru_cache(maxsize=4096)
def read_question(text: str) -> Reading | None:
    """The template and the slots of a question; None for a question of another hand."""
    for pattern, template in _patterns():
        match = pattern.fullmatch(text)
        if match:
            return Reading(template, match.groupdict())
    return None


def needs_of(template: Template, slots: dict[str, str]) -> tuple[Need, ...]:
    """What must be known for a question, without the values."""
    needs = []
    subject = slots.get(SUBJECT, "")
    for lookup in template.lookups:
        # A conversion has no subject.
        fact = f"{lookup} of {subject}" if subject else lookup
        # Any of these tools may know it.
        needs.append(Need(fact, tuple((tool, fact) for tool in PLACES)))
    if template.calls:
        calls = tuple((tool, filled(form, slots)) for tool, form in template.calls)
        needs.append(Need("", calls))
    return tuple(needs)


def next_calls(
    needs: Sequence[Need], values: Mapping[str, str]
) -> tuple[Need, list[tuple[str, str]]]:
    """The need to go for now, and the calls that may meet it.

    It is the answer as soon as a tool can be asked for it. `values` holds those of the
    lookups, by their slots.
    """
    answer = needs[-1]
    ready = []
    for tool, form in answer.calls:
        argument = filled(form, values)
        if "{" not in argument:
            ready.append((tool, argument))
    if ready:
        return answer, ready
    waiting = [need for slot, need in slotted(needs) if slot not in values]
    return waiting[0], list(waiting[0].calls)


def slotted(needs: Sequence[Need]) -> list[tuple[str, Need]]:
    """The lookups, each with the slot of its value."""
    lookups = [need for need in needs if need.fact]
    return list(zip(VALUES, lookups, strict=False))


def property_of(kind: str, name: str) -> Property:
    """A property by the names of its kind and itself; a factor is a number."""
    if kind == "unit":
        return Property(name, 1, len(FACTORS))
    properties = next(one.properties for one in KINDS if one.name == kind)
    return next(one for one in properties if one.name == name)
