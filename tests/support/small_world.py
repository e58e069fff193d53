"""A world of two rooms that searches by a rule one can follow by hand."""

import msgspec
from agentcli.environments.protocol import Advice, Card, Context, Engine
from agentcli.errors import UsageError
from agentcli.records.types import Task


class SmallHabits(msgspec.Struct, frozen=True):
    """Two of the habits that `demos` can set."""

    forget: float = 0.0
    overlook: float = 0.0


class SmallWorld:
    """Its searching expert opens fridge 1 and says in its sentence which seed and habits it was given."""

    card = Card(name="small", role="You are a careful household robot.", splits=(), evaluation_split="test")
    habits = SmallHabits

    def tasks(self, split: str) -> list[Task]:
        """There is no split to list."""
        raise UsageError(f"small has no split {split}")

    def engine(self) -> Engine:
        """There is nothing to play."""
        raise UsageError("small has no engine")

    def compact(self, context: Context) -> str:
        """The task and the last observation."""
        return f"{context.instruction} | {context.observations[-1]}"

    def vocabulary(self) -> list[str]:
        """Things of both rooms."""
        return ["bathtub 1", "cabinet 1", "fridge 1", "towel"]

    def next(self, context: Context, seed: int, habits: SmallHabits) -> Advice:
        """A move that shows its arguments."""
        return Advice("explore", f"{seed} {habits.forget} {habits.overlook}", "open fridge 1")
