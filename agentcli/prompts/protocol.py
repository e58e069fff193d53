"""Dialects define how a policy is asked, and how its response is read and written.

One object does all three, so that they cannot disagree. A policy acts in K >= 1 copies
of one environment; a single environment is K = 1.
"""

from collections.abc import Mapping
from typing import Literal, Protocol

import msgspec

from agentcli.environments.protocol import Context, Picture
from agentcli.records.siblings import joined
from agentcli.records.types import Continues

UNREADABLE = "The response held no readable action."
"""The observation after an unreadable response, which steps no environment."""


class Moment(msgspec.Struct, kw_only=True, frozen=True):
    """What an agent knows when it is asked: its past in every copy."""

    copies: tuple[Context, ...]
    """Copy 1, copy 2, ..., each with only its own past."""
    numbered: bool = False
    """Whether answers name the copies that they act in. If so, an unreadable response
    is not part of any copy's past.
    """
    ended: frozenset[int] = frozenset()
    """Copies whose episode is over, numbered from 1."""
    acted: tuple[int, ...] = ()
    """Copies that acted in the last step whose response could be read."""
    unread: int = 0
    """How many responses since then had no readable action."""
    limited: bool = False
    """Whether a response that names a copy above the last one fails the task."""

    @property
    def open(self) -> list[int]:
        """The copies that may act."""
        numbers = range(1, len(self.copies) + 1)
        return [number for number in numbers if number not in self.ended]

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """The current pictures of the copies that may act."""
        pictures: list[Picture] = []
        for number in self.open:
            pictures += self.copies[number - 1].pictures
        return tuple(pictures)

    @property
    def text(self) -> str:
        """The text that the agent saw last; if copies are numbered, of all copies."""
        texts = [copy.observations[-1] for copy in self.copies]
        if not self.numbered:
            return texts[0]
        if self.unread:
            return UNREADABLE
        return joined(dict(enumerate(texts, 1)))


class Message(msgspec.Struct, frozen=True):
    """The user message of one request: a text, then pictures."""

    parts: tuple[str | Picture, ...]
    system: str = ""
    """The system message before it, if it begins a conversation."""
    tools: str = ""
    """The schemas of the tools, as JSON, if it begins a conversation that calls them."""
    role: Literal["user", "tool"] = "user"
    """tool: it is what a call returned."""
    continues: Continues | None = None
    """How it continues the conversation of the step before; None if it stands alone."""
    begins: Continues | None = None
    """How the conversation goes on that it begins; None if it begins none, or as
    recorded.
    """

    @property
    def in_chat(self) -> bool:
        """Whether it is part of a conversation that grows."""
        return bool(self.begins or self.system or self.continues)

    @property
    def text(self) -> str:
        """The texts alone."""
        texts = [part for part in self.parts if isinstance(part, str)]
        return "\n\n".join(texts)

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """The pictures alone."""
        return tuple(part for part in self.parts if isinstance(part, Picture))


class Exchange(msgspec.Struct, frozen=True):
    """An earlier message of a conversation, and its answer."""

    message: Message
    response: str
    token_ids: tuple[int, ...] = ()
    """The response as it was sampled; empty if no model gave tokens."""


class Answer(msgspec.Struct, frozen=True):
    """The content of a response.

    Without a `problem` it has a tag, reasoning and at least one action; with a problem
    it has none of them.
    """

    tag: str | None = None
    """Reasoning tag, in lower case."""
    reasoning: str | None = None
    """Text inside the reasoning tag, stripped."""
    actions: Mapping[int, str] = {}
    """Actions by copy (numbered from 1), in textual order. Each run of white space is
    one space.
    """
    problem: str | None = None
    """Why the response cannot be read."""
    beyond: bool = False
    """Whether it names a copy above the last one, which is a problem too."""


class ResponseForm(Protocol):
    """The form of a response."""

    def read(self, response: str, moment: Moment) -> Answer:
        """The content of a response at that moment; never raises.

        Whether the environment accepts the action is not checked here.
        """

    def write(self, answer: Answer, moment: Moment) -> str:
        """The canonical response at that moment.

        `read` returns the same answer if no text is blank or contains a tag.
        """


class Dialect(ResponseForm, Protocol):
    """A form of responses, with the messages that ask for them.

    Constructed from PromptSettings and a World.
    """

    fixed: str | None
    """Why prompt.history has no effect on the messages; None if it has one."""

    def ask(self, moment: Moment) -> Message:
        """The message that asks for the next action."""
