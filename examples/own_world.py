"""A world of your own: walk from a floor to the door of your task, without leaving by
another one.

agentcli env check examples/own_world.py:Stairs
agentcli demos --env examples/own_world.py:Stairs --policy random -o runs/demos
"""

from itertools import permutations

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
        self.floors = settings.options.get("floors", 8)

    def tasks(self, split: str) -> list[Task]:
        if split not in self.card.splits:
            raise UsageError(
                f"--split {split}: stairs has {', '.join(self.card.splits)}"
            )
        tasks = []
        for number, (start, door) in enumerate(permutations(range(self.floors), 2)):
            # Every sixth task is for evaluation; others are as far from their door.
            if (split == "test") == (number % 6 == 3):
                name = f"{split}/{start}-{door}"
                kind = "up" if door > start else "down"
                tasks.append(Task(id=name, world="stairs", split=split, kind=kind))
        return tasks

    def engine(self) -> "Climb":
        return Climb(self.floors)


class Climb:
    def __init__(self, floors: int) -> None:
        self.floors = floors

    def start(self, task: Task) -> Start:
        start, door = task.id.split("/")[1].split("-")
        self.floor = int(start)
        self.door = int(door)
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
        self.floor = min(max(self.floor, 0), self.floors - 1)
        return self.look(accepted=self.floor != before)

    def look(self, accepted: bool = True) -> Observation:
        text = f"You are on floor {self.floor}."
        return Observation(
            text=text, actions=ACTIONS, state=str(self.floor), accepted=accepted
        )
