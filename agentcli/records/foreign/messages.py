"""Reads chats: JSON Lines with `messages` as OpenAI has them, one trajectory a line.

messages      The whole conversation; every message of the assistant is a response.
reward        A number; `success` may stand for it.
success       Whether the task was solved. Without it the reward decides.
group         Trajectories of one tree. Without it: those that open alike.
task          The task of a group called `TASK #2`; any other is ignored.
truncated     Whether the trajectory was cut off at a limit; `error`: what failed.
states        State keys: one before each response, and the last one; `canonical`: the
              papers' states likewise.
steps         Numbers of the responses: equal ones of a group were sampled once.
actions       What each response did, where that is not its whole text; null: nothing
              that could be read, or no answer. `validity`, `tags` and `looked` are those of
              our own steps.
instruction   The task, where it is not the first message of the user.

`export --to conversations` writes all of them.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from agentcli.errors import DataError
from agentcli.records.foreign import rollouts
from agentcli.records.types import Position, Reward, Validity

FIELDS = 'each line is {"messages": [...], "reward": NUMBER}'


BY_RESPONSE = {
    "states": 1,
    "canonical": 1,
    "actions": 0,
    "validity": 0,
    "tags": 0,
    "looked": 0,
}
"""The lists with an entry for each response, and how many entries they have besides."""


class ChatRow(msgspec.Struct):
    """One trajectory. Other fields are ignored."""

    messages: list[rollouts.ForeignMessage]
    reward: Reward | None = None
    success: bool | None = None
    group: str | int | None = None
    task: Any = None
    truncated: bool = False
    error: str | None = None
    states: list[str] | None = None
    canonical: list[str | None] | None = None
    steps: list[Position] | None = None
    actions: list[str | None] | None = None
    validity: list[Validity] | None = None
    tags: list[str | None] | None = None
    looked: list[bool] | None = None
    instruction: str | None = None
    kind: str = ""


def read(
    file: Path, choices: rollouts.ImportChoices
) -> Iterator[rollouts.ForeignRollout]:
    """Streams the trajectories of a file. Raises DataError with line and field."""
    for number, line in rollouts.limited_lines(file):
        place = f"{file}:{number}"
        row = rollouts.decoded(line, ChatRow, place, FIELDS)
        if row.reward is None and row.success is None and row.error is None:
            raise DataError(f"{place}: reward: is missing; {FIELDS}")
        turns, after = rollouts.turns_of(row.messages)
        _number(row, turns, place)
        opening = turns[0].before if turns else row.messages
        alike = msgspec.json.encode(opening).decode()
        if turns:
            turns[-1].end = rollouts.Ending(
                reward=float(bool(row.success)) if row.reward is None else row.reward,
                success=row.success,
                truncated=row.truncated,
                error=row.error,
                after=after,
                state=row.states[-1] if row.states else "",
                canonical=row.canonical[-1] if row.canonical else None,
            )
        yield rollouts.ForeignRollout(
            place=place,
            group=rollouts.digest(alike) if row.group is None else str(row.group),
            task=row.task if _is_of_group(row) else None,
            turns=turns,
            instruction=row.instruction,
            kind=row.kind,
        )


def _is_of_group(row: ChatRow) -> bool:
    """Whether `task` is what `export` writes beside a second tree of a task."""
    # Other people's rows have tasks of any kind, which may name no more than a topic.
    return isinstance(row.task, str) and str(row.group).startswith(f"{row.task} #")


def _number(row: ChatRow, turns: list[rollouts.ForeignTurn], place: str) -> None:
    """Gives the responses what has an entry for each of them. Raises DataError for other counts."""
    responses = len(turns)
    if row.steps is not None:
        ascending = all(one < other for one, other in pairwise(row.steps))
        if len(row.steps) != responses or not ascending:
            raise DataError(
                f"{place}: steps: must be one ascending number for each of the "
                f"{responses} responses; leave `steps` out if none is shared"
            )
        for turn, key in zip(turns, row.steps, strict=True):
            turn.key = key
    for name, more in BY_RESPONSE.items():
        column = getattr(row, name)
        if column is None:
            continue
        if len(column) != responses + more:
            given = "one for each" if not more else "one before each, and the last one"
            raise DataError(
                f"{place}: {name}: {len(column)} for {responses} responses; give "
                f"{given}, or leave `{name}` out"
            )
        for turn, value in zip(turns, column, strict=False):
            turn.read[name] = value
