"""The stock engine: TextWorld's PDDL environment exactly as AlfredTWEnv sets it up.

It is here for comparison: forty times slower at least, without snapshots (the pool
replays instead). `environment.options.engine: stock` selects it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentcli.environments.protocol import Observation
from agentcli.errors import (
    DataError,
    EngineError,
    MissingError,
)
from agentcli.worlds.alfworld import statekey
from agentcli.worlds.alfworld.commands import judge
from agentcli.worlds.alfworld.fast.grammar import read_logic
from agentcli.worlds.alfworld.fast.translator import undisturbed


@contextmanager
def quiet_import() -> Iterator[None]:
    """Keeps `import alfworld` from making a folder and setting ALFWORLD_DATA."""
    before = os.environ.get("ALFWORLD_DATA")
    os.environ["ALFWORLD_DATA"] = before or os.path.dirname(__file__)
    try:
        yield
    except ImportError as error:
        raise MissingError(
            f"the stock engine needs alfworld ({error}); type: pip install "
            "'agentcli[alfworld]'"
        ) from error
    finally:
        if before is None:
            del os.environ["ALFWORLD_DATA"]
        else:
            os.environ["ALFWORLD_DATA"] = before


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
        wrappers = [AlfredDemangler(shuffle=False), AlfredInfos]
        return textworld.start(str(path), infos, wrappers=wrappers)


class StockBackend:
    """The stock engine behind AlfworldEngine."""

    def __init__(self) -> None:
        self._environment: Any = None
        self._state: Any = None
        self._names: frozenset[str] = frozenset()
        self._shared: frozenset[str] = frozenset()

    def load(self, path: Path) -> None:
        """Opens a game file. Raises DataError naming the file."""
        try:
            self._environment = stock_environment(path)
        except (OSError, ValueError, KeyError, AssertionError) as error:
            raise DataError(
                f"{path}: TextWorld cannot load it ({type(error).__name__}: {error})"
            ) from error
        planner = self._environment._pddl_state
        queries = read_logic(planner._logic).queries()
        self._names = statekey.relevant(statekey.physics(planner.task), queries)

    def reset(self) -> Observation:
        """Back to the start of the loaded game."""
        with undisturbed():
            self._state = self._environment.reset()
        self._shared = statekey.crowded(self.facts())
        return self._observe(0.0, accepted=True, looked=False)

    def step(self, action: str) -> Observation:
        """TextWorld's answer to any text."""
        listed = _listed(self._current())
        self._state, reward, _ = self._environment.step(action)
        accepted, looked = judge(action.strip(), listed, self._state.feedback)
        return self._observe(float(reward), accepted=accepted, looked=looked)

    def snapshot(self) -> None:
        """Nothing: TextWorld has no snapshots."""

    def restore(self, snapshot: Any) -> Observation:
        """Raises EngineError always."""
        raise EngineError("the stock engine has no snapshots; replay the actions")

    def facts(self) -> list[statekey.Fact]:
        """All facts of the current state, sorted."""
        environment = self._environment
        readable = map(environment._get_human_readable_fact, self._current()["_facts"])
        return sorted((fact.name, *fact.names) for fact in readable)

    def close(self) -> None:
        """Forgets the game."""
        self._environment = None
        self._state = None

    def _current(self) -> Any:
        if self._state is None:
            raise EngineError("no game is open; call start first")
        return self._state

    def _observe(
        self,
        reward: float,
        *,
        accepted: bool,
        looked: bool,
    ) -> Observation:
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
