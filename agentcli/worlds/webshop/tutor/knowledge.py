"""What an agent can know of the shop from its own past: the wish, and what it saw.

Everything is read off the instruction and the texts of pages, so it also works where
somebody else's pages come first, as in several copies of the world at once.
"""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from agentcli.environments.protocol import Context
from agentcli.records.calls import read_call
from agentcli.worlds.webshop.pages import BUY, PREVIOUS, SUB_PAGES
from agentcli.worlds.webshop.reward import FUNCTION_WORDS

PIECES_BEHIND_OPTIONS = 7
"""Title, price, rating and four buttons end the page of a product."""
_LIMIT = re.compile(r",? and price lower than ([\d.]+) dollars$")
_OPTIONS = re.compile(r"^([^:]*) with ([^:]{1,40}: .*)$")
_OPENING = re.compile(r"^(find me|i am looking for|i need|i want) ", re.IGNORECASE)
_DOLLARS = re.compile(r"\$([\d.]+)")
_WORD = re.compile(r"\w[\w'-]*")


class Wish(NamedTuple):
    """An instruction, taken apart."""

    words: tuple[str, ...]
    """What is wanted, e.g. rubber sole loafers arch support."""
    options: tuple[tuple[str, str], ...]
    """Name and value."""
    limit: float | None
    """Dollars that the price must not exceed."""


@lru_cache(maxsize=4096)
def wish_of(instruction: str) -> Wish:
    """The parts of an instruction."""
    limit = None
    rest = instruction.strip()
    if (price := _LIMIT.search(rest)) is not None:
        limit = float(price[1])
        rest = rest[: price.start()]
    options = []
    if (asked := _OPTIONS.match(rest)) is not None:
        rest = asked[1]
        for pair in asked[2].split(", and "):
            name, _, value = pair.partition(": ")
            options.append((name.strip().lower(), value.strip().lower()))
    words = []
    for word in _WORD.findall(_OPENING.sub("", rest).lower()):
        if word not in FUNCTION_WORDS and word not in words:
            words.append(word)
    return Wish(tuple(words), tuple(options), limit)


@dataclass
class Item:
    """A product as far as it was seen."""

    asin: str
    title: str
    prices: tuple[float, ...]
    texts: str
    """All that was read about it, lower case."""
    values: tuple[str, ...] = ()
    """Names and values of its options, once its page was seen."""
    visits: int = 0
    """Times that its page was opened."""
    read: set[str] = field(default_factory=set)
    """Sub-pages that were read."""

    def missing(self, wish: Wish) -> list[str]:
        """The wanted words that nothing read so far mentions."""
        known = set(_WORD.findall(self.texts))
        return [word for word in wish.words if word not in known]

    def is_dear(self, wish: Wish) -> bool:
        """Whether it costs more than is allowed, as far as the page says."""
        if wish.limit is None or not self.prices:
            return False
        return sum(self.prices) / len(self.prices) > wish.limit


class Page(NamedTuple):
    """A page as its text shows it."""

    kind: str
    """search, results, item, sub or other."""
    pieces: tuple[str, ...] = ()
    number: int = 0
    """Of a page of results."""


@lru_cache(maxsize=65536)
def read_page(text: str) -> Page:
    """Reads a page's text."""
    pieces = tuple(piece[1:-1] for piece in text.split(" [SEP] "))
    if pieces == ("Search",):
        return Page("search", pieces)
    if len(pieces) < 2 or pieces[0] != "Back to Search":
        return Page("other", pieces)
    if pieces[1].startswith("Page "):
        return Page("results", pieces, int(pieces[1].split()[1]))
    if pieces[-1] == "Buy Now" and len(pieces) > PIECES_BEHIND_OPTIONS:
        return Page("item", pieces)
    return Page("sub", pieces)


class ShopKnowledge:
    """All that was seen, and where the agent is."""

    def __init__(self, context: Context) -> None:
        self.wish = wish_of(context.instruction)
        self.items: dict[str, Item] = {}
        """By title."""
        self.page = Page("search")
        self.hits: list[Item] = []
        """Of the last page of results, in its order."""
        self.pages_read: set[int] = set()
        """Numbers of the pages of results that were seen."""
        self.item: Item | None = None
        """The product whose page, or sub-page, is open."""
        for text, action in _with_actions(context):
            self._learn(read_page(text), action)
        self.chosen = self._choices(context)

    def _learn(self, page: Page, action: str) -> None:
        if page.kind == "other":
            return
        before = self.page
        self.page = page
        if page.kind == "results":
            self._learn_results(page)
        elif page.kind == "item":
            title = page.pieces[-PIECES_BEHIND_OPTIONS]
            item = self._item("", title, page.pieces[-PIECES_BEHIND_OPTIONS + 1])
            item.values = page.pieces[2:-PIECES_BEHIND_OPTIONS]
            item.visits += before.kind == "results"
            self.item = item
        elif page.kind == "sub" and self.item is not None:
            self.item.texts += " " + " ".join(page.pieces).lower()
            self.item.read.add(action)

    def _learn_results(self, page: Page) -> None:
        self.pages_read.add(page.number)
        self.item = None
        first = page.pieces.index("Next >") + 1
        self.hits = []
        for place in range(first, len(page.pieces) - 2, 3):
            asin, title, price = page.pieces[place : place + 3]
            self.hits.append(self._item(asin.lower(), title, price))

    def _item(self, asin: str, title: str, price: str) -> Item:
        item = self.items.get(title)
        if item is None:
            prices = tuple(map(float, _DOLLARS.findall(price)))
            item = self.items[title] = Item(asin, title, prices, title.lower())
        item.asin = item.asin or asin
        return item

    def _choices(self, context: Context) -> tuple[str, ...]:
        """The values that were clicked since the product's page was opened."""
        chosen: list[str] = []
        if self.item is None:
            return ()
        for action in reversed(context.actions):
            text = clicked(action)
            if text in self.item.values:
                chosen.append(text)
            elif text not in (*SUB_PAGES, PREVIOUS, BUY):
                break
        return tuple(chosen)


def clicked(action: str) -> str:
    """What an action clicks on; "" where it clicks on nothing."""
    call = read_call(action)
    return call.argument.lower() if call and call.name == "click" else ""


def _with_actions(context: Context) -> list[tuple[str, str]]:
    """Every text with what was clicked to see it.

    Texts of other copies come first; their actions are not known.
    """
    texts = context.observations
    actions = [clicked(action) for action in context.actions]
    unknown = [""] * (len(texts) - len(actions))
    return list(zip(texts, [*unknown, *actions], strict=True))
