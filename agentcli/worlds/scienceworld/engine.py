"""One ScienceWorld game behind the Engine protocol.

Rewards are points: the score goes from 0 to 100, and an episode's rewards add up to it.
Points that a task starts with are part of the first action's reward. Only 100 is
success. The simulator reports -100 if the task can no longer be done, for instance
after focusing on the wrong thing: the episode ends as a failure, with 0 points.

**Exact keys.** Nearly every action lets time pass, and time changes temperatures,
plants and animals. So a state is named by the actions that led to it, except those that
changed nothing: looking around, the inventory, the task, and text that the simulator
cannot parse. Paths that differ only in such actions reach the same state. An action
that is parsed and then refused ("The door is already open.") takes time like any other,
so it leads to a new state. Keys never merge different orders of actions.

**Canonical states** are the room as it looks and the inventory (RewardFlow B.1):
different orders of actions can reach the same one.
"""

import hashlib
from typing import Literal, NamedTuple

from agentcli.environments.protocol import Observation, Start
from agentcli.errors import DataError, EngineError
from agentcli.records.types import Task
from agentcli.worlds.scienceworld import actions, gold, hints
from agentcli.worlds.scienceworld.options import ScienceWorldOptions
from agentcli.worlds.scienceworld.simulator import (
    FULL_SCORE,
    ScienceGame,
    Simulator,
    Turn,
)
from agentcli.worlds.scienceworld.splits import VARIATIONS

COUNTING = ("identify-life-stages-1", "identify-life-stages-2")
"""Tasks with a goal to stay somewhere, which counts every action that is read."""


class Sight(NamedTuple):
    """What an agent can see of a state without passing time."""

    canonical: str
    actions: tuple[str, ...]


class ScienceWorldEngine:
    """Plays one task at a time; all engines of a process share its simulator."""

    def __init__(
        self, simulator: Simulator, options: ScienceWorldOptions, paths: gold.GoldPaths
    ) -> None:
        self._simulator = simulator
        self._options = options
        self._paths = paths
        self._game: ScienceGame | None = None

    def start(self, task: Task) -> Start:
        """Opens a task. Raises DataError for one of another world or of other options."""
        kind, variation = self._read(task)
        simplification = self._options.simplification
        # A second task takes half the time in the same game.
        self._game = self._game or self._simulator.game()
        self._game.open(kind, variation, simplification)
        self._kind = kind
        self._variation = variation
        self._paid = 0
        self._ticks = 0
        self._past = b""
        self._taken: list[str] = []
        self._sight: Sight | None = None
        # The simulator's own reset looks around as its first step.
        moment = self._game.step("look around")
        self._score = max(moment.score, 0)
        sentence = " ".join(self._game.task().split())
        return Start(
            instruction=sentence.removeprefix("Your task is to "),
            observation=self._observe(moment, reward=0.0, taken=True, looked=False),
        )

    def step(self, action: str) -> Observation:
        """The simulator's answer to any text."""
        before = self._score
        paid = self._paid
        moment = self._act(action)
        taken = actions.accepted(moment.text)
        looks = actions.first_word(action) in actions.LOOKS
        looked = looks and taken and self._score == before
        return self._observe(moment, float(self._score - paid), taken, looked)

    def retrace(self, action: str) -> str:
        """The text of a step; the agent's sight is not asked for."""
        return self._act(action).text

    def plan(self) -> list[str]:
        """The rest of the simulator's own solution.

        Raises EngineError where the agent has left it.
        """
        simplification = self._options.simplification
        path = self._paths.path(
            self._simulator, self._kind, self._variation, simplification
        )
        return gold.rest(path, self._taken)

    def close(self) -> None:
        """Lets go of the game; the simulator ends with the process."""
        if self._game is not None:
            self._game.close()
        self._game = None

    def _read(self, task: Task) -> tuple[str, int]:
        """The kind and the variation that a task id names."""
        prefix, _, place = task.id.partition("/")
        kind, _, number = place.rpartition("/")
        if number not in map(str, range(VARIATIONS.get(kind, 0))):
            raise DataError(
                f"task {task.id}: scienceworld has no such task; its ids look like "
                f"{self._options.prefix}/boil/0"
            )
        if prefix != self._options.prefix:
            raise DataError(
                f"task {task.id}: these environment.options make tasks that begin with "
                f"{self._options.prefix}/; use the simplifications of its panel"
            )
        return kind, int(number)

    def _act(self, action: str) -> Turn:
        """Acts, and keeps what a state is made of."""
        if self._game is None:
            raise EngineError("no task is open; call start first")
        moment = Turn(actions.UNKNOWN, self._score, self._ticks)
        if actions.readable(action):
            moment = self._game.step(action)
        changed = self._has_changed(moment, action)
        if changed or action in gold.FREE:
            self._taken.append(action)
        if changed:
            self._remember(action)
            self._ticks = moment.ticks
            self._sight = None
        self._score = max(moment.score, 0)
        self._paid = self._score
        return moment

    def _has_changed(self, moment: Turn, action: str) -> bool:
        """Whether the state may be another one."""
        if moment.ticks != self._ticks or moment.text.startswith(actions.AMBIGUOUS):
            return True
        if moment.text.startswith(actions.UNKNOWN):
            return False
        outside = action.strip().lower() in actions.OUTSIDE
        return self._kind in COUNTING and not outside

    def _remember(self, action: str) -> None:
        text = " ".join(action.lower().split())
        self._past = hashlib.blake2b(
            text.encode(errors="surrogatepass"), key=self._past, digest_size=16
        ).digest()

    def _see(self) -> Sight:
        """What the agent sees; the simulator is asked once in a state."""
        if self._sight is None:
            assert self._game is not None
            room = self._game.look()
            inventory = self._game.inventory()
            possible = hints.hints(room, inventory, self._game.things())
            self._sight = Sight(f"{room}\n{inventory}", possible)
        return self._sight

    def _observe(
        self, moment: Turn, reward: float, taken: bool, looked: bool
    ) -> Observation:
        sight = self._see()
        end: Literal["success", "failure"] | None = None
        if moment.score >= FULL_SCORE:
            end = "success"
        elif moment.score < 0:
            end = "failure"
        return Observation(
            text=moment.text,
            actions=sight.actions,
            state=f"[tick] {self._ticks}\n[past] {self._past.hex() or 'none'}",
            canonical=sight.canonical,
            accepted=taken,
            looked=looked,
            reward=reward,
            end=end,
        )
