"""Plays an environment of Gymnasium: spaces as text, and actions by their names."""

import copy
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gymnasium import spaces

from agentcli.environments.protocol import Observation, Start
from agentcli.environments.seeded import Ending, Play, SeededOptions, seed_of
from agentcli.errors import EngineError, UsageError
from agentcli.records.types import Task

Describe = Callable[[Any, dict[str, Any]], str]
"""A function written by the user: (observation, info) -> text."""
Solve = Callable[[Any], Sequence[str]]
"""Another: a copy of the environment -> names of actions that win."""

COLOURED = re.compile(r"\x1b\[[\d;]*m(.*?)\x1b\[0?m", re.DOTALL)
"""The coloured parts of a rendering."""
TRIED = 8
"""Steps taken to test whether copies are exact."""


class GymEngine:
    """One environment. States are restored by replaying the actions.

    It is Solvable if there is a function that finds plans.
    """

    plan: Callable[[], list[str]]

    def __init__(
        self,
        environment: Any,
        name: str,
        options: SeededOptions,
        describe: Describe | None,
        solve: Solve | None = None,
    ) -> None:
        if solve is not None:
            # Set only here, since an engine is Solvable by having it. A planner tries
            # actions, so it gets a copy.
            self.plan = lambda: list(solve(copy.deepcopy(self._environment)))
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
        # Where both hold, what happened in the episode counts, and not the limit.
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
    # Toy-text environments mark the agent's place by its colour alone.
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
        # What a Play holds is replaced and never changed, so a shallow copy is enough.
        return GymCopy(copy.deepcopy(self._environment), copy.copy(self._play))

    def restore(self, snapshot: GymCopy) -> Observation:
        """Continues with a copy of the snapshot."""
        # A snapshot can be restored any number of times, so it is never played itself.
        self._environment = copy.deepcopy(snapshot.environment)
        self._play = copy.copy(snapshot.play)
        return self._play.last

    def _try_copies(self) -> None:
        """Raises UsageError if two copies behave differently."""
        try:
            first = self.snapshot()
            # If copies share state, the second way begins where the first one ended.
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
        # The trial has played on in the copies.
        self.restore(first)

    def _way(self, snapshot: GymCopy) -> list[Observation]:
        """The observations of a few steps from a copy."""
        observation = self.restore(snapshot)
        seen = [observation]
        for number in range(TRIED):
            actions = observation.actions
            if not actions:
                break
            # In turn, because one action alone may never change anything.
            observation = self.step(actions[number % len(actions)])
            seen.append(observation)
        return seen


MOST_NUMBERS = 64
"""Numbers of an array that a text can show."""
HINT = "name a function that describes them: environment.options.text=FILE.py:NAME"


def refuse_unreadable(space: Any, place: str) -> None:
    """Raises UsageError for observations that `text_of` cannot write."""
    if isinstance(space, spaces.Dict):
        for name, inner in space.spaces.items():
            refuse_unreadable(inner, f"{place}, part {name}")
    elif isinstance(space, spaces.Tuple):
        for inner in space.spaces:
            refuse_unreadable(inner, place)
    elif isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        size = math.prod(space.shape)
        if size > MOST_NUMBERS:
            raise UsageError(f"{place}: its observations are {size} numbers; {HINT}")
    elif not isinstance(space, spaces.Discrete | spaces.Text):
        name = type(space).__name__
        raise UsageError(f"{place}: its observations are a {name}; {HINT}")


def text_of(space: Any, value: Any) -> str:
    """An observation in words: a text as it is, numbers, parts line by line."""
    if isinstance(space, spaces.Dict):
        lines = []
        for name, inner in space.spaces.items():
            lines.append(f"{name}: {text_of(inner, value[name])}")
        return "\n".join(lines)
    if isinstance(space, spaces.Tuple):
        pairs = zip(space.spaces, value, strict=True)
        return ", ".join(text_of(inner, part) for inner, part in pairs)
    if isinstance(space, spaces.Text):
        return str(value)
    if isinstance(space, spaces.Discrete):
        return str(int(value))
    return " ".join(map(_written, value.flatten().tolist()))


def _written(number: float) -> str:
    """A number with four digits; an integer, or a bool, in full."""
    return f"{number:d}" if isinstance(number, int) else f"{number:.4g}"


class ActionNames:
    """The actions of a space by the names that the agent writes.

    Raises UsageError for a space whose actions have no names, and for names that do not
    fit it.
    """

    def __init__(self, space: Any, names: Sequence[str] | None, place: str) -> None:
        self._space = space
        self._values: dict[str, int] | None = None
        if isinstance(space, spaces.Text) and names is None:
            return
        if not isinstance(space, spaces.Discrete):
            raise UsageError(
                f"{place}: its actions are a {type(space).__name__}; only a Discrete "
                "and a Text are written by a policy: wrap it in a world of your own "
                "(docs/guides/own-world.md)"
            )
        numbers = range(int(space.start), int(space.start) + int(space.n))
        written = list(names) if names else [str(number) for number in numbers]
        if len(set(written)) != len(numbers) or len(written) != len(numbers):
            raise UsageError(
                f"environment.options.actions: {place} has {len(numbers)} actions; "
                f"give as many different names, not {len(written)}"
            )
        self._values = dict(zip(written, numbers, strict=True))

    def shown(self, mask: Any = None) -> tuple[str, ...]:
        """The names of the actions, without those that the environment masks."""
        names = tuple(self._values or ())
        # The list is only a hint, so a mask of another form is ignored.
        if mask is None or len(mask) != len(names):
            return names
        return tuple(name for name, left in zip(names, mask, strict=True) if left)

    def value(self, action: str) -> Any:
        """The action that a name stands for; None for no action."""
        name = action.strip()
        if self._values is not None:
            return self._values.get(name)
        return name if self._space.contains(name) else None
