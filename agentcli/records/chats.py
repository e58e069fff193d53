"""The lines of exported chats, in the formats of TRL's SFTTrainer and DPOTrainer.

A prompt is what the policy was asked in one step, an answer what it said. The trainers
leave out the columns that they do not know.
"""

from typing import Literal

from agentcli.records.types import Position, Record


class ChatTurn(Record, kw_only=True):
    """One message of a chat."""

    role: Literal["user", "assistant"]
    content: str


class PromptCompletion(Record, kw_only=True):
    """One response to imitate: a line of export/messages.jsonl."""

    prompt: list[ChatTurn]
    completion: list[ChatTurn]
    task: str
    """Task id of the tree."""
    tree: Position
    """The tree's line in its file, from 1."""
    step: Position


class Preference(Record, kw_only=True):
    """Two responses to one prompt, after one of which the task was solved.

    It is a line of export/preferences.jsonl.
    """

    prompt: list[ChatTurn]
    chosen: list[ChatTurn]
    rejected: list[ChatTurn]
    task: str
    """Task id of the tree."""
    tree: Position
    """The tree's line in its file, from 1."""
    chosen_step: Position
    rejected_step: Position


def asked(text: str) -> list[ChatTurn]:
    """A prompt as a chat."""
    return [ChatTurn(role="user", content=text)]


def answered(text: str) -> list[ChatTurn]:
    """A response as a chat."""
    return [ChatTurn(role="assistant", content=text)]
