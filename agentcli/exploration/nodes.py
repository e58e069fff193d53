"""Nodes of a growing tree, and how one follows from another.

A node has K >= 1 copies of the environment, all forks of one initial state; a single
environment is K = 1. Nodes are immutable: acting twice on the same node makes a fork. A
copy that has ended takes no more actions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace

from agentcli.environments.protocol import Context, Observation, Picture
from agentcli.policies.protocol import Reply
from agentcli.prompts.protocol import UNREADABLE, Answer, Exchange, Message, Moment
from agentcli.records.siblings import joined
from agentcli.records.types import (
    PARSED,
    TOO_LONG,
    Ledger,
    Move,
    Outcome,
    Pictures,
    Step,
    StopReason,
    Task,
    Tree,
    Validity,
)

if TYPE_CHECKING:
    # For annotations only: reading this package's settings must not import engines.
    from agentcli.environments.engines.pool import State

Lineage = tuple[int, ...]
"""Child indices from the root: the name of a step."""


NO_REPLY = Reply(text="")
"""Stands for the response where the policy failed to answer."""

UNASKED = Reply(text="", stop=StopReason.OVERLONG, mask=TOO_LONG)
"""Stands for the response to an overlong prompt, where that fails the task.

Its mask keeps it out of training, because the policy said nothing.
"""


def spelled(lineage: Lineage) -> str:
    """A lineage as text, e.g. "0/2/1"; seeds are derived from it."""
    return "/".join(map(str, lineage))


@dataclass(frozen=True, slots=True)
class Node:
    """A state the agent can act in, or the end of a trajectory."""

    lineage: Lineage
    states: tuple["State", ...]
    """The states of copy 1, copy 2, ...; empty if the environment could not be opened.
    """
    moment: Moment
    step: Step | None = None
    """The step that led here; None at the initial state."""
    turns: tuple[Exchange, ...] = ()
    """The conversation that led here, which the next message may continue."""

    @property
    def finished(self) -> bool:
        """Whether the trajectory ends at this node."""
        return self.step is not None and self.step.outcome is not None

    @property
    def explores(self) -> bool:
        """Whether the step that led here reasoned in <explore> (SPARK eq. 5)."""
        return self.step is not None and self.step.tag == "explore"

    @property
    def key(self) -> str:
        """The exact state key; where copies are numbered, the keys of all copies."""
        keys = [state.observation.state for state in self.states]
        if self.moment.numbered:
            return joined(dict(enumerate(keys, 1)))
        return keys[0] if keys else ""

    @property
    def canonical(self) -> str | None:
        """The canonical state; where copies are numbered, those of all copies.

        None in a world without canonical states.
        """
        texts = {}
        for number, state in enumerate(self.states, 1):
            if state.observation.canonical is not None:
                texts[number] = state.observation.canonical
        if self.moment.numbered and texts:
            return joined(texts)
        return texts.get(1)


NOTHING = Answer()
"""The answer if no policy responded."""
UNSAID = Message(())
"""The message if no policy was asked."""


@dataclass(frozen=True, slots=True)
class Response:
    """A policy's response that has not been executed yet."""

    message: Message
    """What the policy was asked."""
    reply: Reply
    answer: Answer = NOTHING
    error: str | None = None
    """The fault of the policy, the engine or the judge; None if there is none."""
    redrawn: int = 0
    """The number of responses thrown away before this one."""
    parsed: bool = False
    """Whether the answer was read by a parser model (rollout.parser)."""


def reached(
    node: Node,
    index: int,
    actions: Mapping[int, str],
    states: Mapping[int, "State"],
) -> Node:
    """The node that the response `index` leads to, still without its step.

    `states` are the new states of the copies that acted.
    """
    moment = node.moment
    now = list(node.states)
    copies = list(moment.copies)
    ended = set(moment.ended)
    for number, state in states.items():
        observation = state.observation
        place = number - 1
        now[place] = state
        copies[place] = _after(copies[place], actions[number], observation)
        if observation.end is not None:
            ended.add(number)
    if not actions and not moment.numbered:
        # An unreadable response becomes part of the only copy's past. Its admissible
        # actions and pictures stay the same.
        before = copies[0]
        copies[0] = replace(
            before,
            observations=(*before.observations, UNREADABLE),
            actions=(*before.actions, ""),
        )
    following = replace(
        moment,
        copies=tuple(copies),
        ended=frozenset(ended),
        acted=tuple(states) if actions else moment.acted,
        unread=0 if actions else moment.unread + 1,
    )
    return Node((*node.lineage, index), tuple(now), following)


def said(node: Node, response: Response) -> tuple[Exchange, ...]:
    """The conversation through a response at `node`; a message may begin a new one."""
    message, reply = response.message, response.reply
    before = () if message.continues is None else node.turns
    return (*before, Exchange(message, reply.text, reply.token_ids))


def _after(context: Context, action: str, observation: Observation) -> Context:
    return replace(
        context,
        observations=(*context.observations, observation.text),
        actions=(*context.actions, action),
        admissible=observation.actions,
        pictures=observation.pictures,
    )


def outcome_of(
    response: Response,
    after: Node,
    states: Mapping[int, "State"],
    max_steps: int,
) -> Outcome | None:
    """How the trajectory ends with this response; None if it continues.

    `states` are the new states of the copies that acted.
    """
    moment = after.moment
    if response.error is not None:
        return Outcome.ERRORED
    if response.reply.stop is StopReason.OVERLONG:
        return Outcome.FAILURE
    if response.answer.beyond and moment.limited:
        return Outcome.FAILURE
    # If any copy succeeds, the trajectory succeeds (DPEPO eq. 2).
    if any(state.observation.end == "success" for state in states.values()):
        return Outcome.SUCCESS
    # No copy is left to act in.
    if not moment.open:
        # An environment's own time limit is a horizon, too.
        cut = any(state.observation.end == "truncated" for state in after.states)
        return Outcome.TRUNCATED if cut else Outcome.FAILURE
    # The horizon comes last: a success in the last step still counts.
    return Outcome.TRUNCATED if len(after.lineage) >= max_steps else None


def as_step(
    node: Node,
    response: Response,
    after: Node,
    states: Mapping[int, "State"],
    outcome: Outcome | None,
) -> Step:
    """The record of the step from `node` to `after`, still without id and parent."""
    numbered = node.moment.numbered
    reply = response.reply
    answer = response.answer
    moves = [
        as_move(node, number, answer.actions[number], state)
        for number, state in states.items()
    ]
    # After a fault or an overlong prompt, nothing is malformed or observed.
    silent = response.error is not None or reply.stop is StopReason.OVERLONG
    return Step(
        id=0,
        parent=None,
        prompt=response.message.text,
        system=response.message.system or UNSET,
        tools=response.message.tools or UNSET,
        role="tool" if response.message.role == "tool" else UNSET,
        continues=response.message.continues or UNSET,
        pictures=_names(response.message.pictures),
        response=reply.text,
        token_ids=list(reply.token_ids),
        logprobs=list(reply.logprobs),
        # The server's count, if there are no token ids to count.
        generated_tokens=UNSET if reply.token_ids else reply.generated_tokens or UNSET,
        temperature=reply.temperature,
        logprob_temperature=reply.logprob_temperature,
        redrawn=response.redrawn,
        stop=reply.stop,
        observation=node.moment.text,
        admissible=[] if numbered else list(node.moment.copies[0].admissible),
        tag=answer.tag,
        action=None if numbered else answer.actions.get(1),
        validity=_validity(moves) if answer.actions or silent else Validity.MALFORMED,
        state=node.key,
        next_state=after.key,
        canonical=node.canonical,
        next_canonical=after.canonical,
        next_observation="" if silent else after.moment.text,
        next_pictures=_names([] if silent else shown_in(states)),
        looked=not numbered and any(move.looked for move in moves),
        # The best copy's: if any copy succeeds, the trajectory does (DPEPO eq. 2).
        reward=max((move.reward for move in moves), default=0.0),
        outcome=outcome,
        error=response.error,
        mask=reply.mask,
        moves=moves if numbered else [],
        notes={PARSED: 1.0} if response.parsed else {},
    )


def shown_in(states: Mapping[int, "State"]) -> list[Picture]:
    """The pictures of the copies that acted, in their order."""
    pictures: list[Picture] = []
    for state in states.values():
        pictures += state.observation.pictures
    return pictures


def _names(pictures: Sequence[Picture]) -> Pictures:
    return tuple(picture.name for picture in pictures) or UNSET


def as_move(node: Node, number: int, action: str, state: "State") -> Move:
    """The record of what happened in one copy."""
    context = node.moment.copies[number - 1]
    before = node.states[number - 1].observation
    after = state.observation
    return Move(
        copy=number,
        action=action,
        validity=Validity.VALID if after.accepted else Validity.INADMISSIBLE,
        observation=context.observations[-1],
        admissible=list(context.admissible),
        state=before.state,
        next_state=after.state,
        canonical=before.canonical,
        next_canonical=after.canonical,
        next_observation=after.text,
        looked=after.looked,
        reward=after.reward,
        outcome=None if after.end is None else Outcome(after.end),
    )


def _validity(moves: list[Move]) -> Validity:
    """A step is inadmissible if all of its moves are."""
    if moves and all(move.validity is Validity.INADMISSIBLE for move in moves):
        return Validity.INADMISSIBLE
    return Validity.VALID


def errored_tree(task: Task, method: str, seed: int, why: str) -> Tree:
    """A tree with a single errored leaf, which --resume plays again."""
    _, step = errored_leaf(task, 0, why)
    return Tree(
        task=task,
        instruction="",
        method=method,
        seed=seed,
        steps=[step],
        ledger=Ledger(leaves=1),
    )


def nowhere(task: Task) -> Context:
    """What the agent has seen before an environment is opened: nothing."""
    return Context(task=task, instruction="", observations=("",))


def errored_leaf(task: Task, index: int, why: str) -> tuple[Lineage, Step]:
    """The errored leaf of a trajectory that never began, with its lineage."""
    node = Node((), (), Moment(copies=(nowhere(task),)))
    after = reached(node, index, {}, {})
    response = Response(UNSAID, NO_REPLY, error=why)
    return after.lineage, as_step(node, response, after, {}, Outcome.ERRORED)
