"""The simulator's own solutions, computed once and kept on disk."""

import os

import msgspec

from agentcli.environments.cache import Cache, cache_folder
from agentcli.errors import EngineError
from agentcli.worlds.scienceworld.simulator import (
    FULL_SCORE,
    ScienceGame,
    Simulator,
)

FORMAT = 1
"""Raise it with any change to how a path is computed."""
FREE = ("look around", "inventory", "task")
"""Actions that take no time, wherever they stand in a path."""


class GoldPath(msgspec.Struct, frozen=True):
    """The actions that solve one task from its beginning."""

    actions: tuple[str, ...]


class GoldPaths:
    """The solutions of all tasks. Computing one takes up to seconds."""

    def __init__(self) -> None:
        from scienceworld.version import __version__

        folder = cache_folder(os.environ, "scienceworld")
        self._cache = Cache(folder, f"{FORMAT} {__version__}")

    def path(
        self, simulator: Simulator, kind: str, variation: int, simplifications: str
    ) -> tuple[str, ...]:
        """The actions that solve a task.

        Raises EngineError for a task that the simulator cannot solve, and WriteError
        where the path cannot be kept.
        """

        def compute() -> GoldPath:
            game = simulator.game()
            solution = game.solve(kind, variation, simplifications)
            game.open(kind, variation, simplifications)
            path = GoldPath(_until_won(game, solution))
            game.close()
            return path

        parts = (kind, str(variation), simplifications)
        return self._cache.get(GoldPath, parts, compute).actions


def _until_won(game: ScienceGame, solution: list[str]) -> tuple[str, ...]:
    """The solution without what follows the full score."""
    for length, action in enumerate(solution, 1):
        if game.step(action).score >= FULL_SCORE:
            return tuple(solution[:length])
    raise EngineError("the simulator's own solution does not solve this task")


def rest(path: tuple[str, ...], taken: list[str]) -> list[str]:
    """What is left of a path after the actions that were taken.

    Looking around is no step of the way: it may be left out or added. Raises
    EngineError where another action was taken.
    """
    place = 0
    for action in taken:
        while place < len(path) and path[place] != action and path[place] in FREE:
            place += 1
        if place < len(path) and path[place] == action:
            place += 1
        elif action not in FREE:
            raise EngineError(
                f"{action!r} left the simulator's own solution, and it knows no other"
            )
    return list(path[place:])
