"""Toy worlds that are made wrongly: engines whose copies are not what they were, and classes that lack something."""

from collections import Counter
from typing import Any, ClassVar

from agentcli.environments.protocol import Observation, Start
from agentcli.records.types import Task
from msgspec.structs import replace
from toy_world import ToyEngine, ToyWorld


class ForgetfulWorld(ToyWorld):
    """Use it as `EnvironmentSettings(name="forgetful_world:ForgetfulWorld", ...)`."""

    def engine(self) -> "ForgetfulEngine":
        return ForgetfulEngine(self)


class ForgetfulEngine(ToyEngine):
    """Its restored state looks right and goes on from another place."""

    def restore(self, snapshot: Any) -> Observation:
        before = self.snapshot()
        observation = super().restore(snapshot)
        super().restore(before)
        return observation


class DizzyWorld(ToyWorld):
    """Its engine counts how often somebody looked, and a copy does not: the expert, who never looks, cannot tell."""

    def engine(self) -> "DizzyEngine":
        return DizzyEngine(self)


class DizzyEngine(ToyEngine):
    """What it says to `look` depends on the looks before."""

    def start(self, task: Task) -> Start:
        self.looks = 0
        return super().start(task)

    def step(self, action: str) -> Observation:
        observation = super().step(action)
        if action != "look":
            return observation
        self.looks += 1
        return replace(observation, text=f"{observation.text} Look {self.looks}.")


class FallingWorld(ToyWorld):
    """Its engine cannot go back."""

    def engine(self) -> "FallingEngine":
        return FallingEngine(self)


class FallingEngine(ToyEngine):
    """Raises on its way back."""

    def restore(self, snapshot: Any) -> Observation:
        raise KeyError("room")


class HastyWorld(ToyWorld):
    """Its episodes end after one step from the second time on that a task is opened."""

    patience = 1

    def engine(self) -> "HastyEngine":
        return HastyEngine(self, self.patience)


class TiringWorld(HastyWorld):
    """From the third time on: it replays once."""

    patience = 2


class HastyEngine(ToyEngine):
    """Counts how often a task was opened in this process."""

    opened: ClassVar[Counter[str]] = Counter()

    def __init__(self, world: ToyWorld, patience: int) -> None:
        super().__init__(world)
        self.patience = patience

    def start(self, task: Task) -> Start:
        self.opened[task.id] += 1
        self.hasty = self.opened[task.id] > self.patience
        return super().start(task)

    def step(self, action: str) -> Observation:
        observation = super().step(action)
        return replace(observation, end="failure") if self.hasty else observation


class ForgivingWorld(ToyWorld):
    """Its copies say of every action that it was accepted."""

    def engine(self) -> "ForgivingEngine":
        return ForgivingEngine(self)


class ForgivingEngine(ToyEngine):
    """The copy of a state after a refused action differs from it."""

    def restore(self, snapshot: Any) -> Observation:
        return replace(super().restore(snapshot), accepted=True)


class SilentWorld(ToyWorld):
    """It does not answer an action that is not possible."""

    def engine(self) -> "SilentEngine":
        return SilentEngine(self)


class SilentEngine(ToyEngine):
    """Returns nothing where the toy refuses."""

    def step(self, action: str) -> Observation:
        observation = super().step(action)
        return observation if observation.accepted else None  # type: ignore[return-value]


class LostWorld(ToyWorld):
    """It goes back, and does not say to where."""

    def engine(self) -> "LostEngine":
        return LostEngine(self)


class LostEngine(ToyEngine):
    """Returns nothing from `restore`."""

    def restore(self, snapshot: Any) -> Observation:
        super().restore(snapshot)
        return None  # type: ignore[return-value]


class StrictWorld(ToyWorld):
    """What is not possible ends the episode, which is no fault of a world."""

    def engine(self) -> "StrictEngine":
        return StrictEngine(self)


class StrictEngine(ToyEngine):
    """Ends where the toy refuses."""

    def step(self, action: str) -> Observation:
        observation = super().step(action)
        return observation if observation.accepted else replace(observation, end="failure")


class UnevaluatedWorld(ToyWorld):
    """Its card has a slip in the split of evaluations."""

    card = replace(ToyWorld.card, evaluation_split="tset")


class EmptyWorld(ToyWorld):
    """It names a split and has no tasks for it."""

    def tasks(self, split: str) -> list[Task]:
        return {"train": []}[split]


class EnginelessWorld:
    """No world: it has no engine."""

    card = ToyWorld.card
    tasks = ToyWorld.tasks
