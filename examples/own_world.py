"""A world of your own: climb a stair to the door of your task, without leaving by the
wrong one.

agentcli env check examples/own_world.py:Stairs
agentcli demos --env examples/own_world.py:Stairs --policy random -o runs/demos
"""

from agentcli.environments.protocol import Card, Observation, Start
from agentcli.errors import UsageError
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task

ACTIONS = ("up", "down", "leave")


class Stairs:
    card = Card(
        name="stairs",
        role="You are in a stairwell.",
        splits=("train", "test"),
        evaluation_split="test",
    )

    def __init__(self, settings: EnvironmentSettings) -> None:
        self.floors = settings.options.get("floors", 3)

    def tasks(self, split: str) -> list[Task]:
        if split not in self.card.splits:
            raise UsageError(
                f"--split {split}: stairs has {', '.join(self.card.splits)}"
            )
        ids = [f"{split}/{number}" for number in range(1, self.floors + 1)]
        return [
            Task(id=name, world="stairs", split=split, kind="climb") for name in ids
        ]

    def engine(self) -> "Climb":
        return Climb(self.floors)


class Climb:
    def __init__(self, floors: int) -> None:
        self.floors = floors

    def start(self, task: Task) -> Start:
        self.door = int(task.id.split("/")[1])
        self.floor = 0
        return Start(
            instruction=f"Leave on floor {self.door}.", observation=self.look()
        )

    def step(self, action: str) -> Observation:
        before = self.floor
        if action == "leave":
            won = self.floor == self.door
            return Observation(
                text="You left.",
                state="outside",
                reward=float(won),
                end="success" if won else "failure",
            )
        self.floor += {"up": 1, "down": -1}.get(action, 0)
        self.floor = min(max(self.floor, 0), self.floors)
        return self.look(accepted=self.floor != before)

    def look(self, accepted: bool = True) -> Observation:
        text = f"You are on floor {self.floor}."
        return Observation(
            text=text, actions=ACTIONS, state=str(self.floor), accepted=accepted
        )
