"""Random worlds: seven rooms drawn from a seed, with ways that lead on, back or nowhere, ends, rewards and actions that break.

`room` and `leads` are the world's rules as pure functions, so that every step of a tree can be worked out again. The engines
count, and accept no step after an end.
"""

import random
from dataclasses import dataclass

import msgspec
from agentcli.environments.protocol import Observation
from agentcli.errors import EngineError
from agentcli.records.types import Task

ACTIONS = ("a", "b", "c", "d")


def room(world: int, number: int) -> Observation:
    """What is seen in a room. Nothing ends in room 0, where all begins; room 1 wins and room 2 is a dead end."""
    rng = random.Random(f"{world} room {number}")
    admissible = tuple(sorted(rng.sample(ACTIONS, rng.randint(1, 4))))
    return Observation(
        text=f"You are in room {number}.",
        actions=admissible,
        state=str(number),
        reward=rng.choice((0.0, 0.0, 0.5, 1.0)),
        end={1: "success", 2: "failure"}.get(number),
    )


def leads(world: int, number: int, action: str) -> Observation | None:
    """What an action in a room leads to; None where it breaks the engine."""
    rng = random.Random(f"{world} from {number} by {action}")
    chance = rng.random()
    if chance < 0.05:
        return None
    if chance < 0.25 or action not in ACTIONS:
        here = room(world, number)
        return Observation(text="Nothing happens.", actions=here.actions, state=here.state, accepted=False)
    accepted = action in room(world, number).actions
    return msgspec.structs.replace(room(world, rng.randrange(7)), accepted=accepted)


@dataclass(frozen=True, eq=False)
class RoomState:
    observation: Observation
    instruction: str = "find room 1"
    replayed: int = 0


class RandomEngines:
    """What the actor needs of an engine pool, for one world."""

    seconds = 0.0
    retries = 0

    def __init__(self, world: int) -> None:
        self.world, self.executed = world, 0

    async def start(self, task: Task) -> RoomState:
        return RoomState(room(self.world, 0))

    async def step(self, state: RoomState, action: str) -> RoomState:
        assert state.observation.end is None, "a step after the end"
        seen = leads(self.world, int(state.observation.state), action)
        if seen is None:
            raise EngineError("the floor gave way")
        self.executed += 1
        return RoomState(seen)

    async def release(self, task_id: str) -> None: ...
