"""Worlds whose tasks are seeds: Gymnasium's, and those of OpenEnv's servers.

A task is one episode, reset with its seed. Nothing is known about the true state, so
the exact state key is a digest of the seed and the actions: two states share a key only
if they were reached in the same way. The canonical state is the text that the agent
sees.
"""

import hashlib
import math
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from agentcli.environments.protocol import Card, Context, Observation
from agentcli.errors import EngineError
from agentcli.records.section import Finite
from agentcli.records.types import LARGEST_REWARD, Task

# More seeds would run into those of the next split.
Number = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
FIRST_SEEDS = {"train": 0, "valid": 1_000_000, "test": 2_000_000}
"""Split -> the seed of its first task. No two splits share a seed."""
Ending = Literal["terminated", "truncated"] | None
"""How Gymnasium ends an episode: terminated by what happened in it, or truncated by a
limit. None: it continues.
"""
UNKNOWN_ACTION = "There is no such action, so nothing happened."


class Seeds(msgspec.Struct, kw_only=True, frozen=True):
    """Tasks of each split."""

    train: Number = 1000
    valid: Number = 100
    test: Number = 200


class SeededOptions(msgspec.Struct, kw_only=True, frozen=True):
    """The part of environment.options that such worlds share."""

    seeds: Seeds = Seeds()
    role: str = "You are an expert agent."
    """The sentence that opens the full prompt."""
    instruction: str = "Earn as much reward as you can."
    """The task sentence."""
    actions: list[str] | None = None
    """Names of the actions, in the order of their numbers. None: the numbers."""
    success: Literal["reward", "return", "terminated"] | None = None
    """When an episode that ended is a success. reward: the last reward is more than
    `threshold`. return: the sum of the rewards is. terminated: the world ended it, and
    not its time limit. None: reward, and a world that rewards more than `threshold`
    before the end is refused, because its last reward would not say what success is.
    """
    threshold: Finite = 0.0
    markov: bool = False
    """The text describes the state completely, so it is also the exact state key."""


def seeded_card(name: str, options: SeededOptions) -> Card:
    """The card of a world about which only its options are known."""
    return Card(
        name=name,
        role=options.role,
        splits=tuple(FIRST_SEEDS),
        evaluation_split="test",
        best_reward=None,
    )


def seeded_tasks(
    name: str, split: str, sizes: Seeds, kinds: Sequence[str] = ("episode",)
) -> list[Task]:
    """One task per seed, and per kind if there are several; its id ends with the seed."""
    first = FIRST_SEEDS[split]
    tasks = []
    for seed in range(first, first + getattr(sizes, split)):
        for kind in kinds:
            label = f"{kind}/" if len(kinds) > 1 else ""
            task = f"{label}{split}/{seed}"
            tasks.append(Task(id=task, world=name, split=split, kind=kind))
    return tasks


def seed_of(task: Task) -> int:
    """The seed of a task. Raises EngineError for a task of another world."""
    seed = task.id.rpartition("/")[2]
    # isdigit() also accepts superscripts, on which int() raises ValueError.
    if not seed.isdecimal():
        raise EngineError(f"task {task.id}: its id does not end with a seed")
    return int(seed)


def moves_of(context: Context) -> list[tuple[str, str]]:
    """Each action with the text that followed, after ("", the first text).

    Without responses that could not be read: the text after those is not the world's.
    """
    past = zip(("", *context.actions), context.own, strict=True)
    return [move for place, move in enumerate(past) if move[0] or not place]


class Play:
    """One episode in progress: its state key and the sum of its rewards so far."""

    def __init__(self, options: SeededOptions, seed: int) -> None:
        self.last = Observation(text="", state=str(seed))
        """The last observation."""
        self._standing = self.last
        """The last observation that an action of the world led to."""
        self._options = options
        self._key = str(seed)
        self._total = 0.0

    def begin(self, text: str, actions: tuple[str, ...]) -> Observation:
        return self._observe(text, actions, 0.0, None)

    def advance(
        self,
        action: str,
        text: str,
        actions: tuple[str, ...],
        reward: float,
        ending: Ending,
    ) -> Observation:
        """The observation after an action.

        Raises EngineError for a reward that is not a number in bounds, and for one that
        leaves open what success is.
        """
        if not (math.isfinite(reward) and abs(reward) <= LARGEST_REWARD):
            raise EngineError(f"the reward is {reward}, which cannot be learned from")
        options = self._options
        is_early = ending is None and reward > options.threshold
        # CartPole rewards every step: its last reward comes when the pole has fallen.
        if is_early and options.success is None:
            raise EngineError(
                f"a reward of {reward:g} came before the end, so the last one does not "
                "say what success is; choose with --set "
                "environment.options.success=return, terminated or reward"
            )
        digest = hashlib.sha256(f"{self._key}\n{action}".encode())
        self._key = digest.hexdigest()
        self._total += reward
        return self._observe(text, actions, reward, ending)

    def refuse(self) -> Observation:
        """The observation after an unknown action: the state is unchanged."""
        # Not of `last`: a second refusal in a row would repeat the sentence.
        self.last = msgspec.structs.replace(
            self._standing,
            text=f"{UNKNOWN_ACTION}\n{self._standing.text}",
            accepted=False,
            reward=0.0,
        )
        return self.last

    def _observe(
        self,
        text: str,
        actions: tuple[str, ...],
        reward: float,
        ending: Ending,
    ) -> Observation:
        self._standing = Observation(
            text=text,
            # No action is possible after the end.
            actions=() if ending else actions,
            # Without `markov`, two ways to one text are two states: a copy must not
            # be taken for another whose hidden state may differ.
            state=text if self._options.markov else self._key,
            canonical=text,
            reward=reward,
            end=self._end(reward, ending),
        )
        self.last = self._standing
        return self.last

    def _end(
        self, reward: float, ending: Ending
    ) -> Literal["success", "failure", "truncated"] | None:
        if ending is None:
            return None
        options = self._options
        if options.success == "terminated":
            is_success = ending == "terminated"
        else:
            measure = self._total if options.success == "return" else reward
            is_success = measure > options.threshold
        if is_success:
            return "success"
        return "failure" if ending == "terminated" else "truncated"
