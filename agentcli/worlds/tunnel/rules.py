"""The rules of the tunnel: passages that end at doors, of which one is right.

A game is a row of passages. A passage is a few forced steps and then a decision: which
door to open. Its knobs set what makes credit hard: how many decisions there are and how
long nothing is decided between them, what a wrong door costs and when one learns of it,
what is seen, and how many actions do nothing. All of it is a function from a place and
an action to a place, so that values and gradients can be computed (exact.py).
"""

import hashlib
import random
from functools import lru_cache
from typing import Annotated, Literal, NamedTuple

import msgspec

from agentcli.records.files import derive_seed
from agentcli.worlds.generated import Number, SplitSizes

COLOURS = (
    *("red", "green", "blue", "white", "black", "brown", "grey", "pink"),
    *("gold", "silver", "violet", "orange"),
)
ANIMALS = ("owl", "fox", "hare", "wolf", "bear", "swan", "toad", "crab", "lynx", "mole")
GO_ON, TURN_BACK, LOOK, KNOCK, OPEN = "go on", "turn back", "look", "knock", "open"

Some = Annotated[int, msgspec.Meta(ge=1, le=100)]
Few = Annotated[int, msgspec.Meta(ge=0, le=20)]


class TunnelOptions(msgspec.Struct, kw_only=True, frozen=True):
    """environment.options of the tunnel: its knobs."""

    decisions: Some = 2
    doors: Annotated[int, msgspec.Meta(ge=2, le=len(COLOURS))] = 4
    """Options of a decision."""
    forced: Annotated[int, msgspec.Meta(ge=0, le=100)] = 3
    """Steps before each decision in which only one action leads on."""
    signs: Annotated[int, msgspec.Meta(ge=1, le=len(ANIMALS))] = 1
    """Signs that may hang at the doors; each has its own right door in each passage.
    1: the right door is the same in every game.
    """
    secret: bool = False
    """Whether the right doors differ from game to game and nothing tells them. Then one
    must try, and several copies of the game find them sooner.
    """
    wrong: Literal["on", "back", "end"] = "on"
    """What a wrong door does. on: it leads on like the right one, and the game is lost
    at its end. back: it leads back to the doors after a detour. end: the game is lost.
    """
    detour: Few = 1
    """Steps back to the doors (wrong: back)."""
    told: bool = False
    """Whether the text says at once that a door was wrong; with `back` it always does.
    """
    alike: bool = False
    """Whether all passages look alike: the text says neither which it is nor how far
    the doors are. The papers' state then merges them.
    """
    turns: bool = False
    """Whether one may turn back a step, so that paths have loops. Where a passage
    begins, turning back is refused.
    """
    looks: Few = 0
    """Actions at every place that only look."""
    knocks: Few = 0
    """Listed actions at every place that the game refuses."""
    reward: Literal["end", "graded", "each"] = "end"
    """end: 1 for a game in which every door was right. graded: the share of right
    doors, at the end. each: its share for each right door at once.
    """
    games: SplitSizes = SplitSizes()
    seed: Number = 0

    def digest(self) -> str:
        """The part of a task's id that names the options that it was drawn under."""
        # How many games there are changes none of them.
        shape = msgspec.structs.replace(self, games=SplitSizes())
        return hashlib.sha256(msgspec.json.encode(shape)).hexdigest()[:8]


class Spot(NamedTuple):
    """Where the agent is."""

    passage: int = 0
    """Passages that lie behind it."""
    walked: int = 0
    """Forced steps done in this one."""
    right: int = 0
    """Right doors opened so far."""
    lost: int = 0
    """Steps left of a detour."""


class Tunnel(msgspec.Struct, frozen=True):
    """A game: a row of passages: their signs and right doors."""

    options: TunnelOptions
    signs: tuple[str, ...]
    right: tuple[str, ...]

    def ended(self, place: Spot) -> bool:
        return place.passage == self.options.decisions

    def won(self, place: Spot) -> bool:
        return self.ended(place) and place.right == self.options.decisions

    def at_doors(self, place: Spot) -> bool:
        return not place.lost and place.walked == self.options.forced

    def actions(self, place: Spot) -> tuple[str, ...]:
        """What the agent is shown, the refused actions included; none at the end."""
        if self.ended(place):
            return ()
        options = self.options
        ways = [GO_ON]
        if self.at_doors(place):
            ways = [f"{OPEN} {colour}" for colour in COLOURS[: options.doors]]
        # Also where a passage begins, since passages may look alike.
        if options.turns and not place.lost:
            ways.append(TURN_BACK)
        looks = (f"{LOOK} {number + 1}" for number in range(options.looks))
        knocks = (f"{KNOCK} {number + 1}" for number in range(options.knocks))
        return (*ways, *looks, *knocks)

    def after(self, place: Spot, action: str) -> Spot:
        """Where an action leads; the same place if it does nothing."""
        if action not in self.actions(place):
            return place
        if action == GO_ON:
            if place.lost:
                return place._replace(lost=place.lost - 1)
            return place._replace(walked=place.walked + 1)
        if action == TURN_BACK:
            return place._replace(walked=max(0, place.walked - 1))
        verb, _, colour = action.partition(" ")
        return self._behind(place, colour) if verb == OPEN else place

    def _behind(self, place: Spot, colour: str) -> Spot:
        """Where a door leads."""
        wrong = colour != self.right[place.passage]
        if wrong and self.options.wrong == "back":
            return place._replace(lost=self.options.detour)
        passage = place.passage + 1
        if wrong and self.options.wrong == "end":
            passage = self.options.decisions
        return Spot(passage=passage, right=place.right + (not wrong))

    def is_wrong(self, place: Spot, action: str) -> bool:
        """Whether an action opens a wrong door; a door that is not there is none."""
        verb, _, colour = action.partition(" ")
        if verb != OPEN or action not in self.actions(place):
            return False
        return colour != self.right[place.passage]

    def reward(self, before: Spot, after: Spot) -> float:
        """What a step is paid."""
        kind = self.options.reward
        if kind == "each":
            return (after.right - before.right) / self.options.decisions
        if not self.ended(after):
            return 0.0
        if kind == "graded":
            return after.right / self.options.decisions
        return float(self.won(after))

    def view(self, place: Spot) -> str:
        """What is seen at a place, without what happened before."""
        options = self.options
        if self.ended(place):
            return "The tunnel ends."
        head = "" if options.alike else f"passage {place.passage + 1} "
        if place.lost:
            return f"{head}detour{self._distance(place.lost)}"
        if not self.at_doors(place):
            return f"{head}tunnel{self._distance(options.forced - place.walked)}"
        if options.secret:
            return f"{head}doors"
        return f"{head}doors sign {self.signs[place.passage]}"

    def _distance(self, steps: int) -> str:
        return "" if self.options.alike else f" {steps} to doors"


@lru_cache(maxsize=65536)
def draw_game(options: TunnelOptions, split: str, index: int) -> Tunnel:
    """The game of a task, the same for ever."""
    rng = random.Random(derive_seed("tunnel", options.seed, split, index))
    signs = tuple(
        rng.choice(ANIMALS[: options.signs]) for _ in range(options.decisions)
    )
    if options.secret:
        colours = COLOURS[: options.doors]
        right = tuple(rng.choice(colours) for _ in signs)
    else:
        right = tuple(
            right_door(options, passage, sign) for passage, sign in enumerate(signs)
        )
    return Tunnel(options, signs, right)


def right_door(options: TunnelOptions, passage: int, sign: str) -> str:
    """The colour that a sign means in a passage, in every game.

    Where passages look alike a sign means the same in all of them: else no policy that
    sees only the present could win.
    """
    where = 0 if options.alike else passage
    rng = random.Random(derive_seed("door", options.seed, where, sign))
    return rng.choice(COLOURS[: options.doors])
