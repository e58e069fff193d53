"""The actor of one tree: asks the policy, steps the environment and keeps the steps.

An exploration method sees only nodes. Nothing here depends on timing: a step is named
by its lineage (the child indices from the root), its seed is derived from that name,
and the finished tree lists steps in lineage order. So a seed gives the same tree at any
concurrency.
"""

import asyncio
import math
import time
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from agentcli.environments.protocol import Context, World
from agentcli.errors import EngineError, PolicyError, PromptTooLongError, UsageError
from agentcli.exploration.answer_judge import SETTING, judge_end
from agentcli.exploration.distinct import Draws
from agentcli.exploration.nodes import (
    NO_REPLY,
    UNASKED,
    UNSAID,
    Lineage,
    Node,
    Response,
    as_step,
    errored_leaf,
    nowhere,
    outcome_of,
    reached,
    said,
    shown_in,
    spelled,
)
from agentcli.policies.protocol import Policy, Reply, Request, reply_within
from agentcli.prompts.protocol import Answer, Dialect, Exchange, Message, Moment
from agentcli.prompts.recorded import conversation_text
from agentcli.prompts.registry import make_dialect
from agentcli.records.files import derive_seed
from agentcli.records.pictures import pictures_of
from agentcli.records.settings import PolicySettings, Settings
from agentcli.records.siblings import by_place, was_sampled
from agentcli.records.types import Ledger, Outcome, Step, Task, Tree

if TYPE_CHECKING:
    from agentcli.environments.engines.pool import EnginePool, State

PARSER = """\
An agent was asked:

{prompt}

It answered:

{response}

The answer is not in the form that it was asked for. Write it again in that form, with \
the same thought and the same decision, and nothing else. If it decided nothing, write: \
none"""
"""What the parser is asked."""


class Steps:
    """The steps of one tree, and the executed steps that were left out of it."""

    def __init__(self) -> None:
        self._kept: dict[Lineage, Step] = {}
        self._left_out: dict[Lineage, Step] = {}

    def has(self, lineage: Lineage) -> bool:
        """Whether there is already a step of this name in the tree."""
        return lineage in self._kept

    def keep(self, lineage: Lineage, step: Step) -> None:
        """Adds a step to the tree."""
        self._kept[lineage] = step

    def leave_out(self, lineage: Lineage) -> None:
        """Removes a step from the tree; its cost stays charged."""
        self._left_out[lineage] = self._kept.pop(lineage)

    def keep_only(self, trajectory: Iterable[Node]) -> None:
        """Leaves out whatever branched off a trajectory."""
        path = {node.lineage for node in trajectory}
        roots = {lineage[:1] for lineage in path}
        for lineage in self._kept.keys() - path:
            # Other trajectories from the initial state are not its branches.
            if lineage[:1] in roots:
                self.leave_out(lineage)

    def drop_unfinished(self, minimum: int, broken: Container[Lineage]) -> bool:
        """Leaves out every unfinished trajectory.

        Does nothing and returns False unless at least `minimum` ended without an error;
        what leads through a step named in `broken` will be made one.
        """
        finished = 0
        whole: set[Lineage] = set()
        for lineage, step in self._kept.items():
            if step.outcome is None:
                continue
            path = [lineage[:depth] for depth in range(len(lineage) + 1)]
            is_broken = any(place in broken for place in path)
            if step.outcome is not Outcome.ERRORED and not is_broken:
                finished += 1
            whole.update(path)
        if finished < minimum:
            return False
        for lineage in self._kept.keys() - whole:
            self.leave_out(lineage)
        return True

    def fail_below(self, lineage: Lineage, why: str) -> None:
        """Makes the leaves at or below a step errored.

        If there are none, since the step was left out, makes those errored that begin
        with the same first step.
        """
        leaves = self.leaves()
        depth = len(lineage)
        below = [leaf for leaf in leaves if leaf[:depth] == lineage]
        for leaf in below or [leaf for leaf in leaves if leaf[:1] == lineage[:1]]:
            step = self._kept[leaf]
            # Only the first fault of a leaf is reported.
            if step.outcome is not Outcome.ERRORED:
                step.outcome = Outcome.ERRORED
                step.error = why

    def note(self, lineage: Lineage, values: Mapping[str, float | str]) -> None:
        """Adds to the notes of a step, even if it was left out."""
        step = self._kept.get(lineage) or self._left_out[lineage]
        notes = {**step.notes, **values}
        # Which of two values was noted first may depend on timing.
        step.notes = dict(sorted(notes.items()))

    def next_root(self) -> int:
        """The index for a new trajectory from the initial state."""
        taken = [lineage[0] for lineage in self._kept]
        return max(taken, default=-1) + 1

    def in_order(self) -> list[Step]:
        """The steps in lineage order, after setting their ids and parents."""
        ids: dict[Lineage, int] = {}
        steps = []
        # A tuple sorts before those that it begins, so parents come first.
        for position, lineage in enumerate(sorted(self._kept)):
            step = self._kept[lineage]
            step.id = position
            step.parent = ids.get(lineage[:-1])
            ids[lineage] = position
            steps.append(step)
        return steps

    def charge(self, ledger: Ledger) -> None:
        """Fills in the counts of steps, forks, leaves and siblings, once in order."""
        ledger.steps = 0
        ledger.forks = 0
        for steps in (self._kept, self._left_out):
            for lineage, step in steps.items():
                ledger.steps += _executed(step)
                # A second trajectory from the initial state is not a fork.
                if len(lineage) > 1 and lineage[-1] > 0:
                    ledger.forks += 1
        # What was left out is no part of the tree, and so nobody's sibling.
        at_start, of_forks = by_place(self._kept.values())
        siblings = at_start.plus(of_forks)
        ledger.leaves = len(self.leaves())
        ledger.siblings = siblings.steps
        ledger.distinct_siblings = siblings.distinct

    def leaves(self) -> list[Lineage]:
        """The ends of all trajectories so far, finished or not."""
        inner = {lineage[:-1] for lineage in self._kept}
        return [lineage for lineage in self._kept if lineage not in inner]

    def unfinished(self) -> list[Lineage]:
        """The ends of the trajectories that are not finished."""
        return [leaf for leaf in self.leaves() if self._kept[leaf].outcome is None]


def _executed(step: Step) -> int:
    """The number of environment steps for a response, at least one.

    It is 0 if the policy, or the engine of a single environment, failed.
    """
    if step.moves:
        return len(step.moves)
    return int(step.error is None and was_sampled(step))


class Actor:
    """Grows the tree of one task.

    `seed` is the rollout's. The seed of every request is derived from it, the task id
    and the lineage. Errors of the engine or the policy become errored leaves with the
    error's message and are never raised. `models` are the method's further models, by
    the name of their setting (RolloutSettings.further_models).
    """

    def __init__(
        self,
        task: Task,
        engines: "EnginePool",
        policy: Policy,
        world: World,
        settings: Settings,
        seed: int,
        models: Mapping[str, Policy] | None = None,
    ) -> None:
        self.task = task
        self.settings = settings
        self.seed = seed
        self.ledger = Ledger()
        self.seconds = {"policy": 0.0, "environment": 0.0}
        """Seconds waited for each so far; concurrent requests are added up."""
        self.roots: int | None = None
        """Trajectories from scratch before the first fork (Tree.roots).

        Set by the methods that make this distinction.
        """
        self._engines = engines
        self._policy = policy
        self._models = models or {}
        self.world = world
        self.dialect: Dialect
        """How the policy is asked and its response read; set by `start`."""
        self._draws = Draws(settings.rollout.distinct)
        self._steps = Steps()
        self._pictures: dict[str, bytes] = {}
        """All pictures that were shown to the policy or observed, by name."""
        self._unanswered: dict[tuple[Lineage, str, int], str] = {}
        """Faults of further models, and of time, which make leaves errored in `tree`.
        Keyed by the node's lineage, the model's name and the number of the question.
        """
        self._instruction = ""
        self._broken = ""
        """Why the engine could not open the task."""

    async def start(self, copies: int | None = None, limited: bool = False) -> Node:
        """The initial state of one environment, or of `copies` numbered ones.

        With `limited`, a response that names a copy above the last one fails the task.
        If the engine cannot open the task, every act on the node is an errored leaf.
        Raises UsageError for a prompt style that does not exist (for several copies).
        """
        numbered = copies is not None
        count = copies or 1
        self.dialect = make_dialect(self.settings.prompt, self.world, numbered)
        states: tuple[State, ...] = ()
        context = nowhere(self.task)
        try:
            with self._waiting("environment"):
                state = await self._engines.start(self.task)
        except EngineError as error:
            self._broken = str(error)
        else:
            # One start serves all copies: acting on a state leaves it as it is.
            states = (state,) * count
            self._instruction = state.instruction
            context = Context(
                task=self.task,
                instruction=state.instruction,
                observations=(state.observation.text,),
                admissible=state.observation.actions,
                pictures=state.observation.pictures,
            )
        moment = Moment(copies=(context,) * count, numbered=numbered, limited=limited)
        return Node((), states, moment)

    async def act(self, node: Node, index: int = 0, greedy: bool = False) -> Node:
        """Samples the index-th response at `node` and executes it.

        If `greedy`, at temperature 0. With `rollout.distinct` it is drawn again while it
        repeats the action of an earlier sibling (exploration/distinct.py). Raises
        ValueError on a finished node.
        """
        if node.finished:
            raise ValueError(f"task {self.task.id}: step after the end of a trajectory")

        lineage = (*node.lineage, index)
        draw = partial(self.sample, node, index, greedy=greedy)
        response, redrawn = await self._draws.draw(lineage, draw)
        return await self.execute(node, index, replace(response, redrawn=redrawn))

    async def sample(
        self, node: Node, index: int, attempt: int = 0, greedy: bool = False
    ) -> Response:
        """Asks the policy once, without acting and without drawing again.

        `attempt` is the number of responses that were thrown away before this one. A
        fault is reported in the response's `error`.
        """
        if not node.states:
            return Response(UNSAID, NO_REPLY, error=self._broken)
        request = self._request(node, index, attempt)
        if greedy:
            request = msgspec.structs.replace(request, temperature=0.0)
        overlong_fails = self.settings.rollout.overlong == "failure"
        try:
            # An EngineError too: an expert asks the engine for a plan.
            reply = await self._reply(self._policy, request)
        except (EngineError, PolicyError) as error:
            if isinstance(error, PromptTooLongError) and overlong_fails:
                return Response(request.message, UNASKED)
            return Response(request.message, NO_REPLY, error=str(error))
        # Siblings and further draws share a prompt that is already charged.
        self._charge(reply, same_prompt=index > 0 or attempt > 0)
        answer = self.dialect.read(reply.text, node.moment)
        if not answer.problem or self.settings.rollout.parser is None:
            return Response(request.message, reply, answer)
        # One number for each response that can be drawn here: it makes the seed.
        number = index * (self.settings.rollout.distinct + 1) + attempt
        asked = conversation_text(request.message, request.continued)
        parsed = await self._parsed(node, number, asked, reply.text)
        if isinstance(parsed, str):
            return Response(request.message, reply, answer, error=parsed)
        return Response(
            request.message, reply, parsed or answer, parsed=parsed is not None
        )

    async def execute(self, node: Node, index: int, response: Response) -> Node:
        """Executes a sampled response and keeps the step.

        All copies that the response names act at the same time. Raises UsageError for a
        second response with the same index.
        """
        actions = response.answer.actions
        copies = sorted(actions) if response.error is None else []
        moves = [self._move(node.states[n - 1], actions[n]) for n in copies]
        results = await asyncio.gather(*moves)
        states: dict[int, State] = {}
        for number, result in zip(copies, results, strict=True):
            if not isinstance(result, EngineError):
                states[number] = result
            elif response.error is None:
                # The first by copy: which one failed first may depend on timing.
                copy = f"env_{number}: " if node.moment.numbered else ""
                response = replace(response, error=f"{copy}{result}")
        after = reached(node, index, actions, states)
        after = replace(after, turns=said(node, response))
        outcome = outcome_of(
            response, after, states, self.settings.environment.max_steps
        )
        step = as_step(node, response, after, states, outcome)
        for picture in (*response.message.pictures, *shown_in(states)):
            self._pictures[picture.name] = picture.png
        if self._steps.has(after.lineage):
            raise UsageError(
                f"rollout.method {self.settings.rollout.method}: task {self.task.id}: "
                f"acts twice at one node with the index {index}; count the index up"
            )
        # Before the judge, whose note is looked up among the steps that were kept.
        self._steps.keep(after.lineage, step)
        end = replace(after, step=step)
        if self.settings.rollout.answer_judge is not None:
            await self._judge(end, step)
        return end

    async def ask(
        self,
        name: str,
        node: Node,
        message: Message,
        index: int = 0,
        of_response: bool = False,
    ) -> Reply | str:
        """The reply of the method's further model `name` to a message about `node`.

        The seed is derived from the node's lineage, the name and `index`, the number of
        the question at the node. Tokens are charged. If the model fails, the fault is
        returned instead of a reply, and `tree` makes the leaves at or below the node
        errored (those of its trajectories from the initial state if there are none
        there). With `of_response`, the question
        is about one response that was not executed yet, and the caller puts the fault
        in its `error`: its siblings stay. A policy without a model answers with an
        action, so it cannot be asked at the end of a trajectory. Raises UsageError for
        a model that is not set.
        """
        chosen = self.settings.rollout.further_models.get(name)
        if chosen is None:
            raise UsageError(
                f"rollout.{name}: rollout.method {self.settings.rollout.method} asks "
                "this model, and it is not set; name one with --set "
                f"rollout.{name}.kind=KIND"
            )
        # The environment could not be opened, so the first act is an errored leaf.
        if not node.states:
            return self._broken
        place = spelled(node.lineage)
        seed = derive_seed(self.seed, self.task.id, place, "ask", name, index)
        request = self._request_to(chosen, node, message, seed, episode_seed=seed)
        try:
            reply = await self._reply(self._models[name], request)
        except (EngineError, PolicyError) as error:
            fault = f"rollout.{name}: {error}"
            if not of_response:
                self._unanswered[node.lineage, name, index] = fault
            return fault
        self._charge(reply, same_prompt=False)
        return reply

    def fail(self, node: Node, why: str) -> None:
        """Lets `tree` make the leaves at or below `node` errored."""
        self._unanswered[node.lineage, "", 0] = why

    def note(self, node: Node, **values: float | str) -> None:
        """Records numbers or words about the step that led to `node` (Step.notes).

        Credit methods read them. Raises ValueError for the initial state, because no
        step led to it, and for a number that is not finite.
        """
        if node.step is None:
            raise ValueError(f"task {self.task.id}: a note on the initial state")
        notes: dict[str, float | str] = {}
        for name, value in values.items():
            if isinstance(value, str):
                notes[name] = value
            elif math.isfinite(value):
                notes[name] = float(value)
            else:
                raise ValueError(f"task {self.task.id}: the note {name} is {value}")
        self._steps.note(node.lineage, notes)

    def keep_only(self, trajectory: Iterable[Node]) -> None:
        """Drops whatever branched off a trajectory; its cost stays charged."""
        self._steps.keep_only(trajectory)

    def tree(self, method: str) -> Tree:
        """The finished tree, with its steps in lineage order and numbered by position.

        Fills in the ledger.
        """
        steps = self._steps.in_order()
        # Charge first, then mark as errored: executed steps stay charged.
        self._steps.charge(self.ledger)
        # Sorted: which question failed first may depend on timing.
        for (lineage, _, _), why in sorted(self._unanswered.items()):
            self._steps.fail_below(lineage, why)
        return Tree(
            task=self.task,
            instruction=self._instruction,
            method=method,
            seed=self.seed,
            roots=self.roots,
            steps=steps,
            ledger=self.ledger,
        )

    def pictures(self, tree: Tree) -> dict[str, bytes]:
        """The pictures that the finished tree names."""
        return {name: self._pictures[name] for name in pictures_of(tree)}

    def cut(self) -> Tree:
        """Ends the tree at its deadline.

        With at least `rollout.minimum_leaves` finished leaves (or `rollout.leaves`, if
        fewer), drops the unfinished trajectories; their cost stays charged. Otherwise
        every unfinished trajectory, at least one, ends in an errored leaf; where all
        leaves are needed, so do those that have no step yet.
        """
        rollout = self.settings.rollout
        why = (
            f"the tree was not finished within {rollout.deadline_seconds:g} s "
            "(rollout.deadline_seconds)"
        )
        needed = min(rollout.minimum_leaves, rollout.leaves)
        broken = {lineage for lineage, _, _ in self._unanswered}
        if not self._steps.drop_unfinished(needed, broken):
            unfinished = self._steps.unfinished()
            # `tree` charges them first: they were executed.
            for lineage in unfinished:
                self._unanswered[lineage, "", 0] = why
            missing = int(not unfinished)
            if needed == rollout.leaves:
                missing = needed - len(self._steps.leaves())
            for _ in range(missing):
                root = self._steps.next_root()
                self._steps.keep(*errored_leaf(self.task, root, why))
        return self.tree(rollout.method)

    async def _parsed(
        self, node: Node, number: int, prompt: str, response: str
    ) -> Answer | str | None:
        """The content of an unreadable response, as the parser rewrites it.

        A parser is a model that is asked about every response that the dialect cannot
        read; its reply is read by the same rules. In Rare-tool section 3.1 a small
        model extracts the letter of every answer. None if the reply has no content; the
        fault if the parser failed.
        """
        message = Message((PARSER.format(prompt=prompt, response=response),))
        reply = await self.ask("parser", node, message, number, of_response=True)
        if isinstance(reply, str):
            return reply
        answer = self.dialect.read(reply.text, node.moment)
        return None if answer.problem else answer

    async def _judge(self, end: Node, step: Step) -> None:
        """Puts the answer judge's verdict in the place of an answer's outcome."""
        ask = partial(self.ask, SETTING, end)
        judged = await judge_end(self.world, self.task, step, ask)
        if isinstance(judged, str):
            self.fail(end, judged)
        elif judged is not None:
            self.note(end, judgement=judged.judgement)

    def _request(self, node: Node, index: int, attempt: int) -> Request:
        """The request for the index-th response at `node`.

        Raises UsageError if the dialect leaves out a picture, or puts one before a text.
        """
        message = self.dialect.ask(node.moment)
        if not set(node.moment.pictures) <= set(message.pictures):
            raise UsageError(
                f"prompt.style: {self.settings.prompt.style} shows no pictures, and "
                f"the world {self.world.card.name} has some; choose a style that "
                "shows them"
            )
        if message.pictures and message.parts != (message.text, *message.pictures):
            raise UsageError(
                f"prompt.style: {self.settings.prompt.style} puts pictures before or "
                "between texts, which steps do not record; return Message((TEXT, "
                "*PICTURES))"
            )
        lineage = (*node.lineage, index)
        # The first draw has the same seed whether or not repetitions are drawn again.
        again = ("again", attempt) if attempt else ()
        seed = derive_seed(self.seed, self.task.id, spelled(lineage), *again)
        return self._request_to(
            self.settings.policy,
            node,
            message,
            seed,
            # The root's index, which all steps of a trajectory share: a scripted policy
            # keeps its habits from it.
            episode_seed=derive_seed(self.seed, self.task.id, lineage[0]),
            turns=node.turns,
        )

    def _request_to(
        self,
        policy: PolicySettings,
        node: Node,
        message: Message,
        seed: int,
        episode_seed: int,
        turns: tuple[Exchange, ...] = (),
    ) -> Request:
        return Request(
            message=message,
            turns=turns,
            moment=node.moment,
            states=node.states,
            form=self.dialect,
            seed=seed,
            episode_seed=episode_seed,
            temperature=policy.temperature,
            max_tokens=policy.max_tokens,
        )

    async def _reply(self, policy: Policy, request: Request) -> Reply:
        most_bytes = self.settings.environment.most_text_bytes
        with self._waiting("policy"):
            return await reply_within(most_bytes, policy, request)

    def _charge(self, reply: Reply, same_prompt: bool) -> None:
        shared = reply.prompt_tokens if same_prompt else reply.shared_prompt_tokens
        self.ledger.generated_tokens += len(reply.token_ids) or reply.generated_tokens
        self.ledger.prompt_tokens += reply.prompt_tokens
        self.ledger.shared_prompt_tokens += shared

    async def _move(self, state: "State", action: str) -> "State | EngineError":
        """The state after an action, or its error, so that other copies go on."""
        try:
            with self._waiting("environment"):
                after = await self._engines.step(state, action)
        except EngineError as error:
            return error
        self.ledger.replayed_steps += after.replayed
        return after

    @contextmanager
    def _waiting(self, resource: str) -> Iterator[None]:
        """Adds the block's duration to the seconds waited for `resource`."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[resource] += time.perf_counter() - begun
