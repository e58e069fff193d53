"""Playing cards as a picture, and such a picture read back.

A card is drawn from dots, so that no font decides what it looks like.
"""

from collections.abc import Sequence
from functools import lru_cache
from io import BytesIO
from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

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
    known = {_card(*card, pixels).tobytes(): card for card in product(RANKS, SUITS)}
    cards = []
    for number in range(table.width // ((WIDTH + GAP) * pixels)):
        left, top = _left(number) * pixels, GAP * pixels
        box = (left, top, left + WIDTH * pixels, top + HEIGHT * pixels)
        cards.append(known[table.crop(box).tobytes()])
    return cards


def _left(number: int) -> int:
    """The dots to the left of a card."""
    return GAP + number * (WIDTH + GAP)


@lru_cache(maxsize=1024)
def _card(rank: str, suit: str, pixels: int) -> "Image":
    from PIL import Image

    card = Image.new("RGB", (WIDTH, HEIGHT), PAPER)
    ink = RED if suit in ("hearts", "diamonds") else BLACK
    for number, sign in enumerate(rank):
        _print(card, sign, (2 + 4 * number, 2), ink)
    _print(card, suit, (4, 11), ink)
    return card.resize((WIDTH * pixels, HEIGHT * pixels), Image.Resampling.NEAREST)


def _print(
    card: "Image", sign: str, place: tuple[int, int], ink: tuple[int, int, int]
) -> None:
    """Prints the dots of a sign."""
    left, top = place
    for down, row in enumerate(GLYPHS[sign].split()):
        for right, dot in enumerate(row):
            if dot == "1":
                card.putpixel((left + right, top + down), ink)
