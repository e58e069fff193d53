"""A world small enough to work a tree out by hand: the state is the list of words said so far.

`win` ends with success, `die` with failure, `noop` changes nothing, `crash` breaks the engine; anything else goes on. `win` is
worth 1 and `coin` a half.
"""

from dataclasses import dataclass
from typing import Any

import msgspec
from agentcli.environments.protocol import Advice, Card, Context, Observation
from agentcli.errors import EngineError
from agentcli.records.types import Task


@dataclass(frozen=True)
class WordState:
    words: tuple[str, ...]
    observation: Observation
    instruction: str = "say win"
    replayed: int = 0


class WordEngines:
    """What the actor needs of an engine pool."""

    seconds = 0.0
    retries = 0

    def __init__(self, broken: str | None = None) -> None:
        self.broken, self.calls = broken, 0

    async def start(self, task: Task) -> WordState:
        if self.broken:
            raise EngineError(self.broken)
        return WordState((), Observation(text="start", state="start", actions=ADMISSIBLE))

    async def step(self, state: WordState, action: str) -> WordState:
        self.calls += 1
        if action == "crash":
            raise EngineError("the engine died")
        if action == "noop":
            observation = Observation(
                text="Nothing happens.", state=state.observation.state, actions=ADMISSIBLE, accepted=False
            )
            return WordState(state.words, observation)
        words = (*state.words, action)
        text = " ".join(words)
        observation = Observation(
            text=text,
            state=text,
            actions=ADMISSIBLE,
            accepted=action in ADMISSIBLE,
            reward={"win": 1.0, "coin": 0.5}.get(action, 0.0),
            end={"win": "success", "die": "failure"}.get(action),
        )
        return WordState(words, observation)

    async def release(self, task_id: str) -> None: ...


ADMISSIBLE = ("a", "b", "win", "die", "noop", "crash")


class WordWorld:
    """The part of a world that prompts need."""

    card = Card(name="word", role="You say words.", splits=(), evaluation_split="test")
    habits = msgspec.Struct

    def compact(self, context: Context) -> str:
        return " ".join(context.observations)

    def vocabulary(self) -> list[str]:
        return sorted(ADMISSIBLE)

    def next(self, context: Context, seed: int, habits: Any) -> Advice:
        return Advice("think", "the word that wins", "win")
