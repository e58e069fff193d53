"""A world of two rooms that searches by a rule one can follow by hand."""

from agentcli.environments.protocol import Context, Engine, Habits
from agentcli.errors import UsageError
from agentcli.records.types import Task


class SmallWorld:
    """Its searching expert opens fridge 1 and says in its sentence which seed and habits it was given."""

    name = "small"
    role = "You are a careful household robot."

    def splits(self) -> list[str]:
        """None: tests bring their own tasks."""
        return []

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

    def search(self, context: Context, seed: int, habits: Habits) -> tuple[str, str, str]:
        """A move that shows its arguments."""
        return "explore", f"{seed} {habits.forget} {habits.overlook}", "open fridge 1"
