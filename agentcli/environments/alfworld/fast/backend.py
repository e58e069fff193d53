"""One player in a game's graph of states."""

import weakref
from collections.abc import Callable
from pathlib import Path

from agentcli.environments.alfworld import statekey
from agentcli.environments.alfworld.fast.cache import Cache
from agentcli.environments.alfworld.fast.game import Game, State, open_game, release
from agentcli.environments.protocol import Observation
from agentcli.errors import EngineError

Snapshot = tuple[State, Observation]
"""A state, and the observation that led there."""


class FastBackend:
    """The fast engine behind AlfworldEngine; games are shared with the other players of
    this process.
    """

    def __init__(self, cache: Path | None) -> None:
        self._cache = Cache(cache)
        self._game: Game | None = None
        self._state: State | None = None
        self._observation: Observation | None = None
        """The one that led there."""
        self._release: Callable[[], object] | None = None
        """Ends this player's use of the game; runs by itself where close() was
        forgotten.
        """

    def load(self, path: Path) -> None:
        """Opens a game file. Raises DataError naming the file."""
        game = open_game(path, self._cache)
        self.close()
        self._game = game
        self._release = weakref.finalize(self, release, game)

    def reset(self) -> Observation:
        """Back to the start of the loaded game."""
        assert self._game is not None
        self._state = self._game.root
        self._observation = self._game.opening
        return self._observation

    def step(self, action: str) -> Observation:
        state = self._current()
        self._state, self._observation = state.game.step(state, action)
        return self._observation

    def snapshot(self) -> Snapshot:
        """The current state itself, for states never change, and the observation that
        led there.
        """
        state = self._current()
        assert self._observation is not None
        return state, self._observation

    def restore(self, snapshot: Snapshot) -> Observation:
        """Raises EngineError for a snapshot of another game."""
        state, observation = snapshot
        if state.game is not self._game:
            raise EngineError(
                "this snapshot belongs to another game; restore it in the engine and "
                "task it came from"
            )
        self._state = state
        self._observation = observation
        return state.game.look_again(state, observation)

    def facts(self) -> list[statekey.Fact]:
        state = self._current()
        return state.game.facts(state)

    def close(self) -> None:
        if self._release is not None:
            self._release()
        self._game = self._state = self._release = None

    def _current(self) -> State:
        if self._state is None:
            raise EngineError("no game is open; call start first")
        return self._state
