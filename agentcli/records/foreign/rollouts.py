"""Trajectories that another program sampled, and the tree that a group of them makes.

The trajectories of a group started from one task. They become sibling roots of one
tree, as independent samples are here (rollout.method chain), even if they begin alike:
a step that two trajectories share counts once in every comparison of siblings, so two
samples with the same text must stay two steps. Steps are shared only where the file
says that a response was sampled once: nodes of one verifiers graph, or equal `steps` of
chats.

A step's prompt is the whole conversation before the response, as text. Its tokens are
kept beside it if they are known: a conversation of several turns cannot be made from one
user message.
"""

import hashlib
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from agentcli.errors import DataError
from agentcli.records.faults import UNREADABLE, fault_in, shown
from agentcli.records.regular import open_regular
from agentcli.records.siblings import by_place
from agentcli.records.trees import validate_tree
from agentcli.records.types import (
    IMPORTED,
    TOO_LONG,
    Ledger,
    Outcome,
    Step,
    StopReason,
    Task,
    Tree,
    Validity,
)

LARGEST_RECORD = 2**28
"""Most bytes of a line, or of a file that is one record: 256 MiB."""
LARGEST_TREE = 2**27
"""Most characters and tokens of a tree's prompts: each repeats those before it."""

T = TypeVar("T")


class ForeignPart(msgspec.Struct):
    """A part of a message's content: text, reasoning, or a picture, which is dropped."""

    type: str
    # Libraries of tables write null for the fields that other parts have.
    text: str | None = None
    reasoning: str | None = None

    def shown(self, kind: str) -> str:
        """Its text or its reasoning; a picture's text is its type in brackets."""
        if kind == "reasoning":
            return self.reasoning or ""
        return (
            (self.text or "")
            if self.type in ("text", "reasoning")
            else f"[{self.type}]"
        )


class CalledFunction(msgspec.Struct):
    """The function of a tool call, as OpenAI nests it."""

    name: str
    arguments: str | dict[str, Any] | None = None


class ForeignCall(msgspec.Struct):
    """A tool call: of OpenAI (a nested function), verifiers (name) or Inspect (function)."""

    function: str | CalledFunction | None = None
    name: str | None = None
    arguments: str | dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """The call as most chat templates write it."""
        named = self.function
        if not isinstance(named, CalledFunction):
            named = CalledFunction(named or self.name or "", self.arguments)
        given = named.arguments or ""
        if not isinstance(given, str):
            given = msgspec.json.encode(given).decode()
        # Not encoded as a whole: OpenAI's arguments are JSON text already.
        call = f'{{"name": "{named.name}", "arguments": {given or "{}"}}}'
        return f"<tool_call>\n{call}\n</tool_call>"


class ForeignMessage(msgspec.Struct):
    """One message of a chat, with the fields that any of the formats has."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ForeignPart] | None = None
    reasoning_content: str | None = None
    tool_calls: list[ForeignCall] | None = None
    source: str | None = None
    """Inspect: input if no model wrote it."""

    @property
    def action(self) -> str:
        """What it does: its tool calls, else its content without reasoning."""
        calls = "\n".join(call.text for call in self.tool_calls or ())
        return calls or self._joined("text")

    @property
    def text(self) -> str:
        """All that can be read: reasoning, content, tool calls."""
        thoughts = (self.reasoning_content, self._joined("reasoning"))
        thought = "\n".join(filter(None, thoughts))
        opened = f"<think>\n{thought}\n</think>" if thought else ""
        content = self._joined("text")
        calls = self.action if self.tool_calls else ""
        return "\n".join(filter(None, (opened, content, calls)))

    def _joined(self, kind: str) -> str:
        """The texts or the reasoning of its content, one a line."""
        if not isinstance(self.content, list):
            return (self.content or "") if kind == "text" else ""
        return "\n".join(part.shown(kind) for part in self.content if part.shown(kind))


class Ending(NamedTuple):
    """How a trajectory ended."""

    reward: float | None = None
    """None: it was not scored."""
    success: bool | None = None
    """None: the reward decides."""
    truncated: bool = False
    """Whether it was cut off at a limit, so that it is no failure of its own."""
    error: str | None = None
    after: Sequence[ForeignMessage] = ()
    """The messages after the last response."""
    state: str = ""
    canonical: str | None = None


@dataclass(slots=True)
class ForeignTurn:
    """One sampled response."""

    parent: int | None
    """Index of the response before it, in the same rollout."""
    before: Sequence[ForeignMessage]
    """The messages since that response, or since the beginning."""
    message: ForeignMessage
    key: int | None = None
    """Responses of a group with the same key are one step."""
    prompt_ids: Sequence[Sequence[int]] = ()
    """The tokens of all that was read, in pieces that turns share."""
    token_ids: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    temperature: float = 1.0
    cut: bool = False
    """Whether it ended at a limit of tokens."""
    read: dict[str, Any] = field(default_factory=dict)
    """What a chat says of the response: states, actions and the like."""
    end: Ending | None = None
    """Set if a trajectory ends here."""


@dataclass(slots=True)
class ForeignRollout:
    """What one record of a file holds: one trajectory, or a graph of several."""

    place: str
    """File and line, for messages."""
    group: str
    turns: list[ForeignTurn]
    task: str | None = None
    """None: the group is named by its task."""
    instruction: str | None = None
    kind: str = ""
    mask: str | None = None
    """Why its steps must not be imitated."""


class ImportChoices(NamedTuple):
    """What the user chose for an import."""

    form: str
    """The format: a name of stages/imports.py."""
    states: str = "none"
    """What stands for states that the file lacks: none, or observation."""
    success: float = 1.0
    """The reward from which a trajectory without a verdict is a success."""
    score: str | None = None
    """The Inspect score that is the reward; None: the first."""


def limited_lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, counted from 1. Raises DataError for too long a line."""
    number = 0
    with open_regular(file) as opened:
        # Never a whole line: one without an end would fill the memory.
        while line := opened.readline(LARGEST_RECORD + 1):
            number += 1
            refuse_large(len(line), f"{file}:{number}", "leave the line out")
            if not line.isspace():
                yield number, line


def refuse_large(size: int, place: str, remedy: str) -> None:
    """Raises DataError above LARGEST_RECORD bytes."""
    if size > LARGEST_RECORD:
        most = LARGEST_RECORD >> 20
        raise DataError(f"{place}: larger than {most} MiB; {remedy}")


def decoded(data: bytes, kind: type[T], place: str, remedy: str) -> T:
    """A record. Raises DataError naming `place` and the field."""
    try:
        return msgspec.json.decode(data, type=kind)
    except UNREADABLE as error:
        raise DataError(f"{place}: {fault_in(error, data)}; {remedy}") from error


def digest(text: str) -> str:
    """A short name for a text: 16 hex digits."""
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()


def texts_of(messages: Sequence[ForeignMessage]) -> str:
    """What the policy read in these messages; system prompts are no observation."""
    texts = [one.text for one in messages if one.role not in ("system", "developer")]
    return "\n\n".join(texts)


@dataclass(slots=True)
class Placed:
    """A turn in the tree of its group."""

    turn: ForeignTurn
    parent: Hashable
    rollout: ForeignRollout
    step: Step | None = None


def tree_of(rollouts: Sequence[ForeignRollout], choices: ImportChoices) -> Tree:
    """The tree of one group.

    Raises DataError for rollouts that contradict each other, for a tree that is too
    large, and for numbers out of range.
    """
    first = rollouts[0]
    by_key = _placed(rollouts)
    steps: list[Step] = []
    size = 0
    for placed in by_key.values():
        above = None if placed.parent is None else by_key[placed.parent].step
        placed.step = _step(placed, len(steps), above, choices)
        steps.append(placed.step)
        size += len(placed.step.prompt) + len(placed.step.prompt_ids or ())
        if size > LARGEST_TREE:
            raise DataError(
                f"{placed.rollout.place}: group {shown(first.group)}: its prompts have "
                f"more than {LARGEST_TREE} characters and tokens, since each repeats "
                "those before it; leave the group out"
            )
    instruction = first.instruction
    if instruction is None:
        messages = first.turns[0].before
        users = [one.text for one in messages if one.role == "user"]
        instruction = users[0] if users else texts_of(messages)
    kind = first.kind or choices.form
    name = first.group if first.task is None else first.task
    task = Task(id=name, world=IMPORTED, split=choices.form, kind=kind)
    tree = Tree(
        task=task,
        instruction=instruction,
        method="import",
        seed=0,
        steps=steps,
        ledger=_ledger(steps),
    )
    validate_tree(tree, first.place)
    return tree


def _placed(rollouts: Sequence[ForeignRollout]) -> dict[Hashable, Placed]:
    """The turns of a group by key, parents first; shared turns once."""
    by_key: dict[Any, Placed] = {}
    for number, rollout in enumerate(rollouts):
        keys: list[Hashable] = []
        for index, turn in enumerate(rollout.turns):
            parent = None if turn.parent is None else keys[turn.parent]
            key = (number, index) if turn.key is None else turn.key
            keys.append(key)
            placed = by_key.setdefault(key, Placed(turn, parent, rollout))
            if placed.turn is turn:
                continue
            first = placed.turn
            alike = (placed.parent, first.before) == (parent, turn.before)
            alike &= (first.message, first.read) == (turn.message, turn.read)
            if not alike or first.end or turn.end:
                raise DataError(
                    f"{rollout.place}: steps[{index}]: {turn.key} is another step in "
                    f"{placed.rollout.place}; number every step of a group once"
                )
    # Numbers ascend along every trajectory, so parents still come first.
    if all(isinstance(key, int) for key in by_key):
        return dict(sorted(by_key.items()))
    return by_key


def _step(
    placed: Placed, number: int, above: Step | None, choices: ImportChoices
) -> Step:
    turn = placed.turn
    message = turn.message
    spoken = [f"{one.role}: {one.text}" for one in turn.before]
    observation = texts_of(turn.before)
    state = turn.read.get("states", "")
    canonical = turn.read.get("canonical")
    if not state and choices.states == "observation":
        state = digest(observation)
    if above is not None:
        spoken = [above.prompt, f"assistant: {above.response}", *spoken]
        if above.next_observation == "":
            above.next_observation = observation
            above.next_state = state
            above.next_canonical = canonical
    elif len(turn.before) == 1:
        # A single message is asked as it is.
        spoken = [observation]
    action = turn.read.get("actions", message.action)
    unread = Validity.MALFORMED if action is None else Validity.VALID
    validity = turn.read.get("validity", unread)
    # As our own steps are that ended before an answer.
    silent = (validity, action, message.text) == (Validity.VALID, None, "")
    if (validity is Validity.MALFORMED) != (action is None) and not silent:
        raise DataError(
            f"{placed.rollout.place}: validity: a response is malformed where its "
            "action is null, and only there or where it is empty; correct one of the "
            "two"
        )
    step = Step(
        id=number,
        parent=None if above is None else above.id,
        prompt="\n\n".join(spoken),
        response=message.text,
        token_ids=list(turn.token_ids),
        logprobs=list(turn.logprobs),
        temperature=turn.temperature,
        stop=StopReason.LENGTH if turn.cut else StopReason.STOP,
        observation=observation,
        tag=turn.read.get("tags"),
        action=action,
        validity=validity,
        canonical=canonical,
        looked=turn.read.get("looked", False),
        state=state,
        next_state="",
        next_observation="",
        mask=placed.rollout.mask,
    )
    if turn.token_ids:
        step.prompt_ids = list(chain.from_iterable(turn.prompt_ids))
    if turn.end is not None:
        _end(step, turn.end, choices)
        if silent and step.outcome is Outcome.FAILURE:
            # Only a policy that was not asked fails without a fault or a response.
            step.stop = StopReason.OVERLONG
            step.mask = step.mask or TOO_LONG
    return step


def _end(step: Step, end: Ending, choices: ImportChoices) -> None:
    """Ends a trajectory with this step."""
    step.next_observation = texts_of(end.after)
    step.next_state = end.state
    step.next_canonical = end.canonical
    if not end.state and choices.states == "observation":
        # Without a last text its state is no other step's.
        after = step.next_observation or f"end of {step.id}: {step.response}"
        step.next_state = digest(after)
    step.reward = end.reward or 0.0
    step.error = end.error
    success = end.success
    if success is None and end.reward is not None:
        success = end.reward >= choices.success
    if success is None and end.error is None:
        step.error = "not scored"
    if step.error is not None:
        step.outcome = Outcome.ERRORED
    elif success:
        step.outcome = Outcome.SUCCESS
    else:
        step.outcome = Outcome.TRUNCATED if end.truncated else Outcome.FAILURE


def _ledger(steps: Sequence[Step]) -> Ledger:
    at_start, of_forks = by_place(steps)
    inner = {step.parent for step in steps} - {None}
    roots = sum(step.parent is None for step in steps)
    together = at_start.plus(of_forks)
    return Ledger(
        leaves=sum(step.outcome is not None for step in steps),
        steps=len(steps),
        forks=len(steps) - roots - len(inner),
        siblings=together.steps,
        distinct_siblings=together.distinct,
        generated_tokens=sum(step.tokens for step in steps),
        prompt_tokens=sum(len(step.prompt_ids or ()) for step in steps),
    )


def turns_of(
    messages: list[ForeignMessage],
) -> tuple[list[ForeignTurn], list[ForeignMessage]]:
    """The responses of a conversation, and the messages after the last one."""
    turns: list[ForeignTurn] = []
    before: list[ForeignMessage] = []
    for message in messages:
        if message.role != "assistant" or message.source == "input":
            before.append(message)
            continue
        parent = len(turns) - 1 if turns else None
        turns.append(ForeignTurn(parent, before, message))
        before = []
    return turns, before
