"""Plays an environment of Gymnasium."""

import copy
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from agentcli.environments.gym.options import GymOptions
from agentcli.environments.gym.spaces import ActionNames, refuse_unreadable, text_of
from agentcli.environments.protocol import Observation, Start
from agentcli.environments.seeded import Ending, Play, seed_of
from agentcli.errors import EngineError, UsageError
from agentcli.records.types import Task

Describe = Callable[[Any, dict[str, Any]], str]
"""A function written by the user: (observation, info) -> text."""

COLOURED = re.compile(r"\x1b\[[\d;]*m(.*?)\x1b\[0?m", re.DOTALL)
"""The coloured parts of a rendering."""
TRIED = 8
"""Steps taken to test whether copies are exact."""


class GymEngine:
    """One environment. States are restored by replaying the actions."""

    def __init__(
        self,
        environment: Any,
        name: str,
        options: GymOptions,
        describe: Describe | None,
    ) -> None:
        self._environment = environment
        self._options = options
        self._describe = describe
        self._actions = ActionNames(environment.action_space, options.actions, name)
        if describe is None:
            refuse_unreadable(environment.observation_space, name)

    def start(self, task: Task) -> Start:
        """Resets the environment with the task's seed."""
        seed = seed_of(task)
        value, info = self._environment.reset(seed=seed)
        self._play = Play(self._options, seed)
        text = self._text(value, info)
        first = self._play.begin(text, self._shown(info))
        return Start(instruction=self._options.instruction, observation=first)

    def step(self, action: str) -> Observation:
        """Takes the action of this name; an unknown one changes nothing."""
        value = self._actions.value(action)
        if value is None:
            return self._play.refuse()
        seen, reward, terminated, truncated, info = self._environment.step(value)
        ending: Ending = "truncated" if truncated else None
        if terminated:
            ending = "terminated"
        return self._play.advance(
            action.strip(),
            self._text(seen, info),
            self._shown(info),
            float(reward),
            ending,
        )

    def close(self) -> None:
        """Closes the environment."""
        self._environment.close()

    def _shown(self, info: dict[str, Any]) -> tuple[str, ...]:
        return self._actions.shown(info.get("action_mask"))

    def _text(self, value: Any, info: dict[str, Any]) -> str:
        if self._describe is not None:
            text = self._describe(value, info)
            if isinstance(text, str):
                return text
            kind = type(text).__name__
            raise EngineError(f"environment.options.text gave a {kind}, and not a text")
        text = text_of(self._environment.observation_space, value)
        if self._environment.render_mode != "ansi":
            return text
        return f"{text}\n{plain(self._environment.render())}"


def plain(rendering: str) -> str:
    """A rendering without colours: coloured parts are put in brackets."""
    return COLOURED.sub(r"[\1]", rendering).strip("\n")


class GymCopy(NamedTuple):
    """An environment and its episode, put aside."""

    environment: Any
    play: Play


class CopyingGymEngine(GymEngine):
    """A GymEngine that is Forkable: it copies the environment."""

    _is_tried = False

    def start(self, task: Task) -> Start:
        """Resets the environment; the first time it tries whether copies are exact."""
        start = super().start(task)
        if not self._is_tried:
            self._try_copies()
            self._is_tried = True
        return start

    def snapshot(self) -> GymCopy:
        """A copy of the environment as it is now."""
        return GymCopy(copy.deepcopy(self._environment), copy.copy(self._play))

    def restore(self, snapshot: GymCopy) -> Observation:
        """Continues with a copy of the snapshot."""
        self._environment = copy.deepcopy(snapshot.environment)
        self._play = copy.copy(snapshot.play)
        return self._play.last

    def _try_copies(self) -> None:
        """Raises UsageError if two copies behave differently."""
        try:
            first = self.snapshot()
            ways = [self._way(first), self._way(first)]
        except (TypeError, NotImplementedError, RecursionError) as error:
            raise UsageError(
                f"environment.options.snapshots: it cannot be copied ({error}); leave "
                "the option out, and its actions are replayed"
            ) from error
        if ways[0] != ways[1]:
            raise UsageError(
                "environment.options.snapshots: copies of it share what changes; leave "
                "the option out, and its actions are replayed"
            )
        self.restore(first)

    def _way(self, snapshot: GymCopy) -> list[Observation]:
        """The observations of a few steps from a copy."""
        observation = self.restore(snapshot)
        seen = [observation]
        for number in range(TRIED):
            actions = observation.actions
            if not actions:
                break
            observation = self.step(actions[number % len(actions)])
            seen.append(observation)
        return seen
