"""EZPoints: with two cards, write a formula that makes exactly 12.

The rules are those of EZPointEnv in Gym Cards (Zhai et al., 2024), a world of SPARK's
Table 14. An action writes one sign: a number from 1 to 10, + or *. "=" ends the
episode. J, Q and K count 10.

- +10 for a formula that makes 12 with both cards, -1 for any other at "=".
- -1 for a number that is on no unused card; its place in the formula stays blank.
- A formula of six signs is too long: the next action ends the episode with -1. Here
  that is a failure; Gym Cards returns it as truncated.
"""

import random
from collections.abc import Sequence
from functools import lru_cache
from io import BytesIO
from itertools import product
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from agentcli.environments.protocol import (
    Advice,
    Card,
    Context,
    Observation,
    Picture,
    Start,
    options_of,
)
from agentcli.errors import EngineError
from agentcli.records.files import derive_seed
from agentcli.records.pictures import require_pillow
from agentcli.records.section import Share
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.worlds.generated import (
    SPLITS,
    Number,
    SplitSizes,
    StateEngine,
    drawn_as,
    drawn_tasks,
    indulges,
    split_of,
)

if TYPE_CHECKING:
    from PIL.Image import Image

TARGET = 12
LONGEST = 5
"""Longest formula that can still be extended: one more sign is the last."""
REWARD = 10.0
PENALTY = -1.0
NUMBERS = tuple(str(number) for number in range(1, 11))
ACTIONS = (*NUMBERS, "+", "*", "=")
BLANK = "_"
"""The place of a number that could not be written."""
FACES = ("J", "Q", "K")
FACTORS = ("2", "3", "4", "6")
"""Cards that make 12 as a product with another card here."""

INSTRUCTION = (
    f"Write a formula that makes exactly {TARGET} with both cards. Each action writes "
    "one sign: a number on a card, + or *. J, Q and K count 10. When the formula is "
    "complete, write =."
)

IN_THE_PICTURE = "Cards: in the picture"


class EzPointsOptions(msgspec.Struct, kw_only=True, frozen=True):
    """environment.options of EZPoints."""

    deals: SplitSizes = SplitSizes()
    """A deal may come again within a split."""
    seed: Number = 0
    pictures: bool = False
    """Whether the cards are shown as a picture, and not in words."""
    pixels: Annotated[int, msgspec.Meta(ge=1, le=16)] = 2
    """Pixels a dot, across and down; a card is 14 dots wide and 20 high."""


class EzPointsHabits(msgspec.Struct, kw_only=True, frozen=True):
    """The mistakes that the expert makes on purpose."""

    forget: Share = 0.0
    """Share of deals in which it adds although only a product makes 12."""
    overlook: Share = 0.0
    """Share of formulas to which it adds a random sign instead of the plan's."""


class PlayingCard(msgspec.Struct, frozen=True):
    """One card."""

    rank: str
    suit: str

    @property
    def number(self) -> str:
        """What it counts, as an action writes it."""
        return "10" if self.rank in FACES else self.rank

    def __str__(self) -> str:
        return f"{self.rank} of {self.suit}"


Deal = tuple[PlayingCard, PlayingCard]


class WrittenFormula(msgspec.Struct, frozen=True):
    """An unfinished formula, and how it was reached."""

    formula: tuple[str, ...] = ()
    accepted: bool = True
    reward: float = 0.0
    ended: bool = False


@lru_cache(maxsize=4096)
def deal_of(seed: int, split: str, index: int) -> Deal:
    """The cards of a task, the same for ever.

    Drawn as Gym Cards does, until the deal belongs to the split: no two splits share
    one.
    """
    rng = random.Random(derive_seed("ezpoints", seed, split, index))
    while True:
        deal = _drawn(rng)
        # By the cards, not by the index: the same deal may be drawn under any seed.
        if split_of(f"{deal[0]}, {deal[1]}") == split:
            return deal


def _drawn(rng: random.Random) -> Deal:
    """Two cards that make 12, in any order."""
    # No ace: 1 + 11 and 1 * 12 need a card that there is not.
    rank = rng.choice((*NUMBERS[1:], *FACES))
    first = PlayingCard(rank, rng.choice(SUITS))
    # Half of the deals whose first card divides 12 make it as a product.
    if rank in FACTORS and rng.random() < 0.5:
        other = TARGET // int(first.number)
    else:
        other = TARGET - int(first.number)
    second = PlayingCard(str(other), rng.choice(SUITS))
    return (first, second) if rng.random() < 0.5 else (second, first)


def value(formula: tuple[str, ...]) -> int | None:
    """What a formula of two numbers makes; None where it is no such formula.

    Blanks count as nothing, and so does a + with no number before it, as in Python.
    """
    signs: list[str] = []
    for sign in formula:
        is_unary = sign == "+" and (not signs or signs[-1] in "+*")
        if sign != BLANK and not is_unary:
            signs.append(sign)
    if len(signs) != 3 or signs[1] not in "+*":
        return None
    first, operator, second = signs
    if not (first.isdigit() and second.isdigit()):
        return None
    if operator == "+":
        return int(first) + int(second)
    return int(first) * int(second)


def unused(deal: Deal, formula: tuple[str, ...]) -> list[str]:
    """The numbers of the cards that the formula has not used yet."""
    numbers = [card.number for card in deal]
    for sign in formula:
        if sign in numbers:
            numbers.remove(sign)
    return numbers


def solutions(deal: Deal) -> list[tuple[str, ...]]:
    """The formulas of two numbers that make 12, "=" included."""
    first, second = (card.number for card in deal)
    formulas: list[tuple[str, ...]] = []
    for operator in "+*":
        for left, right in dict.fromkeys([(first, second), (second, first)]):
            formula = (left, operator, right)
            if value(formula) == TARGET:
                formulas.append((*formula, "="))
    return formulas


class EzPointsEngine(StateEngine[WrittenFormula]):
    """One deal at a time; it is Solvable."""

    def __init__(self, options: EzPointsOptions) -> None:
        self._options = options
        if options.pictures:
            require_pillow()

    def start(self, task: Task) -> Start:
        """Deals the cards of a task. Raises DataError for a task of other options."""
        split, index = drawn_as(task, str(self._options.seed))
        self._deal = deal_of(self._options.seed, split, index)
        self._now = WrittenFormula()
        return Start(instruction=INSTRUCTION, observation=self._observe())

    def step(self, action: str) -> Observation:
        """Writes one sign. An unknown action is a sign that cannot be written."""
        self._now = self._after(action.strip())
        return self._observe()

    def plan(self) -> list[str]:
        """The signs that are missing of a formula of three.

        Raises EngineError after any other sign, though a formula with a blank or with a
        + too many may still be won.
        """
        formula = self._now.formula
        for solution in solutions(self._deal):
            if solution[: len(formula)] == formula:
                return list(solution[len(formula) :])
        raise EngineError(f"begins no formula of three: {' '.join(formula)}")

    def _after(self, sign: str) -> WrittenFormula:
        formula = self._now.formula
        if len(formula) > LONGEST:
            return WrittenFormula(formula, reward=PENALTY, ended=True)
        if sign == "=":
            is_won = value(formula) == TARGET and not unused(self._deal, formula)
            reward = REWARD if is_won else PENALTY
            return WrittenFormula(formula, reward=reward, ended=True)
        if sign in ("+", "*") or sign in unused(self._deal, formula):
            return WrittenFormula((*formula, sign))
        return WrittenFormula((*formula, BLANK), accepted=False, reward=PENALTY)

    def _observe(self) -> Observation:
        now = self._now
        cards = f"Cards: {self._deal[0]}, {self._deal[1]}"
        formula = f"Formula: {' '.join(now.formula)}".rstrip()
        state = f"{cards}\n{formula}"
        pictures: tuple[Picture, ...] = ()
        if self._options.pictures:
            cards = IN_THE_PICTURE
            shown = tuple((card.rank, card.suit) for card in self._deal)
            pictures = (Picture(draw_cards(shown, self._options.pixels)),)
        end: Literal["success", "failure"] | None = None
        if now.ended:
            end = "success" if now.reward == REWARD else "failure"
        return Observation(
            text=f"{cards}\n{formula}",
            actions=() if now.ended else ACTIONS,
            state=f"{state} =" if now.ended else state,
            accepted=now.accepted,
            reward=now.reward,
            end=end,
            pictures=pictures,
        )


class EzPointsWorld:
    """The World and its Tutor."""

    card = Card(
        name="ezpoints",
        role="You are an expert card player, observant and good at arithmetic.",
        splits=tuple(SPLITS),
        evaluation_split="test",
        best_reward=REWARD,
    )
    habits = EzPointsHabits

    def __init__(self, settings: EnvironmentSettings) -> None:
        self.options = options_of(settings, EzPointsOptions)

    def tasks(self, split: str) -> list[Task]:
        """The deals of a split; the kind says what makes 12 of them."""
        seed = self.options.seed
        kinds = []
        for index in range(getattr(self.options.deals, split)):
            deal = deal_of(seed, split, index)
            kinds.append("sum" if solutions(deal)[0][1] == "+" else "product")
        return drawn_tasks(str(seed), split, self.card.name, kinds)

    def engine(self) -> EzPointsEngine:
        return EzPointsEngine(self.options)

    def compact(self, context: Context) -> str:
        """The ranks, unless a picture shows them, and the formula."""
        deal, formula = read(context, self.options.pixels)
        written = f"formula {' '.join(formula) or 'empty'}"
        if self.options.pictures:
            return written
        ranks = " ".join(card.rank for card in deal)
        return f"cards {ranks}\n{written}"

    def vocabulary(self) -> list[str]:
        return sorted({*NUMBERS, *FACES, *ACTIONS})

    def next(self, context: Context, seed: int, habits: EzPointsHabits) -> Advice:
        """The next sign of a formula that makes 12, with the mistakes of these habits.

        After any other sign it hands the formula in, although a longer one might win.
        """
        deal, formula = read(context, self.options.pixels)
        rng = random.Random(derive_seed("ezpoints", seed, *formula))
        if rng.random() < habits.overlook:
            return Advice("explore", "try", rng.choice(ACTIONS))
        plan = solutions(deal)[0]
        if plan[1] == "*" and indulges(habits, "forget", seed):
            plan = (plan[0], "+", *plan[2:])
        fits = plan[: len(formula)] == formula
        intention = f"{' '.join(plan[:-1])} makes {TARGET}"
        return Advice("think", intention, plan[len(formula)] if fits else "=")


def read(context: Context, pixels: int) -> tuple[Deal, tuple[str, ...]]:
    """Cards and formula of the last observation that shows them.

    After a response that could not be read the agent sees words, and nothing changed.
    """
    shown = next(
        text for text in reversed(context.observations) if text.startswith("Cards: ")
    )
    cards, formula = shown.split("\n")
    if cards == IN_THE_PICTURE:
        pairs = read_cards(context.pictures[0].png, pixels)
        first, second = (PlayingCard(*pair) for pair in pairs)
    else:
        words = cards.removeprefix("Cards: ").split(", ")
        first, second = (PlayingCard(*word.split(" of ")) for word in words)
    return (first, second), tuple(formula.removeprefix("Formula:").split())


# Cards are drawn from dots, so that no font decides what they look like.

WIDTH, HEIGHT, GAP = 14, 20, 2
"""Dots of a card, and between two."""
TABLE = (32, 96, 64)
PAPER = (248, 248, 240)
BLACK = (16, 16, 24)
RED = (200, 24, 40)

GLYPHS = {
    "0": "111 101 101 101 111",
    "1": "010 110 010 010 111",
    "2": "111 001 111 100 111",
    "3": "111 001 111 001 111",
    "4": "101 101 111 001 001",
    "5": "111 100 111 001 111",
    "6": "111 100 111 101 111",
    "7": "111 001 001 010 010",
    "8": "111 101 111 101 111",
    "9": "111 101 111 001 111",
    "J": "001 001 001 101 111",
    "Q": "111 101 101 110 011",
    "K": "101 101 110 101 101",
    "hearts": "0110110 1111111 1111111 0111110 0011100 0001000",
    "diamonds": "0001000 0011100 0111110 0111110 0011100 0001000",
    "spades": "0001000 0011100 0111110 1111111 1101011 0001000",
    "clubs": "0011100 0011100 1111111 1111111 0101010 0001000",
}
"""The dots of every sign, row by row."""
RANKS = ("1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "J", "Q", "K")
SUITS = ("hearts", "diamonds", "spades", "clubs")

RankAndSuit = tuple[str, str]


@lru_cache(maxsize=4096)
def draw_cards(cards: tuple[RankAndSuit, ...], pixels: int) -> bytes:
    """The PNG of cards side by side, `pixels` a dot."""
    from PIL import Image

    size = (_left(len(cards)) * pixels, (HEIGHT + 2 * GAP) * pixels)
    table = Image.new("RGB", size, TABLE)
    for number, card in enumerate(cards):
        place = (_left(number) * pixels, GAP * pixels)
        table.paste(_card(*card, pixels), place)
    file = BytesIO()
    table.save(file, "PNG")
    return file.getvalue()


@lru_cache(maxsize=4096)
def read_cards(png: bytes, pixels: int) -> Sequence[RankAndSuit]:
    """The cards that are shown on a PNG made by `draw_cards`."""
    from PIL import Image

    table = Image.open(BytesIO(png), formats=["PNG"])
    # All 52 cards: comparing whole pictures needs no reading of signs.
    known = {_card(*card, pixels).tobytes(): card for card in product(RANKS, SUITS)}
    cards = []
    for number in range(table.width // ((WIDTH + GAP) * pixels)):
        left, top = _left(number) * pixels, GAP * pixels
        box = (left, top, left + WIDTH * pixels, top + HEIGHT * pixels)
        cards.append(known[table.crop(box).tobytes()])
    return cards


def _left(number: int) -> int:
    return GAP + number * (WIDTH + GAP)


@lru_cache(maxsize=1024)
def _card(rank: str, suit: str, pixels: int) -> "Image":
    from PIL import Image

    card = Image.new("RGB", (WIDTH, HEIGHT), PAPER)
    ink = RED if suit in ("hearts", "diamonds") else BLACK
    for number, sign in enumerate(rank):
        _print(card, sign, (2 + 4 * number, 2), ink)
    _print(card, suit, (4, 11), ink)
    # Nearest: every dot stays one colour, so that read_cards can compare bytes.
    return card.resize((WIDTH * pixels, HEIGHT * pixels), Image.Resampling.NEAREST)


def _print(
    card: "Image", sign: str, place: tuple[int, int], ink: tuple[int, int, int]
) -> None:
    left, top = place
    for down, row in enumerate(GLYPHS[sign].split()):
        for right, dot in enumerate(row):
            if dot == "1":
                card.putpixel((left + right, top + down), ink)
