"""Acting in several copies of one environment at once: what dpepo needs beside the actor.

The copies are forks of one initial state, so they begin alike and the engine pool's guarantees hold for each. A response acts in
the copies it names, all at the same time; a copy that has ended takes no more actions.
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, replace

import msgspec

from agentcli.environments.protocol import Context
from agentcli.errors import EngineError, PolicyError
from agentcli.exploration.actor import UNASKED, UNREADABLE, Actor, Lineage, State, validity_of
from agentcli.policies.protocol import Reply
from agentcli.prompts.parallel import ParallelContext, ParallelParsed, joined, parse_parallel, render_parallel
from agentcli.records.siblings import joint_action
from agentcli.records.types import Move, Outcome, Step, StopReason, Validity


@dataclass(frozen=True, slots=True)
class Copies:
    """The states of all copies, or the end of a trajectory; `step` is the one that led here."""

    lineage: Lineage
    states: tuple[State, ...]
    """Copy 1, copy 2, ...; empty when the environment could not be opened."""
    context: ParallelContext
    step: Step | None = None

    @property
    def finished(self) -> bool:
        """No step may leave this node."""
        return self.step is not None and self.step.outcome is not None

    @property
    def keys(self) -> str:
        """The joined exact state keys."""
        return joined({number: state.observation.state for number, state in enumerate(self.states, 1)})

    @property
    def canonical(self) -> str | None:
        """The joined canonical states; None in a world that has none."""
        known = [state.observation.canonical for state in self.states]
        texts = {number: text for number, text in enumerate(known, 1) if text is not None}
        return joined(texts) if texts else None


@dataclass(frozen=True, slots=True)
class Answer:
    """A response that was sampled, and what broke if anything did."""

    prompt: str
    reply: Reply
    parsed: ParallelParsed
    error: str | None = None
    redrawn: int = 0
    """Responses thrown away before this one."""


async def open_copies(actor: Actor, count: int, *, limited: bool) -> Copies:
    """`count` copies of the initial state. When the engine cannot open the task, every act on them is an errored leaf."""
    root = await actor.start()
    copies = (root.context,) * count
    context = ParallelContext(
        task=actor.task,
        instruction=root.context.instruction,
        observations=(_seen(copies),),
        admissible=root.context.admissible,
        copies=copies,
        limited=limited,
    )
    return Copies((), (root.state,) * count if root.state is not None else (), context)


async def act(actor: Actor, node: Copies, index: int = 0) -> Copies:
    """Sample the index-th response at `node` and execute its actions. Raises ValueError on a finished node."""
    if node.finished:
        raise ValueError(f"task {actor.task.id}: step after the end of a trajectory")

    def draw(attempt: int) -> Awaitable[Answer]:
        return _sample(actor, node, index, attempt)

    answer, redrawn = await actor.draws.draw(
        (*node.lineage, index), draw, lambda drawn: joint_action(drawn.parsed.actions)
    )
    answer = replace(answer, redrawn=redrawn)
    moved = await _move(actor, node, answer.parsed.actions) if answer.error is None else {}
    broken = {number: str(result) for number, result in moved.items() if isinstance(result, EngineError)}
    after = {number: result for number, result in moved.items() if not isinstance(result, EngineError)}
    error = answer.error or next((f"env_{number}: {text}" for number, text in broken.items()), None)
    return _record(actor, node, index, answer, after, error)


async def _sample(actor: Actor, node: Copies, index: int, attempt: int) -> Answer:
    prompt, nothing = "", ParallelParsed()
    if not node.states:
        return Answer(prompt, Reply(text=""), nothing, actor.broken)
    try:
        prompt = render_parallel(node.context, actor.settings.prompt, actor.world)
        reply = await actor.ask((*node.lineage, index), prompt, node.context, node.states, attempt)
    except (EngineError, PolicyError) as error:
        if actor.fails(error):
            return Answer(prompt, UNASKED, nothing)
        return Answer(prompt, Reply(text=""), nothing, str(error))
    return Answer(prompt, reply, parse_parallel(reply.text, node.context.open, len(node.states)))


async def _move(actor: Actor, node: Copies, actions: dict[int, str]) -> dict[int, State | EngineError]:
    """What every action led to, in the order of the copies; all are executed, whatever one of them does."""

    async def one(number: int) -> State | EngineError:
        try:
            return await actor.step(node.states[number - 1], actions[number])
        except EngineError as error:
            return error

    numbers = sorted(actions)
    return dict(zip(numbers, await asyncio.gather(*map(one, numbers)), strict=True))


def _record(
    actor: Actor, node: Copies, index: int, answer: Answer, after: dict[int, State], error: str | None
) -> Copies:
    """Keep the step; the node it leads to."""
    lineage, reply, actions = (*node.lineage, index), answer.reply, answer.parsed.actions
    moves = [_as_move(node, number, actions[number], state) for number, state in after.items()]
    following = _following(node, actions, after)
    states = tuple(after.get(number, state) for number, state in enumerate(node.states, 1))
    reached = Copies(lineage, states, following)
    silent = error is not None or reply.stop is StopReason.OVERLONG
    step = Step(
        id=0,
        parent=None,
        prompt=answer.prompt,
        response=reply.text,
        token_ids=list(reply.token_ids),
        logprobs=list(reply.logprobs),
        temperature=reply.temperature,
        logprob_temperature=reply.logprob_temperature,
        redrawn=answer.redrawn,
        stop=reply.stop,
        observation=node.context.observations[-1],
        tag="think" if actions else None,
        validity=_validity(moves) if actions or silent else Validity.MALFORMED,
        state=node.keys,
        next_state=reached.keys,
        canonical=node.canonical,
        next_canonical=reached.canonical,
        next_observation="" if silent else following.observations[-1],
        reward=max((move.reward for move in moves), default=0.0),
        outcome=_outcome(actor, reached, moves, answer) if error is None else Outcome.ERRORED,
        error=error,
        mask=reply.mask,
        moves=moves,
    )
    actor.keep(lineage, step)
    return Copies(lineage, states, following, step)


def _as_move(node: Copies, number: int, action: str, state: State) -> Move:
    before, seen = node.context.copies[number - 1], state.observation
    return Move(
        copy=number,
        action=action,
        validity=validity_of(seen),
        observation=before.observations[-1],
        admissible=list(before.admissible),
        state=node.states[number - 1].observation.state,
        next_state=seen.state,
        canonical=node.states[number - 1].observation.canonical,
        next_canonical=seen.canonical,
        next_observation=seen.text,
        looked=seen.looked,
        reward=seen.reward,
        outcome=None if seen.end is None else Outcome(seen.end),
    )


def _following(node: Copies, actions: dict[int, str], after: dict[int, State]) -> ParallelContext:
    """What the agent knows after the step."""
    context = node.context
    copies = list(context.copies)
    for number, state in after.items():
        copies[number - 1] = msgspec.structs.replace(
            copies[number - 1],
            observations=(*copies[number - 1].observations, state.observation.text),
            actions=(*copies[number - 1].actions, actions[number]),
            admissible=state.observation.actions,
        )
    ended = {number for number, state in after.items() if state.observation.end is not None}
    return msgspec.structs.replace(
        context,
        observations=(*context.observations, _seen(copies) if actions else UNREADABLE),
        actions=(*context.actions, joined(actions)),
        copies=tuple(copies),
        ended=context.ended | ended,
        acted=tuple(after),
    )


def _seen(copies: list[Context] | tuple[Context, ...]) -> str:
    """The joined last observations."""
    return joined({number: copy.observations[-1] for number, copy in enumerate(copies, 1)})


def _validity(moves: list[Move]) -> Validity:
    """A step is inadmissible when none of its moves did anything; each move has its own validity."""
    useless = moves and all(move.validity is Validity.INADMISSIBLE for move in moves)
    return Validity.INADMISSIBLE if useless else Validity.VALID


def _outcome(actor: Actor, reached: Copies, moves: list[Move], answer: Answer) -> Outcome | None:
    """Success as soon as any copy succeeds (004 eq. 2). Failure when none is left to act in, when the prompt was too long, and
    where it is so set when a copy above the last was named. Truncated at the horizon."""
    if answer.reply.stop is StopReason.OVERLONG:
        return Outcome.FAILURE
    if answer.parsed.beyond and reached.context.limited:
        return Outcome.FAILURE
    if any(move.outcome is Outcome.SUCCESS for move in moves):
        return Outcome.SUCCESS
    if not reached.context.open:
        return Outcome.FAILURE
    return Outcome.TRUNCATED if len(reached.lineage) >= actor.settings.environment.max_steps else None
