"""Dialects: how a policy is asked, and how its response is read and written.

The three are one object, so that they cannot disagree. A policy acts in K >= 1 copies
of one environment; a single environment is K = 1.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from agentcli.environments.protocol import Context, Picture
from agentcli.records.siblings import joined

UNREADABLE = "The response held no readable action."
"""The observation after such a response. No environment was stepped."""


class Moment(msgspec.Struct, kw_only=True, frozen=True):
    """The knowledge of an agent that is asked: its past in every copy."""

    copies: tuple[Context, ...]
    """Copy 1, copy 2, ...: each with its own past alone."""
    numbered: bool = False
    """Answers name the copies that they act in. Then an unreadable response belongs to
    the past of no copy.
    """
    ended: frozenset[int] = frozenset()
    """1-based: copies whose episode is over."""
    acted: tuple[int, ...] = ()
    """Copies that acted in the last step."""
    unread: bool = False
    """The last response held no readable action."""
    limited: bool = False
    """A response that names a copy above the last one fails the task."""

    @property
    def open(self) -> list[int]:
        """Copies that may act."""
        open_copies = []
        for number in range(1, len(self.copies) + 1):
            if number not in self.ended:
                open_copies.append(number)
        return open_copies

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """The pictures that the copies that may act show now."""
        pictures: list[Picture] = []
        for number in self.open:
            pictures += self.copies[number - 1].pictures
        return tuple(pictures)

    @property
    def text(self) -> str:
        """The text that the agent saw last, of all copies where they have numbers."""
        texts = [copy.observations[-1] for copy in self.copies]
        if not self.numbered:
            return texts[0]
        if self.unread:
            return UNREADABLE
        return joined(dict(enumerate(texts, 1)))


class Message(msgspec.Struct, frozen=True):
    """The user message of one request: texts and pictures, in order."""

    parts: tuple[str | Picture, ...]

    @property
    def text(self) -> str:
        """The texts alone."""
        texts = [part for part in self.parts if isinstance(part, str)]
        return "\n\n".join(texts)

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """The pictures alone."""
        return tuple(part for part in self.parts if isinstance(part, Picture))


class Answer(msgspec.Struct, frozen=True):
    """The content of a response.

    Without a `problem` there are a tag, a reasoning and at least one action; with one
    there are none.
    """

    tag: str | None = None
    """Reasoning tag, lower case."""
    reasoning: str | None = None
    """Text inside the reasoning tag, stripped."""
    actions: Mapping[int, str] = {}
    """Action by copy (1-based), in textual order, runs of white space made one space.
    """
    problem: str | None = None
    """Why the response cannot be read."""
    beyond: bool = False
    """It names a copy above the last one; a problem as well."""


class ResponseForm(Protocol):
    """The form of a response."""

    def read(self, response: str, moment: Moment) -> Answer:
        """The content of a response at that moment; never raises.

        It does not know which actions the environment accepts.
        """

    def write(self, answer: Answer) -> str:
        """The canonical response.

        `read` gives the answer back when no text is blank or holds a tag.
        """


class Dialect(ResponseForm, Protocol):
    """A form of responses with the messages that ask for them.

    Constructed from PromptSettings and a World.
    """

    fixed: str | None
    """Why prompt.history has no part in the messages; None where it has."""

    def ask(self, moment: Moment) -> Message:
        """The message that asks for the next action."""
