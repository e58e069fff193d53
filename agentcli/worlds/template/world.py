"""The world new_world: guess a number that is higher or lower than the last guess.

Change it into yours: what a task is, what the agent sees, what an action does.

agentcli env check new_world.py:NewWorld
agentcli rollout --env new_world.py:NewWorld --policy expert --tasks 3 -o runs/new_world
"""

import random
from typing import Annotated

import msgspec

from agentcli.environments.protocol import Card, Observation, Start, options_of
from agentcli.records.files import derive_seed
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task


class NewWorldOptions(msgspec.Struct, kw_only=True, frozen=True):
    """environment.options: `--set environment.options.highest=50`."""

    highest: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 9
    tasks: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 200
    """Tasks of each split."""


class NewWorld:
    """The world: its card, its tasks, and its engines."""

    card = Card(
        name="new_world",
        role="You are an expert at guessing numbers.",
        splits=("train", "test"),
        evaluation_split="test",
    )

    def __init__(self, settings: EnvironmentSettings) -> None:
        self.options = options_of(settings, NewWorldOptions)

    def tasks(self, split: str) -> list[Task]:
        """The tasks of a split; an id alone must be enough to open one."""
        ids = [f"{split}/{index}" for index in range(self.options.tasks)]
        return [
            Task(id=name, world=self.card.name, split=split, kind="guess")
            for name in ids
        ]

    def engine(self) -> "NewWorldEngine":
        """A new engine, which plays one task at a time."""
        return NewWorldEngine(self.options.highest)


class NewWorldEngine:
    """One game. The same task and the same actions always give the same answers."""

    def __init__(self, highest: int) -> None:
        self.numbers = [str(number) for number in range(1, highest + 1)]

    def start(self, task: Task) -> Start:
        """Opens a task. The hidden number depends on its id alone."""
        rng = random.Random(derive_seed("new_world", task.id))
        self.hidden = rng.choice(self.numbers)
        last = self.numbers[-1]
        first = self.observe("No guess yet.")
        return Start(instruction=f"Guess my number (1 to {last}).", observation=first)

    def step(self, action: str) -> Observation:
        """Answers any text; what is not possible is not accepted."""
        if action not in self.numbers:
            return self.observe("That is not one of the numbers.", accepted=False)
        if action == self.hidden:
            return Observation(text="Right!", state="won", reward=1.0, end="success")
        is_low = int(action) < int(self.hidden)
        return self.observe(f"It is {'higher' if is_low else 'lower'} than {action}.")

    def observe(self, text: str, accepted: bool = True) -> Observation:
        """What the agent sees. Two states with equal keys have the same future."""
        return Observation(
            text=text,
            actions=tuple(self.numbers),
            state=self.hidden,
            accepted=accepted,
        )

    # From here on a world may leave out what it cannot do: without a plan there is no
    # expert, without snapshots forks replay the actions.

    def plan(self) -> list[str]:
        """Actions that win from here."""
        return [self.hidden]
