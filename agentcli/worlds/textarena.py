"""TextArena's games for one player: puzzles, guessing and games of chance, as text.

TextArena is Guertler et al. 2025 (arXiv:2504.11442), here its package textarena.
The games draw from the global generators of Python and numpy. These are lent to a game
for each call, so that a game depends on its seed and its actions alone.
"""

import copy
import random
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import permutations, product
from typing import Any, NamedTuple

import msgspec
import numpy as np

from agentcli.environments import seeded
from agentcli.environments.protocol import (
    PLACE,
    Card,
    Context,
    Observation,
    Start,
    options_of,
)
from agentcli.errors import EngineError, UsageError
from agentcli.records.faults import one_line
from agentcli.records.section import Finite
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.registry import nearest

WAYS = ("up", "down", "left", "right")
CANDIDATES: dict[str, Callable[[Any], Iterable[object]]] = {
    "2048": lambda game: WAYS,
    "Bandit": lambda game: game.buttons,
    "Blackjack": lambda game: ("Hit", "Stand"),
    "FifteenPuzzle": lambda game: WAYS,
    "FrozenLake": lambda game: WAYS,
    "GuessTheNumber": lambda game: range(game.min_number, game.max_number + 1),
    "LightsOut": lambda game: map(_words, product(range(game.size), repeat=2)),
    "Secretary": lambda game: ("accept", "continue"),
    "Sokoban": lambda game: WAYS,
    "ThreeCardMonte": lambda game: range(game.num_cups),
    "TowerOfHanoi": lambda game: map(_words, permutations("ABC", 2)),
}
"""Family of games -> the actions that may be possible, where they are few and an
invalid one tells nothing that is hidden.
"""
OPEN = ("FrozenLake", "TowerOfHanoi")
"""Families in which nothing is hidden or drawn and a search soon ends."""
SEARCHED = 2000
"""Most positions of a search."""
UNFIT = {
    "GuessWho": "a language model of OpenRouter answers in it",
    "TwentyQuestions": "a language model of OpenRouter answers in it",
}
"""Families that cannot be replayed, and why."""
FRAME = re.compile(r"^(?:[-+=| ]*[-+=][-+=| ]*| *)$\n?", re.MULTILINE)
"""Lines that only frame a board, and empty ones."""
BLANK = re.compile(r"\| +(?=\|)")


def _words(parts: Iterable[object]) -> str:
    return " ".join(map(str, parts))


class TextArenaOptions(msgspec.Struct, kw_only=True, frozen=True):
    """environment.options of TextArena."""

    games: tuple[str, ...] = ("FrozenLake-v0",)
    """Ids in TextArena's registry. Each game has the tasks that `seeds` says, and is a
    kind of task, so that success is reported by game.
    """
    seeds: seeded.Seeds = seeded.Seeds()
    actions: list[str] | None = None
    """Actions to show, for a game of which the world knows none. All commands take any
    text as an action; one without brackets gets them.
    """
    threshold: Finite = 0.999
    """A game that ends with a larger reward is a success. TextArena rewards a solved
    game with 1, and any other with the share that was reached.
    """


class HeldGame(NamedTuple):
    """A game in progress that was put aside."""

    game: Any
    drawn: tuple[Any, ...]
    play: seeded.Play


class TextArenaEngine:
    """One game at a time: an Engine that is Forkable."""

    def __init__(self, options: TextArenaOptions) -> None:
        self._options = options
        self._saved = seeded.SeededOptions(
            success="reward", threshold=options.threshold
        )
        # A game that cannot be played here is reported before any task.
        for name in options.games:
            _refuse_unfit(name)
            self._open(name, 0)

    def start(self, task: Task) -> Start:
        """Opens the task's game with the task's seed."""
        seed = seeded.seed_of(task)
        prompt, text = self._open(task.kind, seed)
        self._play = seeded.Play(self._saved, seed)
        first = self._play.begin(text or "The game begins.", self._valid())
        return Start(instruction=prompt, observation=first)

    def step(self, action: str) -> Observation:
        """Hands the text to the game, in brackets."""
        done = self._take(action)
        told, reward = "\n".join(self._seen()[1]), 0.0
        if done:
            given = (self._game.state.rewards or {}).get(0)
            # A few games mistake the order: after an invalid move it is a text.
            reward = float(given) if isinstance(given, int | float) else 0.0
            told = f"{told}\n{self._game.state.game_info[0].get('reason', '')}"
        return self._play.advance(
            action,
            told.strip() or "Nothing is said.",
            () if done else self._valid(),
            reward,
            "terminated" if done else None,
        )

    def snapshot(self) -> HeldGame:
        """A copy of the game, its generators and its episode."""
        game = copy.deepcopy(self._game)
        return HeldGame(game, self._drawn, copy.copy(self._play))

    def restore(self, snapshot: HeldGame) -> Observation:
        """Continues with a copy of the snapshot."""
        self._game = copy.deepcopy(snapshot.game)
        self._drawn = snapshot.drawn
        self._play = copy.copy(snapshot.play)
        return self._play.last

    def _open(self, name: str, seed: int) -> tuple[str, str]:
        """Opens a game; its rules, and what is seen first.

        Raises UsageError for a game that cannot be played here.
        """
        arena = _arena()
        self._family = family_of(name)
        self._drawn = (
            random.Random(seed).getstate(),
            np.random.RandomState(seed).get_state(),
        )
        try:
            with self._lending():
                self._game = arena.make(f"{name.removesuffix('-raw')}-raw")
                self._game.reset(num_players=1, seed=seed)
        # A game is anybody's code.
        except Exception as error:
            raise UsageError(f"{PLACE}.games: {name} {_hindrance(error)}") from error
        if not isinstance(self._game.state, arena.SinglePlayerState):
            raise UsageError(f"{PLACE}.games: {name} needs more players than one")
        prompt, told = self._seen()
        return prompt, "\n".join(told)

    @contextmanager
    def _lending(self) -> Iterator[None]:
        """The global generators as this game left them; afterwards as they were."""
        ours = random.getstate(), np.random.get_state()
        random.setstate(self._drawn[0])
        np.random.set_state(self._drawn[1])
        try:
            yield
        finally:
            self._drawn = random.getstate(), np.random.get_state()
            random.setstate(ours[0])
            np.random.set_state(ours[1])

    def _take(self, action: str) -> bool:
        """Plays an action; whether the game is over."""
        with self._lending():
            done, _ = self._game.step(action if "[" in action else f"[{action}]")
        return bool(done)

    def _seen(self) -> tuple[str, list[str]]:
        """The rules, and what the game said since it was last asked."""
        rules = []
        told = []
        _, messages = self._game.get_observation()
        for _, text, kind in messages:
            # A few games write the action where its kind belongs.
            name = getattr(kind, "name", "PLAYER_ACTION")
            if name == "PROMPT":
                rules.append(text.strip())
            elif name != "PLAYER_ACTION":
                told.append(text.strip())
        return "\n".join(rules), told

    def _valid(self) -> tuple[str, ...]:
        """The actions that the game would not call invalid, tried on copies."""
        if self._options.actions is not None:
            return tuple(self._options.actions)
        candidates = CANDIDATES.get(self._family, lambda game: ())(self._game)
        return tuple(action for action in map(str, candidates) if self._tried(action))

    def _tried(self, action: str) -> Any | None:
        """The game after an action; None if the game calls it invalid."""
        # A trial must not use up what the game itself will draw next.
        game, drawn = self._game, self._drawn
        self._game = copy.deepcopy(game)
        try:
            errors = self._game.state.error_count
            self._take(action)
            state = self._game.state
            invalid = state.error_count > errors or state.game_info[0]["invalid_move"]
            return None if invalid else self._game
        finally:
            self._game, self._drawn = game, drawn


class OpenEngine(TextArenaEngine):
    """A TextArenaEngine that is Solvable."""

    def plan(self) -> list[str]:
        """The fewest actions that win. Raises EngineError where a search finds none."""
        here = self._game
        known = {_position(here)}
        waiting: deque[tuple[Any, list[str]]] = deque([(here, [])])
        try:
            while waiting and len(known) < SEARCHED:
                self._game, path = waiting.popleft()
                for action in CANDIDATES[self._family](self._game):
                    after = self._tried(str(action))
                    if after is None or _position(after) in known:
                        continue
                    known.add(_position(after))
                    if not after.state.done:
                        waiting.append((after, [*path, str(action)]))
                    elif after.state.rewards[0] > self._options.threshold:
                        return [*path, str(action)]
        finally:
            self._game = here
        raise EngineError("no plan wins from here")


def _position(game: Any) -> str:
    return repr(game.state.game_state)


def family_of(name: str) -> str:
    """The family of a game: FrozenLake-v0-hardcore is a FrozenLake."""
    return name.partition("-v")[0]


def _arena() -> Any:
    """TextArena. Some of its games download word lists when they are imported."""
    downloader: Any = import_module("nltk")
    downloader.download = lambda *names, **options: False
    return import_module("textarena")


def _refuse_unfit(name: str) -> None:
    """Raises UsageError for an unknown game, and for one that cannot be replayed."""
    known = import_module("textarena.envs.registration").ENV_REGISTRY
    if name not in known:
        hint = nearest(name, known)
        raise UsageError(f"{PLACE}.games: TextArena has no {name}; {hint}")
    if family_of(name) in UNFIT:
        raise UsageError(
            f"{PLACE}.games: {name} cannot be replayed: {UNFIT[family_of(name)]}"
        )


def _hindrance(error: Exception) -> str:
    """Why a game cannot be played here."""
    line = one_line(error)[:200]
    if isinstance(error, AssertionError):
        return f"needs more players than one ({line})"
    if isinstance(error, SyntaxError):
        return f"needs a newer Python ({line})"
    if isinstance(error, LookupError) and "nltk" in line:
        return "needs a word list: python -m nltk.downloader words"
    return f"cannot be opened: {type(error).__name__}: {line}"


class TextArenaWorld:
    """The games of the options, with a short prompt."""

    card = Card(
        name="textarena",
        role="You are an expert at games.",
        splits=tuple(seeded.FIRST_SEEDS),
        evaluation_split="test",
        best_reward=None,
        extra="textarena",
    )

    def __init__(self, settings: EnvironmentSettings) -> None:
        self.options = options_of(settings, TextArenaOptions)

    def tasks(self, split: str) -> list[Task]:
        """The seeds of a split, of each game in turn."""
        kinds = self.options.games
        return seeded.seeded_tasks(self.card.name, split, self.options.seeds, kinds)

    def engine(self) -> TextArenaEngine:
        """An engine; it is Solvable if all games are open."""
        families = map(family_of, self.options.games)
        kind = OpenEngine if {*families} <= {*OPEN} else TextArenaEngine
        return kind(self.options)

    def compact(self, context: Context) -> str:
        """The board, or all that was done and said where there is none."""
        moves = seeded.moves_of(context)
        last = moves[-1][1]
        if "\n" in last:
            return BLANK.sub("| . ", FRAME.sub("", last))
        return "\n".join([f"{action} > {text}" for action, text in moves[1:]] or [last])

    def vocabulary(self) -> list[str]:
        """No names of several words."""
        return []
