"""TextWorld's own families of games: made by a seed, compiled once, and kept.

TextWorld is Cote et al. 2018 (arXiv:1806.11532), here its package textworld.
Two parts play a game in step: the compiled game tells the story, and TextWorld's logic
holds what is true, what is possible and what wins. Only possible actions reach the
game, since it would also take commands such as `restart` and `save`.
"""

import copy
import hashlib
import os
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple
from unittest.mock import patch

import msgspec

from agentcli.environments import seeded
from agentcli.environments.cache import CACHE, cache_folder, keeping
from agentcli.environments.protocol import (
    PLACE,
    Card,
    Context,
    Observation,
    Start,
    options_of,
)
from agentcli.errors import EngineError, UsageError
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.registry import nearest
from agentcli.worlds.generated import foreign_task

Family = Literal["coin_collector", "cooking", "simple", "treasure_hunter"]
DEFAULTS: dict[Family, dict[str, Any]] = {
    "coin_collector": {"level": 5},
    "cooking": {"take": 1, "open": True},
    "simple": {"rewards": "dense", "goal": "brief"},
    "treasure_hunter": {"level": 5},
}
"""What `tw-make` asks for, or would make too easy without."""
STILL = ("go", "look", "inventory", "examine", "open", "close")
"""First words of commands that put no thing elsewhere."""
LOOKS = ("look", "inventory", "examine")
ROOM = "-= "
"""Begins the description of a room."""
REFUSED = "That is not possible here."


class TextWorldSeeds(seeded.Seeds, kw_only=True, frozen=True):
    """Games of each split."""

    train: seeded.Number = 200
    valid: seeded.Number = 20
    test: seeded.Number = 50


class TextWorldOptions(msgspec.Struct, kw_only=True, frozen=True):
    """environment.options of TextWorld."""

    family: Family = "treasure_hunter"
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    """What `tw-make tw-FAMILY --help` lists, for instance {level: 15} or {go: 6, cook:
    true}, over the defaults of this world.
    """
    seeds: TextWorldSeeds = TextWorldSeeds()
    """Games of each split. A game is made in seconds when it is first opened."""

    def digest(self) -> str:
        """Names the folder of the games that these options make."""
        shape = self.family, sorted({**DEFAULTS[self.family], **self.settings}.items())
        return hashlib.sha256(repr(shape).encode()).hexdigest()[:8]


class Bookmark(NamedTuple):
    """A state of both parts, and what led there."""

    story: Any
    progress: Any
    played: tuple[str, ...]
    moved: tuple[str, ...]
    last: Observation


class TextWorldEngine:
    """One game at a time: an Engine that is Forkable and Solvable."""

    def __init__(self, options: TextWorldOptions, folder: Path) -> None:
        self._family = options.family
        self._make = maker(options, folder)
        self._opened: Path | None = None

    def start(self, task: Task) -> Start:
        """Opens a game; one that is not there yet is made.

        Raises DataError for a task of another family.
        """
        # Its seed would open another game here.
        if task.kind != self._family:
            raise foreign_task(task)
        import jericho
        from textworld.generator.game import Game, GameProgression
        from textworld.generator.inform7 import Inform7Game

        path = self._make(seeded.seed_of(task))
        if path != self._opened:
            self._story = jericho.FrotzEnv(str(path), 1)
            self._game = Game.load(str(path.with_suffix(".json")))
            self._names = Inform7Game(self._game)
            self._opened = path
        text, _ = self._story.reset()
        self._progress = GameProgression(self._game)
        self._played: tuple[str, ...] = ()
        self._moved: tuple[str, ...] = ()
        self._possible = self._commands()
        first = ROOM + text.partition(ROOM)[2]
        self._last = self._observe(told(first), 0.0, accepted=True, looked=False)
        return Start(instruction=self._game.objective, observation=self._last)

    def step(self, action: str) -> Observation:
        """Takes one of the listed actions; any other is refused."""
        command = " ".join(action.lower().split())
        if command not in self._possible:
            self._last = self._observe(REFUSED, 0.0, accepted=False, looked=False)
            return self._last
        before = self._progress.score
        self._progress.update(self._possible[command])
        text = self._story.step(command)[0]
        self._played += (command,)
        verb = command.partition(" ")[0]
        if verb not in STILL:
            self._moved += (command,)
        self._possible = self._commands()
        reward = float(self._progress.score - before)
        self._last = self._observe(
            told(text), reward, accepted=True, looked=verb in LOOKS
        )
        if ("*** The End ***" in text) != (self._last.end == "success"):
            raise EngineError(f"TextWorld's story and its logic differ after {command}")
        return self._last

    def snapshot(self) -> Bookmark:
        """The state of the story's machine, and a copy of what is true."""
        story = self._story.get_state()
        progress = forked(self._progress)
        return Bookmark(story, progress, self._played, self._moved, self._last)

    def restore(self, snapshot: Bookmark) -> Observation:
        """Continues from a copy of the snapshot."""
        self._story.set_state(snapshot.story)
        self._progress = forked(snapshot.progress)
        self._played, self._moved = snapshot.played, snapshot.moved
        self._possible = self._commands()
        self._last = snapshot.last
        return self._last

    def plan(self) -> list[str]:
        """The game's walkthrough where it was followed so far, else TextWorld's plan.

        Only the walkthrough reads what a player would have to know. Raises EngineError
        if the game cannot be won any more.
        """
        walkthrough = tuple(self._game.metadata.get("walkthrough") or ())
        done = len(self._played)
        if walkthrough[:done] == self._played and len(walkthrough) > done:
            return list(walkthrough[done:])
        actions = self._progress.winning_policy
        if actions is None:
            raise EngineError("no plan wins from here")
        return list(self._names.gen_commands_from_actions(actions))

    def _commands(self) -> dict[str, Any]:
        """Possible command -> TextWorld's action, sorted."""
        actions = self._progress.valid_actions
        commands = self._names.gen_commands_from_actions(actions)
        return dict(sorted(zip(commands, actions, strict=True), key=lambda one: one[0]))

    def _observe(
        self, text: str, reward: float, *, accepted: bool, looked: bool
    ) -> Observation:
        progress = self._progress
        end: Literal["success", "failure"] | None = None
        if progress.done:
            end = "success" if progress.completed else "failure"
        facts = sorted(map(str, progress.state.facts))
        # Things are told in an order that depends on how they were moved.
        known = repr((facts, progress.score, self._moved))
        held = [fact for fact in facts if fact.startswith("in(") and "I: I" in fact]
        return Observation(
            text=text,
            actions=() if end else tuple(self._possible),
            state=hashlib.sha256(known.encode()).hexdigest(),
            canonical="\n".join([text, *held]),
            accepted=accepted,
            looked=looked,
            reward=reward,
            end=end,
        )


def told(text: str) -> str:
    """What the story says, without status line, empty lines, and the count of turns."""
    lines = text.partition("\n>")[0].partition("\nYou scored")[0].splitlines()
    return "\n".join(line.strip() for line in lines if line.strip())


def forked(progress: Any) -> Any:
    """A copy of a GameProgression; its own `copy` finds all possible actions anew."""
    twin = copy.copy(progress)
    twin.state = progress.state.copy()
    twin.quest_progressions = [quest.copy() for quest in progress.quest_progressions]
    return twin


def maker(options: TextWorldOptions, folder: Path) -> Callable[[int], Path]:
    """Makes the game of a seed; a function that returns its file.

    Raises UsageError for a setting that the family has not; the function raises it for
    a value that makes no game.
    """
    from argparse import ArgumentParser

    import textworld.challenges
    from textworld.logic import GameLogic

    _, make, describe = textworld.challenges.CHALLENGES[f"tw-{options.family}"]
    parser = ArgumentParser()
    describe(parser)
    # Their defaults; the parser itself would end the process after a mistake.
    settings = {action.dest: action.default for action in parser._actions}
    for name in options.settings:
        if name not in settings:
            raise UsageError(
                f"{PLACE}.settings: {options.family} has no {name!r}; "
                f"{nearest(name, sorted({*settings} - {'help'}))}"
            )
    settings |= DEFAULTS[options.family] | options.settings
    # The same few files would be parsed again for each game.
    load = cache(GameLogic.load.__func__)

    def made(seed: int) -> Path:
        path = folder / f"{seed}.z8"
        if path.is_file():
            return path
        rules = textworld.GameOptions()
        rules.seeds = seed
        with (
            keeping(folder, CACHE),
            patch.object(
                GameLogic, "load", lambda paths: load(GameLogic, tuple(paths))
            ),
        ):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as making:
                rules.path = str(Path(making, path.name))
                try:
                    game = make(settings, rules)
                # What they say of a value that they cannot use.
                except (AssertionError, TypeError, ValueError) as error:
                    raise UsageError(
                        f"{PLACE}.settings: {options.family} makes no game of "
                        f"{options.settings}: {error}"
                    ) from error
                for quest in game.quests:
                    # They come out of sets, whose order no seed determines.
                    quest.fail_events = sorted(quest.fail_events, key=_written)
                textworld.generator.compile_game(game, rules)
                # The game last: where it lies, its logic does too.
                for file in (path.with_suffix(".json"), path):
                    Path(making, file.name).replace(file)
        return path

    return made


def _written(event: Any) -> str:
    return str(event.serialize())


class TextWorldWorld:
    """The games of one family, with a short prompt."""

    card = Card(
        name="textworld",
        role="You are an expert at text adventures.",
        splits=tuple(seeded.FIRST_SEEDS),
        evaluation_split="test",
        exploring=("go", "open"),
        best_reward=None,
        extra="textworld",
    )

    def __init__(self, settings: EnvironmentSettings) -> None:
        self.options = options_of(settings, TextWorldOptions)

    def tasks(self, split: str) -> list[Task]:
        """The seeds of a split; no game is made."""
        options = self.options
        return seeded.seeded_tasks(
            self.card.name, split, options.seeds, (options.family,)
        )

    def engine(self) -> TextWorldEngine:
        """An engine; imports textworld."""
        root = cache_folder(os.environ, "textworld") / version("textworld")
        return TextWorldEngine(self.options, root / self.options.digest())

    def compact(self, context: Context) -> str:
        """The task, what was read, the room and what was said in it, and what is possible."""
        moves = seeded.moves_of(context)
        read = {text: None for action, text in moves if action.startswith("examine")}
        rooms = [
            place for place, (_, text) in enumerate(moves) if text.startswith(ROOM)
        ]
        said = [text for _, text in moves[rooms[-1] :] if text not in read]
        lines = [context.instruction, *read, *said]
        lines.append(f"last {', '.join(one for one, _ in moves[1:][-3:]) or 'nothing'}")
        # Without those that only look.
        possible = context.admissible
        useful = [act for act in possible if act.partition(" ")[0] not in LOOKS]
        lines.append(f"now {', '.join(useful)}")
        return "\n".join(lines)

    def vocabulary(self) -> list[str]:
        """The ways to go, as whole tokens."""
        return [f"go {way}" for way in ("east", "north", "south", "west")]
