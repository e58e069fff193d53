"""One live ALFWorld game behind the Engine protocol: the fast engine, and the stock one.

Both give the same answers, word for word. The fast one needs a planner library that can
restore states. If the installed library cannot, the error says what to type.
"""

import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agentcli.environments.cache import Cache
from agentcli.environments.protocol import Observation, Start
from agentcli.errors import DataError, EngineError, MissingError
from agentcli.records.processes import environ_with
from agentcli.records.types import Task
from agentcli.worlds.alfworld import statekey
from agentcli.worlds.alfworld.fast import library
from agentcli.worlds.alfworld.fast.game import (
    Game,
    GameState,
    Identity,
    identify,
    open_game,
    release,
)
from agentcli.worlds.alfworld.fast.grammar import read_logic
from agentcli.worlds.alfworld.fast.translator import undisturbed
from agentcli.worlds.alfworld.names import judge
from agentcli.worlds.alfworld.statekey import Fact


@contextmanager
def quiet_import() -> Iterator[None]:
    """Keeps `import alfworld` from making a folder and setting ALFWORLD_DATA."""
    # alfworld makes the folder that this names, unless it is there: so any that is.
    folder = os.environ.get("ALFWORLD_DATA") or os.path.dirname(__file__)
    try:
        with environ_with({"ALFWORLD_DATA": folder}):
            yield
    except ImportError as error:
        raise MissingError(
            f"the stock engine needs alfworld ({error}); type: pip install "
            "'agentcli[alfworld]'"
        ) from error


def stock_environment(path: Path) -> Any:
    """The environment that AlfredTWEnv plays a game file in, loaded."""
    with quiet_import(), undisturbed():
        import textworld
        from alfworld.agents.environment.alfred_tw_env import (
            AlfredDemangler,
            AlfredInfos,
        )

        infos = textworld.EnvInfos(
            won=True,
            admissible_commands=True,
            extras=["gamefile"],
        )
        # Shuffled numbers would name things anew at each load.
        wrappers = [AlfredDemangler(shuffle=False), AlfredInfos]
        return textworld.start(str(path), infos, wrappers=wrappers)


TASK_IS = "Your task is to:"


class AlfworldEngine(ABC):
    """Plays one task at a time; FastEngine and StockEngine give the same answers.

    It is not thread-safe; any number of engines can live in one process and be stepped
    in turn. `locate` gives a task's game.tw-pddl file.
    """

    def __init__(self, locate: Callable[[Task], Path]) -> None:
        self._locate = locate
        self._loaded: Identity | None = None
        self.instruction = ""
        """The sentence after "Your task is to:"."""

    def start(self, task: Task) -> Start:
        """Opens a task, or resets it where it is open already.

        Raises DataError for a file that is not a game.
        """
        self.load(task)
        observation = self._reset()
        self.instruction = observation.text.partition(TASK_IS)[2].strip()
        return Start(instruction=self.instruction, observation=observation)

    def load(self, task: Task) -> None:
        """The first half of start: reads the task's file unless it is open already."""
        path = self._locate(task)
        identity = identify(path)
        if identity != self._loaded:
            # A load that fails must not leave the former game looking open.
            self._loaded = None
            self._load(path)
            self._loaded = identity

    def plan(self) -> list[str]:
        """Actions that win from the current state; none when it is won.

        Raises EngineError when there is no plan.
        """
        from agentcli.worlds.alfworld.planner import plan

        return plan(self.facts(), self.instruction)

    @abstractmethod
    def _load(self, path: Path) -> None:
        """Opens a game file. Raises DataError naming the file."""

    @abstractmethod
    def _reset(self) -> Observation:
        """Back to the start of the loaded game."""

    @abstractmethod
    def step(self, action: str) -> Observation:
        """TextWorld's answer to any text, in lower case as all its actions are.

        The papers' releases write it so before TextWorld gets it. `accepted` is False
        for what was not among the actions before.
        """

    @abstractmethod
    def facts(self) -> tuple[Fact, ...]:
        """All facts as TextWorld has them now, sorted."""

    def close(self) -> None:
        """Ends the game; the engine can start another."""
        self._loaded = None


class StockEngine(AlfworldEngine):
    """TextWorld's PDDL environment exactly as AlfredTWEnv sets it up.

    It is here for comparison: forty times slower at least, without snapshots (the pool
    replays instead). `environment.options.engine: stock` selects it.
    """

    def __init__(self, locate: Callable[[Task], Path]) -> None:
        super().__init__(locate)
        self._environment: Any = None
        self._state: Any = None
        self._names: frozenset[str] = frozenset()
        self._shared: frozenset[str] = frozenset()

    def _load(self, path: Path) -> None:
        try:
            self._environment = stock_environment(path)
        except (OSError, ValueError, KeyError, AssertionError) as error:
            raise DataError(
                f"{path}: TextWorld cannot load it ({type(error).__name__}: {error})"
            ) from error
        planner = self._environment._pddl_state
        asked = read_logic(planner._logic).predicates()
        self._names = statekey.relevant(statekey.physics(planner.task), asked)

    def _reset(self) -> Observation:
        with undisturbed():
            self._state = self._environment.reset()
        self._shared = statekey.crowded(self.facts())
        return self._observe(0.0, accepted=True, looked=False)

    def step(self, action: str) -> Observation:
        """TextWorld itself answers."""
        listed = _listed(self._state)
        action = action.lower()
        self._state, reward, _ = self._environment.step(action)
        accepted, looked = judge(action.strip(), listed, self._state.feedback)
        return self._observe(float(reward), accepted=accepted, looked=looked)

    def facts(self) -> tuple[Fact, ...]:
        """All facts as TextWorld has them now, sorted."""
        environment = self._environment
        readable = map(environment._get_human_readable_fact, self._state["_facts"])
        return tuple(sorted((fact.name, *fact.names) for fact in readable))

    def close(self) -> None:
        """Forgets the game."""
        super().close()
        self._environment = None
        self._state = None

    def _observe(self, reward: float, *, accepted: bool, looked: bool) -> Observation:
        state = self._state
        facts = [
            fact
            for fact in self.facts()
            if statekey.matters(fact, self._names, self._shared)
        ]
        return Observation(
            text=state.feedback,
            actions=_listed(state),
            state=statekey.state_key(facts),
            canonical=state.feedback + statekey.inventory(facts),
            accepted=accepted,
            looked=looked,
            reward=reward,
            end="success" if state.won else None,
        )


def _listed(state: Any) -> tuple[str, ...]:
    """The commands worth listing: all that TextWorld names, without help."""
    return tuple(command for command in state.admissible_commands if command != "help")


CACHED = 1
"""Raise it with any change to the cached types or to what computes them."""
Moment = tuple[GameState, Observation]
"""A state, and the observation that led there: what a snapshot holds."""


class FastEngine(AlfworldEngine):
    """Steps hundreds of times faster, with exact snapshots (see fast/).

    Games are shared with the other players of this process. `cache` is a folder for
    translated games (108 thousand characters of PDDL become 20 kB), shared by any
    number of processes; None translates anew in each process. Raises MissingError where
    the planner library cannot restore states.
    """

    def __init__(
        self, locate: Callable[[Task], Path], cache: Path | None = None
    ) -> None:
        super().__init__(locate)
        if not library.has_snapshots():
            raise MissingError(
                "the installed fast_downward cannot restore states; type: pip install "
                "fast_downward_textworld==20.6.4, or play the stock engine with --set "
                "environment.options.engine=stock (slow, forks replay)"
            )
        self._cache = Cache(cache, _version())
        self._game: Game | None = None
        self._now: Moment | None = None
        self._release: Callable[[], object] | None = None
        """Ends the use of the game; runs by itself if close() was forgotten."""

    def _load(self, path: Path) -> None:
        game = open_game(path, self._cache)
        self.close()
        self._game = game
        self._release = weakref.finalize(self, release, game)

    def _reset(self) -> Observation:
        assert self._game is not None
        self._now = self._game.root, self._game.opening
        return self._game.opening

    def step(self, action: str) -> Observation:
        """Walks on in the graph of states."""
        state, _ = self.snapshot()
        self._now = state.game.step(state, action.lower())
        return self._now[1]

    def snapshot(self) -> Moment:
        """The state itself, for states never change."""
        assert self._now is not None
        return self._now

    def restore(self, snapshot: Moment) -> Observation:
        """Back to a snapshot. Raises EngineError for one of another game.

        The planner computes the possible actions, and whether the game is won, anew.
        """
        state, observation = snapshot
        if state.game is not self._game:
            raise EngineError(
                "this snapshot belongs to another game; restore it in the engine and "
                "task it came from"
            )
        self._now = snapshot
        return state.game.look_again(state, observation)

    def facts(self) -> tuple[Fact, ...]:
        """All facts of the state, sorted."""
        state, _ = self.snapshot()
        return tuple(sorted(state.game.table.listed(state.facts)))

    def close(self) -> None:
        """Ends the use of the game."""
        super().close()
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
