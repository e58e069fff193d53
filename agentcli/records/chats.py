"""The lines of exported chats, in the formats of TRL's SFTTrainer and DPOTrainer.

The prompt is what the policy was asked in one step; the completion is its response. The
trainers ignore columns that they do not know.
"""

from typing import Any, Literal

import msgspec

from agentcli.records.types import Position, Record, Score, Validity

Images = list[str] | msgspec.UnsetType
"""Files of a prompt's pictures, relative to the export folder; absent if it has none.
"""

Tools = list[dict[str, Any]] | msgspec.UnsetType
"""The schemas of the tools of a conversation that calls some; else absent."""


class ChatPart(Record, kw_only=True):
    """A text, or the placeholder of the next picture."""

    type: Literal["text", "image"]
    text: str | msgspec.UnsetType = msgspec.UNSET


class ChatTurn(Record, kw_only=True):
    """One message of a chat."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[ChatPart]
    """A list of parts if the message has pictures."""


class PromptCompletion(Record, kw_only=True):
    """One response to imitate: a line of export/messages.jsonl."""

    prompt: list[ChatTurn]
    completion: list[ChatTurn]
    tools: Tools = msgspec.UNSET
    images: Images = msgspec.UNSET
    task: str
    """Task id of the tree."""
    tree: Position
    """The tree's line in its file, from 1."""
    step: Position


class Preference(Record, kw_only=True):
    """Two responses to the same prompt; only the chosen one led to success.

    One line of export/preferences.jsonl.
    """

    prompt: list[ChatTurn]
    chosen: list[ChatTurn]
    rejected: list[ChatTurn]
    tools: Tools = msgspec.UNSET
    images: Images = msgspec.UNSET
    task: str
    """Task id of the tree."""
    tree: Position
    """The tree's line in its file, from 1."""
    chosen_step: Position
    rejected_step: Position


class Conversation(Record, kw_only=True):
    """One trajectory, as `agentcli import --from messages` reads it.

    A line of export/conversations.jsonl: `messages` as in OpenAI's files, and what
    credit needs (records/foreign/messages.py).
    """

    messages: list[ChatTurn]
    tools: Tools = msgspec.UNSET
    reward: Score
    success: bool
    truncated: bool
    error: str | None
    group: str
    """Task id of the tree; for a later tree of the task with a number, as in "t #2"."""
    task: str | msgspec.UnsetType = msgspec.UNSET
    """Task id, where `group` is another."""
    instruction: str
    kind: str
    steps: list[Position]
    rewards: list[Score]
    """The world's own reward of every step."""
    advantages: list[float | None] | msgspec.UnsetType = msgspec.UNSET
    """The credit of every step, None where none is assigned; not written without one.
    """
    states: list[str] | msgspec.UnsetType = msgspec.UNSET
    """The exact state keys; not written without them."""
    canonical: list[str | None] | msgspec.UnsetType = msgspec.UNSET
    """The papers' states; not written without any."""
    actions: list[str | None]
    """What every response did."""
    validity: list[Validity]
    tags: list[str | None]
    looked: list[bool]
    """Whether a response only looked, as the world has it."""


def asked(
    text: str, pictures: int = 0, role: Literal["user", "tool"] = "user"
) -> list[ChatTurn]:
    """A prompt as a chat, with its pictures after the text."""
    if not pictures:
        return [ChatTurn(role=role, content=text)]
    places = [ChatPart(type="image")] * pictures
    content = [ChatPart(type="text", text=text), *places]
    return [ChatTurn(role=role, content=content)]


def answered(text: str) -> list[ChatTurn]:
    """A response as a chat."""
    return [ChatTurn(role="assistant", content=text)]
