"""Gymnasium environments that misbehave or observe odd things; importing this registers them."""

import copy
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces


class Steps(gymnasium.Env[Any, Any]):
    """Counts its steps; the third ends it. `shared` counts in one place for all copies, `reward` is what each step gives."""

    total: ClassVar[list[int]] = [0]

    def __init__(
        self,
        shared: bool = False,
        reward: float = 0.0,
        observation: spaces.Space[Any] | None = None,
        copies: bool = True,
    ) -> None:
        self.shared, self.reward, self.copies = shared, reward, copies
        self.action_space = spaces.Discrete(2)
        self.observation_space = observation or spaces.Discrete(100)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return self.seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        self.total[0] += 1
        return self.seen(), self.reward, self.count == 3, False, {}

    def seen(self) -> Any:
        if isinstance(self.observation_space, spaces.Discrete):
            return self.total[0] % 100 if self.shared else self.count
        return self.observation_space.sample()

    def __deepcopy__(self, memo: dict[int, Any]) -> "Steps":
        if not self.copies:
            raise TypeError("it holds a window")
        made = object.__new__(Steps)
        made.__dict__.update(copy.copy(self.__dict__))
        return made


class Echo(gymnasium.Env[str, str]):
    """Any word is an action; the word of the seed wins."""

    action_space = spaces.Text(max_length=8)
    observation_space = spaces.Text(max_length=100)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.word = f"word{seed}"
        return f"Say {self.word}.", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return f"You said {action}.", float(action == self.word), True, False, {}


class Pixels(Steps):
    """Observes an image."""

    def __init__(self) -> None:
        super().__init__(observation=spaces.Box(0, 255, (8, 8, 3), np.uint8))


class Throttle(Steps):
    """Acts by a number between 0 and 1."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Box(0, 1, (1,), np.float32)


for kind in (Steps, Echo, Pixels, Throttle):
    gymnasium.register(f"{kind.__name__}-v0", entry_point=kind)


def words(value: Any, info: dict[str, Any]) -> str:
    """A text of one's own."""
    return f"You stand on tile {value}."


def no_words(value: Any, info: dict[str, Any]) -> Any:
    """Not a text."""
    return value


def way_over_the_lake(environment: Any) -> list[str]:
    """What is left of one way over the lake of 4 x 4, from where its traveller stands. The copy is spoilt on purpose."""
    ways = {0: "down", 4: "down", 8: "right", 9: "down", 13: "right", 14: "right"}
    names = ["left", "down", "right", "up"]
    place, plan = int(environment.unwrapped.s), []
    while place in ways:
        plan.append(ways[place])
        place = int(environment.step(names.index(ways[place]))[0])
    return plan
