"""The tunnel: a wind tunnel for exploration and credit.

It tests no knowledge. Its knobs (rules.py) make one difficulty at a time larger, and
exact.py computes what a method's credit should have been.
"""

import random
from itertools import pairwise
from typing import Literal

import msgspec

from agentcli.environments.protocol import (
    Advice,
    Card,
    Context,
    Observation,
    Start,
    options_of,
)
from agentcli.environments.seeded import moves_of
from agentcli.errors import EngineError
from agentcli.records.files import derive_seed
from agentcli.records.section import Share
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.worlds.generated import StateEngine, drawn_as, drawn_tasks, strikes
from agentcli.worlds.tunnel.rules import (
    COLOURS,
    GO_ON,
    LOOK,
    OPEN,
    Spot,
    Tunnel,
    TunnelOptions,
    draw_game,
    right_door,
)

WRONG = "wrong door, "
"""Begins the text after a wrong door, where it is told."""
INSTRUCTION = (
    "Go through the tunnel. At the end of each passage are doors; one of them is right."
)

Moment = tuple[Spot, bool, bool, bool, float]
"""A place, and of the action before: whether it was accepted, whether it only looked,
whether its door was wrong, and its reward."""


class TunnelHabits(msgspec.Struct, kw_only=True, frozen=True):
    """The faults that the expert has on purpose."""

    overlook: Share = 0.0
    """Share of decisions at which it opens any door."""
    wander: Share = 0.0
    """Share of steps at which it takes any of the listed actions, useless ones too. The
    default of `demos.wander` is 1.
    """


class TunnelEngine(StateEngine[Moment]):
    """One game at a time; it is Solvable."""

    def __init__(self, options: TunnelOptions) -> None:
        self._options = options

    def start(self, task: Task) -> Start:
        """Opens a task. Raises DataError for a task of other options."""
        split, index = drawn_as(task, self._options.digest())
        self.game: Tunnel = draw_game(self._options, split, index)
        self._now = (Spot(), True, False, False, 0.0)
        return Start(instruction=INSTRUCTION, observation=self._observe())

    def step(self, action: str) -> Observation:
        """Takes an action. One that is unknown here, and every knock, is refused."""
        game = self.game
        place = self._now[0]
        action = " ".join(action.lower().split())
        looked = action.startswith(LOOK) and action in game.actions(place)
        after = game.after(place, action)
        self._now = (
            after,
            # A detour of no steps leads back to where the door was opened.
            looked or after != place or game.is_wrong(place, action),
            looked,
            game.is_wrong(place, action),
            game.reward(place, after),
        )
        return self._observe()

    def plan(self) -> list[str]:
        """The actions that win from here. Raises EngineError after a wrong door."""
        place = self._now[0]
        if place.right < place.passage:
            raise EngineError("no plan wins from here: a wrong door was opened")
        actions = []
        while not self.game.ended(place):
            action = GO_ON
            if self.game.at_doors(place):
                action = f"{OPEN} {self.game.right[place.passage]}"
            actions.append(action)
            place = self.game.after(place, action)
        return actions

    def _observe(self) -> Observation:
        place, accepted, looked, wrong, reward = self._now
        game = self.game
        options = self._options
        told = wrong and (options.told or options.wrong == "back")
        view = game.view(place)
        end: Literal["success", "failure"] | None = None
        if game.ended(place):
            end = "success" if game.won(place) else "failure"
        return Observation(
            text=WRONG + view if told else view,
            actions=game.actions(place),
            state="/".join(map(str, place)),
            canonical=view,
            accepted=accepted,
            looked=looked,
            reward=reward,
            end=end,
        )


class TunnelWorld:
    """The World and its Tutor."""

    card = Card(
        name="tunnel",
        role="You are an expert at finding the way through a tunnel.",
        splits=("train", "valid", "test"),
        evaluation_split="test",
    )
    habits = TunnelHabits

    def __init__(self, settings: EnvironmentSettings) -> None:
        self.options = options_of(settings, TunnelOptions)

    def tasks(self, split: str) -> list[Task]:
        """The games of a split; none is drawn before it is played.

        With one sign and no secret all games are the same one: a policy is then tested
        on what it was trained on.
        """
        options = self.options
        doors = str(options.doors)
        kinds = [f"{options.decisions} decisions"] * getattr(options.games, split)
        name = self.card.name
        return drawn_tasks(options.digest(), split, name, kinds, doors=doors)

    def engine(self) -> TunnelEngine:
        return TunnelEngine(self.options)

    def compact(self, context: Context) -> str:
        """What is seen, the doors that were tried here, and the last action."""
        last = context.actions[-1] or "nothing" if context.actions else "nothing"
        lines = [moves_of(context)[-1][1], f"last {last}"]
        tried = self._tried(context)
        if tried:
            lines.insert(1, f"tried {' '.join(tried)}")
        return "\n".join(lines)

    def vocabulary(self) -> list[str]:
        """The doors, as whole tokens."""
        return sorted(f"{OPEN} {colour}" for colour in COLOURS[: self.options.doors])

    def next(self, context: Context, seed: int, habits: TunnelHabits) -> Advice:
        """The right door where a sign tells it, else one that was not tried."""
        occasion = (seed, len(context.actions))
        rng = random.Random(derive_seed("any door", *occasion))
        if strikes(habits.wander, "wander", *occasion):
            return Advice("think", "idle", rng.choice(context.admissible))
        if not any(action.startswith(OPEN) for action in context.admissible):
            return Advice("think", "forward", GO_ON)
        doors = list(COLOURS[: self.options.doors])
        if strikes(habits.overlook, "overlook", *occasion):
            return Advice("explore", "try", f"{OPEN} {rng.choice(doors)}")
        return Advice("explore", "try", f"{OPEN} {self._door(context, doors, rng)}")

    def _door(self, context: Context, doors: list[str], rng: random.Random) -> str:
        """The door that the expert believes in."""
        if self.options.secret:
            tried = self._tried(context)
            return rng.choice([door for door in doors if door not in tried] or doors)
        words = moves_of(context)[-1][1].removeprefix(WRONG).split()
        passage = int(words[1]) - 1 if words[0] == "passage" else 0
        return right_door(self.options, passage, words[-1])

    def _tried(self, context: Context) -> list[str]:
        """Colours of the doors that led back to where the agent is, in order."""
        tried: list[str] = []
        if self.options.wrong != "back":
            return tried
        doors = COLOURS[: self.options.doors]
        for (_, before), (action, after) in pairwise(moves_of(context)):
            verb, _, colour = " ".join(action.lower().split()).partition(" ")
            # On the way there is no door to open, and the text has a distance or none.
            at_doors = "doors" in before and "to doors" not in before
            if verb != OPEN or colour not in doors or not at_doors:
                continue
            # A right door ends the search at these doors.
            tried = [*tried, colour] if after.startswith(WRONG) else []
        return tried
