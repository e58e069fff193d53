"""One player in a game's graph of states."""

import weakref
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

from agentcli.environments.cache import Cache
from agentcli.environments.protocol import Observation
from agentcli.errors import EngineError
from agentcli.worlds.alfworld import statekey
from agentcli.worlds.alfworld.fast.game import (
    Game,
    GameState,
    open_game,
    release,
)

CACHED = 1
"""Raise it with any change to the cached types or to what computes them."""
Moment = tuple[GameState, Observation]
"""A state, and the observation that led there: what a snapshot holds."""


class FastBackend:
    """The fast engine behind AlfworldEngine.

    Games are shared with the other players of this process.
    """

    def __init__(self, cache: Path | None) -> None:
        self._cache = Cache(cache, _version())
        self._game: Game | None = None
        self._now: Moment | None = None
        self._release: Callable[[], object] | None = None
        """Ends the use of the game; runs by itself if close() was forgotten."""

    def load(self, path: Path) -> None:
        """Opens a game file. Raises DataError naming the file."""
        game = open_game(path, self._cache)
        self.close()
        self._game = game
        self._release = weakref.finalize(self, release, game)

    def reset(self) -> Observation:
        """Back to the start of the loaded game."""
        assert self._game is not None
        self._now = self._game.root, self._game.opening
        return self._game.opening

    def step(self, action: str) -> Observation:
        """TextWorld's answer to any text."""
        state, _ = self.snapshot()
        self._now = state.game.step(state, action)
        return self._now[1]

    def snapshot(self) -> Moment:
        """The current state itself, for states never change."""
        if self._now is None:
            raise EngineError("no game is open; call start first")
        return self._now

    def restore(self, snapshot: Moment) -> Observation:
        """Back to a snapshot. Raises EngineError for one of another game."""
        state, observation = snapshot
        if state.game is not self._game:
            raise EngineError(
                "this snapshot belongs to another game; restore it in the engine and "
                "task it came from"
            )
        self._now = snapshot
        return state.game.look_again(state, observation)

    def facts(self) -> list[statekey.Fact]:
        """All facts of the current state, sorted."""
        state, _ = self.snapshot()
        return sorted(state.game.table.listed(state.facts))

    def close(self) -> None:
        """Ends the use of the game."""
        if self._release is not None:
            self._release()
        self._game = None
        self._now = None
        self._release = None


@lru_cache(maxsize=1)
def _version() -> str:
    textworld = version("textworld")
    planner = version("fast_downward_textworld")
    return f"{CACHED} {textworld} {planner}"
