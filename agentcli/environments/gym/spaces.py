"""Gymnasium's spaces as text: what is observed, and how actions are written."""

import math
from collections.abc import Sequence
from typing import Any

from gymnasium import spaces

from agentcli.errors import UsageError

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
    elif not isinstance(space, spaces.Discrete | spaces.Text):
        _refuse_array(space, place)


def _refuse_array(space: Any, place: str) -> None:
    kinds = spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary
    if not isinstance(space, kinds):
        name = type(space).__name__
        raise UsageError(f"{place}: its observations are a {name}; {HINT}")
    size = math.prod(space.shape)
    if size > MOST_NUMBERS:
        raise UsageError(f"{place}: its observations are {size} numbers; {HINT}")


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
    return " ".join(f"{number:.4g}" for number in value.flatten().tolist())


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
        if mask is None or len(mask) != len(names):
            return names
        return tuple(name for name, left in zip(names, mask, strict=True) if left)

    def value(self, action: str) -> Any:
        """The action that a name stands for; None for no action."""
        name = action.strip()
        if self._values is not None:
            return self._values.get(name)
        return name if self._space.contains(name) else None
