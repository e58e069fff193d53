"""Trees of a tabular policy in the tunnel, grown by the real exploration methods.

The policy is the table that worlds/tunnel/exact.py differentiates: for every view a
softmax over the actions that are shown there. It answers as any policy does, with a text
in the dialect's form and its log-probability, so that forks by entropy and by <explore>
work as they do with a model. Where copies are numbered it acts in all that are open, in
each by the table.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from agentcli.environments.engines.pool import EnginePool, State
from agentcli.exploration.actor import Actor
from agentcli.exploration.registry import make
from agentcli.policies.protocol import Reply, Request
from agentcli.prompts.protocol import Answer
from agentcli.records.files import derive_seed
from agentcli.records.settings import (
    EnvironmentSettings,
    PromptSettings,
    RolloutSettings,
    Settings,
)
from agentcli.records.types import StopReason, Task, Tree
from agentcli.worlds.tunnel.exact import Exact, Row, policy_at, solve
from agentcli.worlds.tunnel.rules import OPEN, Tunnel, draw_game
from agentcli.worlds.tunnel.world import Moment, TunnelWorld

if TYPE_CHECKING:
    from agentcli.policies.protocol import Policy

Choose = Callable[[Sequence[float]], int]
"""Draws the index of an action by the actions' probabilities."""


def chooser(seed: int) -> Choose:
    """Draws at random, the same for the same seed."""
    draw = random.Random(seed).random

    def choose(chances: Sequence[float]) -> int:
        left = draw()
        for index, chance in enumerate(chances):
            left -= chance
            if left < 0:
                return index
        # Rounding: the chances may add up to a little less than 1.
        return len(chances) - 1

    return choose


class TabularPolicy:
    """Acts by a table of logits; says <explore> where there are doors, else <think>."""

    seconds = 0.0

    def __init__(
        self,
        table: Mapping[str, Row],
        chooser_of: Callable[[int], Choose] = chooser,
    ) -> None:
        """`chooser_of` makes the draws of one request from its seed."""
        self._table = table
        self._chooser_of = chooser_of
        self._chances: dict[str, list[float]] = {}

    async def respond(self, request: Request) -> Reply:
        """One action in every open copy; a response has one token."""
        moment = request.moment
        choose = self._chooser_of(request.seed)
        actions: dict[int, str] = {}
        chance = 1.0
        tag = "think"
        for number in moment.open:
            shown = moment.copies[number - 1].admissible
            view = request.states[number - 1].observation.canonical
            chances = self._chances_at(view, len(shown))
            index = choose(chances)
            actions[number] = shown[index]
            chance *= chances[index]
            if shown[0].startswith(OPEN):
                tag = "explore"
        return Reply(
            text=request.form.write(Answer(tag, "go", actions), moment),
            token_ids=(0,),
            logprobs=(round(float(np.log(chance)), 6),),
            temperature=request.temperature,
            logprob_temperature=request.temperature,
            stop=StopReason.STOP,
        )

    async def close(self) -> None:
        """Holds nothing open."""

    def _chances_at(self, view: str, actions: int) -> list[float]:
        if view not in self._chances:
            self._chances[view] = policy_at(self._table, view, actions).tolist()
        return self._chances[view]


class Here(State, frozen=True, eq=False, kw_only=True):
    """A state of the tunnel with its engine's snapshot."""

    moment: Moment


class DirectEngines:
    """The tunnel's engine in this process, one game at a time.

    It does what a pool of processes does for the actor. A state is put back before every
    step.
    """

    def __init__(self, world: TunnelWorld) -> None:
        self._engine = world.engine()

    async def start(self, task: Task) -> Here:
        """Opens a game."""
        begun = self._engine.start(task)
        return Here(
            task=task,
            instruction=begun.instruction,
            actions=(),
            observation=begun.observation,
            observations=(begun.observation.text,),
            serial=0,
            exact=True,
            moment=self._engine.snapshot(),
        )

    async def step(self, state: Here, action: str) -> Here:
        """The state that an action leads to."""
        self._engine.restore(state.moment)
        observation = self._engine.step(action)
        return Here(
            task=state.task,
            instruction=state.instruction,
            actions=(*state.actions, action),
            observation=observation,
            observations=(*state.observations, observation.text),
            serial=0,
            exact=True,
            moment=self._engine.snapshot(),
        )


class Field:
    """A tunnel with a policy: its games, their exact gradients, and trees."""

    def __init__(
        self, environment: EnvironmentSettings, spread: float, skill: float, seed: int
    ) -> None:
        """Draws the policy's logits by view and `seed` (Tunnels.spread and skill)."""
        self.environment = environment
        self.world = TunnelWorld(environment)
        self.seed = seed
        self.tasks = self.world.tasks("train")
        self.table: dict[str, Row] = {}
        self._spread = spread
        self._skill = skill
        self._solved: dict[Tunnel, Exact] = {}

    def game(self, index: int) -> Tunnel:
        """The game of the group `index`; games repeat when all have been played."""
        return draw_game(self.world.options, "train", index % len(self.tasks))

    def exact(self, game: Tunnel) -> Exact:
        """The policy's exact return in a game, and its gradient."""
        if game not in self._solved:
            horizon = self.environment.max_steps
            # The logits lean along the gradient of equal ones: the table is not drawn
            # yet.
            for view, row in solve(game, {}, horizon).gradient.items():
                self._draw(view, row)
            self._solved[game] = solve(game, self.table, horizon)
        return self._solved[game]

    def _draw(self, view: str, gradient: Row) -> None:
        """Draws the logits of a view, once for all games that it is seen in.

        Where games look alike, skill leans towards the one that is solved first.
        """
        if view in self.table:
            return
        seed = derive_seed("logits", self.seed, view)
        normal = np.random.default_rng(seed).standard_normal(len(gradient))
        # Where only one action is possible the gradient is 0.
        steepest = float(np.abs(gradient).max()) or 1.0
        lean = self._skill * gradient / steepest
        self.table[view] = self._spread * normal + lean

    async def grow(
        self, rollout: RolloutSettings, index: int, policy: "Policy"
    ) -> Tree:
        """The tree of the group `index`."""
        settings = Settings(
            environment=self.environment,
            prompt=PromptSettings(style="compact"),
            rollout=rollout,
        )
        actor = Actor(
            self.tasks[index % len(self.tasks)],
            cast(EnginePool, DirectEngines(self.world)),
            policy,
            self.world,
            settings,
            derive_seed("group", self.seed, index),
        )
        return await make(rollout.method)(actor, rollout)
