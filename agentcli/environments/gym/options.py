"""environment.options of a Gymnasium world."""

from typing import Any

import msgspec

from agentcli.environments.seeded import SeededOptions


class GymOptions(SeededOptions, kw_only=True, frozen=True):
    """What is played, and how it is shown."""

    kwargs: dict[str, Any] = msgspec.field(default_factory=dict)
    """Arguments of gymnasium.make, for instance {map_name: 8x8, render_mode: ansi}.
    With the render mode ansi the text holds the rendering too.
    """
    text: str | None = None
    """FILE.py:NAME or package.module:NAME of a function that turns an observation and
    its info into text. None: numbers and texts of the observation space.
    """
    snapshots: bool = False
    """Forks continue a deep copy of the environment. The first start tests whether
    copies are exact. Off: the actions are replayed, which is cheaper if steps are
    quick.
    """
