"""The actor of one tree: asks the policy, steps the environment, keeps the steps and charges the ledger.

An exploration method sees nodes only. A node is an immutable state; acting on the same node twice is a fork. Nothing here
depends on timing: a step is named by its lineage (the child indices from the root), its seed comes from that name, and
the finished tree lists steps in lineage order, so that one seed gives one tree at any concurrency. A method that acts in
another way (copies.py) does so with `ask`, `step` and `keep`, which charge the same ledger.
"""

import time
from collections.abc import Awaitable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec

from agentcli.environments.protocol import Context, Observation, World
from agentcli.errors import EngineError, PolicyError, PromptTooLongError
from agentcli.exploration.distinct import Draws
from agentcli.policies.protocol import Policy, Reply, Request
from agentcli.prompts.parse import Parsed, parse
from agentcli.prompts.render import reasoning_tags, render
from agentcli.records.files import derive_seed
from agentcli.records.settings import Settings
from agentcli.records.siblings import count_siblings, was_sampled
from agentcli.records.types import Ledger, Outcome, Step, StopReason, Task, Tree, Validity

UNREADABLE = "The response held no readable action."
"""What the agent is told after a malformed response; the environment is not stepped."""

UNASKED = Reply(text="", stop=StopReason.OVERLONG, mask="the prompt is too long")
"""Stands for the response to a prompt that was too long, where that fails the task. Its mask keeps it out of training: there is
nothing that the policy said."""

Lineage = tuple[int, ...]


class State(Protocol):
    """What the engine pool hands out: an immutable environment state."""

    @property
    def observation(self) -> Observation: ...
    @property
    def instruction(self) -> str: ...
    @property
    def replayed(self) -> int: ...


class Engines(Protocol):
    """The part of the engine pool that growing a tree needs."""

    async def start(self, task: Task) -> State: ...
    async def step(self, state: Any, action: str) -> State: ...
    async def release(self, task_id: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Node:
    """A state the agent can act in, or the end of a trajectory; `step` is the one that led here."""

    lineage: Lineage
    state: State | None
    context: Context
    step: Step | None = None

    @property
    def finished(self) -> bool:
        """No step may leave this node."""
        return self.step is not None and self.step.outcome is not None

    @property
    def explores(self) -> bool:
        """The step that led here reasoned in <explore> (000 eq. 5)."""
        return self.step is not None and self.step.tag == "explore"


class Actor:
    """Acts for one task.

    `seed` is the rollout's; every request's own seed is derived from it, the task id and the lineage. Errors of the
    engine or the policy become errored leaves with their message; they never leave the actor.
    """

    def __init__(
        self, task: Task, engines: Engines, policy: Policy, world: World, settings: Settings, seed: int
    ) -> None:
        self.task, self.world, self.settings, self.seed = task, world, settings, seed
        self.ledger = Ledger()
        self.seconds = {"policy": 0.0, "environment": 0.0}
        """Waited for each so far; of requests that wait at the same time every one counts."""
        self.broken = "the environment could not be opened"
        """Why, when the engine could not open the task."""
        self.draws = Draws(settings.rollout.distinct)
        self.roots: int | None = None
        """Trajectories from scratch before the first fork (Tree.roots), set by the methods that make that difference."""
        self._engines, self._policy = engines, policy
        self._steps: dict[Lineage, Step] = {}
        self._left_out: dict[Lineage, Step] = {}
        self._instruction = ""

    async def start(self) -> Node:
        """The initial state. When the engine cannot open the task, every act on it is an errored leaf."""
        state: State | None = None
        observations: tuple[str, ...] = ("",)
        admissible: tuple[str, ...] = ()
        try:
            with self._waiting("environment"):
                state = await self._engines.start(self.task)
            self._instruction = state.instruction
            observations, admissible = (state.observation.text,), state.observation.actions
        except EngineError as error:
            self.broken = str(error)
        context = Context(
            task=self.task, instruction=self._instruction, observations=observations, admissible=admissible
        )
        return Node((), state, context)

    async def act(self, node: Node, index: int = 0) -> Node:
        """Sample the index-th response at `node` and execute it. With `rollout.distinct` it is drawn again while its action is that
        of a sibling before it (exploration/distinct.py). Raises ValueError on a finished node."""
        if node.finished:
            raise ValueError(f"task {self.task.id}: step after the end of a trajectory")

        def draw(attempt: int) -> Awaitable[Sampled]:
            return self.sample(node, index, attempt)

        sampled, redrawn = await self.draws.draw((*node.lineage, index), draw, lambda drawn: drawn.parsed.action or "")
        return await self.execute(node, index, replace(sampled, redrawn=redrawn))

    async def sample(self, node: Node, index: int, attempt: int = 0) -> "Sampled":
        """Ask the policy once, without acting: a vote is never drawn again. What breaks is in the answer's `error`."""
        prompt = ""
        if node.state is None:
            return Sampled(prompt, Reply(text=""), parse(""), self.broken)
        try:
            prompt = render(node.context, self.settings.prompt, self.world)
            reply = await self.ask((*node.lineage, index), prompt, node.context, node.state, attempt)
        except (EngineError, PolicyError) as error:
            if self.fails(error):
                return Sampled(prompt, UNASKED, parse(""))
            return Sampled(prompt, Reply(text=""), parse(""), str(error))
        return Sampled(prompt, reply, parse(reply.text, reasoning_tags(self.settings.prompt.style)))

    async def execute(self, node: Node, index: int, sampled: "Sampled") -> Node:
        """Act on a sampled response and keep the step."""
        lineage, action = (*node.lineage, index), sampled.parsed.action
        if sampled.error is not None or node.state is None:
            return self._record(node, lineage, sampled, error=sampled.error)
        if sampled.reply.stop is StopReason.OVERLONG:
            return self._record(node, lineage, sampled)
        if action is None:
            return self._record(node, lineage, sampled, text=UNREADABLE, validity=Validity.MALFORMED)
        try:
            state = await self.step(node.state, action)
        except EngineError as error:
            return self._record(node, lineage, sampled, error=str(error))
        validity = validity_of(state.observation)
        return self._record(node, lineage, sampled, state=state, text=state.observation.text, validity=validity)

    def fails(self, error: Exception) -> bool:
        """Whether what the policy raised ends the trajectory as a failure, and not as an errored leaf (rollout.overlong)."""
        return isinstance(error, PromptTooLongError) and self.settings.rollout.overlong == "failure"

    async def ask(self, lineage: Lineage, prompt: str, context: Context, state: Any, attempt: int = 0) -> Reply:
        """One reply for the step that will be called `lineage`; `attempt` counts those before it that were thrown away. Raises what
        the policy raises."""
        policy = self.settings.policy
        name = "/".join(map(str, lineage))
        again = ("again", attempt) if attempt else ()
        before = self._steps.get(lineage[:-1]) if lineage[-1] == 0 else None
        request = Request(
            prompt=prompt,
            context=context,
            state=state,
            seed=derive_seed(self.seed, self.task.id, name, *again),
            episode_seed=derive_seed(self.seed, self.task.id, lineage[0]),
            temperature=policy.temperature,
            max_tokens=policy.max_tokens,
            parent_prompt=before.prompt if before is not None else "",
        )
        with self._waiting("policy"):
            reply = await self._policy.respond(request)
        self.ledger.generated_tokens += len(reply.token_ids) or reply.generated_tokens
        self.ledger.prompt_tokens += reply.prompt_tokens
        same_prompt = lineage[-1] > 0 or attempt > 0
        self.ledger.shared_prompt_tokens += reply.prompt_tokens if same_prompt else reply.shared_prompt_tokens
        return reply

    async def step(self, state: State, action: str) -> State:
        """What `action` leads to; `state` stays as it is. Raises EngineError."""
        with self._waiting("environment"):
            after = await self._engines.step(state, action)
        self.ledger.replayed_steps += after.replayed
        return after

    def keep(self, lineage: Lineage, step: Step) -> None:
        """Put a step into the tree; `tree` gives it its id and parent."""
        self._steps[lineage] = step

    def leave_out(self, lineages: Iterable[Lineage]) -> None:
        """Take steps that were executed out of the tree; what they cost stays charged."""
        for lineage in lineages:
            self._left_out[lineage] = self._steps.pop(lineage)

    def keep_only(self, trajectory: Iterable[Node]) -> None:
        """Leave out whatever has branched off a trajectory."""
        kept = {node.lineage for node in trajectory}
        roots = {lineage[:1] for lineage in kept if lineage}
        self.leave_out([lineage for lineage in self._steps if lineage[:1] in roots and lineage not in kept])

    def tree(self, method: str) -> Tree:
        """The finished tree: steps in lineage order, ids their positions, ledger filled in."""
        order = sorted(self._steps)
        ids = {lineage: position for position, lineage in enumerate(order)}
        parents = {lineage[:-1] for lineage in order}
        steps = [
            msgspec.structs.replace(self._steps[lineage], id=ids[lineage], parent=ids.get(lineage[:-1]))
            for lineage in order
        ]
        paid = [*steps, *self._left_out.values()]
        self.ledger.steps = sum(len(step.moves) or int(step.error is None and was_sampled(step)) for step in paid)
        self.ledger.leaves = sum(lineage not in parents for lineage in order)
        self.ledger.forks = sum(lineage[-1] > 0 for lineage in (*order, *self._left_out) if len(lineage) > 1)
        self._count_siblings()
        return Tree(
            task=self.task,
            instruction=self._instruction,
            method=method,
            seed=self.seed,
            roots=self.roots,
            steps=steps,
            ledger=self.ledger,
        )

    def _count_siblings(self) -> None:
        """Charge the ledger with the siblings in the tree."""
        groups: dict[Lineage, list[Step]] = {}
        for lineage, step in self._steps.items():
            groups.setdefault(lineage[:-1], []).append(step)
        counts = [count_siblings(group) for group in groups.values()]
        self.ledger.siblings = sum(count.steps for count in counts)
        self.ledger.distinct_siblings = sum(count.distinct for count in counts)

    def cut(self, method: str, why: str, minimum: int) -> Tree:
        """The tree as it is when its time is up. With `minimum` finished leaves, or all it was to have, it is kept without what
        is unfinished (its cost stays charged); with fewer, every unfinished trajectory, at least one, is an errored leaf and
        says `why`."""
        ends = [lineage for lineage, step in self._steps.items() if step.outcome is not None]
        finished = sum(self._steps[lineage].outcome is not Outcome.ERRORED for lineage in ends)
        if finished >= min(minimum, self.settings.rollout.leaves):
            kept = {lineage[:depth] for lineage in ends for depth in range(1, len(lineage) + 1)}
            self.leave_out([lineage for lineage in self._steps if lineage not in kept])
            return self.tree(method)
        inner = {lineage[:-1] for lineage in self._steps}
        tips = [lineage for lineage, step in self._steps.items() if step.outcome is None and lineage not in inner]
        for lineage in tips:
            self._steps[lineage] = msgspec.structs.replace(self._steps[lineage], outcome=Outcome.ERRORED, error=why)
        if not tips:
            nowhere = Context(task=self.task, instruction=self._instruction, observations=("",))
            new = 1 + max((lineage[0] for lineage in self._steps), default=-1)
            self._record(Node((), None, nowhere), (new,), Sampled("", Reply(text=""), parse("")), error=why)
        return self.tree(method)

    @contextmanager
    def _waiting(self, what: str) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[what] += time.perf_counter() - begun

    def _record(
        self,
        node: Node,
        lineage: Lineage,
        sampled: "Sampled",
        *,
        state: State | None = None,
        text: str = "",
        validity: Validity = Validity.VALID,
        error: str | None = None,
    ) -> Node:
        after = state or node.state
        reply, parsed = sampled.reply, sampled.parsed
        step = Step(
            id=0,
            parent=None,
            prompt=sampled.prompt,
            response=reply.text,
            token_ids=list(reply.token_ids),
            logprobs=list(reply.logprobs),
            temperature=reply.temperature,
            logprob_temperature=reply.logprob_temperature,
            redrawn=sampled.redrawn,
            stop=reply.stop,
            observation=node.context.observations[-1],
            admissible=list(node.context.admissible),
            tag=parsed.tag,
            action=parsed.action,
            validity=validity,
            state=node.state.observation.state if node.state else "",
            next_state=after.observation.state if after else "",
            canonical=node.state.observation.canonical if node.state else None,
            next_canonical=after.observation.canonical if after else None,
            next_observation=text,
            looked=state.observation.looked if state else False,
            reward=state.observation.reward if state else 0.0,
            outcome=self._outcome(state, len(lineage), reply) if error is None else Outcome.ERRORED,
            error=error,
            mask=reply.mask,
        )
        self.keep(lineage, step)
        context = Context(
            task=self.task,
            instruction=self._instruction,
            observations=(*node.context.observations, text),
            actions=(*node.context.actions, parsed.action or ""),
            admissible=after.observation.actions if after else (),
        )
        return Node(lineage, after, context, step)

    def _outcome(self, state: State | None, depth: int, reply: Reply) -> Outcome | None:
        if reply.stop is StopReason.OVERLONG:
            return Outcome.FAILURE
        if state is not None and state.observation.end is not None:
            return Outcome(state.observation.end)
        return Outcome.TRUNCATED if depth >= self.settings.environment.max_steps else None


@dataclass(frozen=True, slots=True)
class Sampled:
    """A response that was sampled and not yet acted on."""

    prompt: str
    reply: Reply
    parsed: Parsed
    error: str | None = None
    redrawn: int = 0
    """Responses thrown away before this one."""


def validity_of(after: Observation) -> Validity:
    """The engine's verdict on the action that led to `after`."""
    return Validity.VALID if after.accepted else Validity.INADMISSIBLE
