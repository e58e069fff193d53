"""WebShop for policies from scratch: what was seen, a short prompt, an expert.

Everything is read off the instruction and the texts of pages, so it also works where
other pages come first, as in several copies of the world at once. The expert knows only
the pages it has seen: it searches for the wanted words, opens hits that may fit, goes
back where an option is lacking or the price is too high, reads the features where the
title leaves something open, chooses the options and buys. Every move follows from the
agent's past, the seed and the habits.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from agentcli.environments.protocol import FINISHED, Advice, Context
from agentcli.records.calls import read_call
from agentcli.records.files import derive_seed
from agentcli.worlds.generated import Habits, indulges
from agentcli.worlds.webshop.engine import BACK, BUY, NEXT, PREVIOUS, click
from agentcli.worlds.webshop.generator import KINDS
from agentcli.worlds.webshop.goals import FUNCTION_WORDS
from agentcli.worlds.webshop.products import Product

PIECES_BEHIND_OPTIONS = 7
"""Title, price, rating and four buttons end the page of a product."""
_LIMIT = re.compile(r",? and price lower than ([\d.]+) dollars$")
_OPTIONS = re.compile(r"^([^:]*) with ([^:]{1,40}: .*)$")
_OPENING = re.compile(r"^(find me|i am looking for|i need|i want) ", re.IGNORECASE)
_DOLLARS = re.compile(r"\$([\d.]+)")
_WORD = re.compile(r"\w[\w'-]*")
_OPTION_NAMES = {name for kind in KINDS.values() for name in kind.options}


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
    """Times that its page was opened, in any copy."""
    own_visits: int = 0
    """Times that this copy opened its page."""
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
        # A page shows a range; what is paid inside it is not known before the purchase.
        return sum(self.prices) / len(self.prices) > wish.limit

    def options(self, wish: Wish) -> dict[str, str]:
        """Each value with its option's name; a shared one counts for the last."""
        names = _OPTION_NAMES.union(dict(wish.options))
        options = {}
        name = ""
        for piece in self.values:
            if piece in names:
                name = piece
            else:
                options[piece] = name
        return options


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
        _, number, *_ = pieces[1].split()
        return Page("results", pieces, int(number))
    if pieces[-1] == "Buy Now" and len(pieces) > PIECES_BEHIND_OPTIONS:
        return Page("item", pieces)
    return Page("sub", pieces)


class ShopKnowledge:
    """All that was seen, and where the agent is."""

    def __init__(self, context: Context) -> None:
        self.wish = wish_of(context.instruction)
        self.items: dict[str, Item] = {}
        """By asin; two products may have one title."""
        self.page = Page("search")
        self.hits: list[Item] = []
        """Of the last page of results, in its order."""
        self.pages_read: set[int] = set()
        """Numbers of the pages of results that were seen."""
        self.item: Item | None = None
        """The product whose page, or sub-page, is open."""
        self.chosen: set[str] = set()
        """The wanted values that are chosen of the product whose page is open."""
        others = len(context.observations) - len(context.own)
        for place, (text, action) in enumerate(_with_actions(context)):
            self._learn(read_page(text), action, own=place >= others)

    def _learn(self, page: Page, action: str, *, own: bool) -> None:
        if page.kind == "other":
            return
        before = self.page
        self.page = page
        if page.kind in ("search", "results"):
            self.item, self.chosen = None, set()
        if page.kind == "results":
            self._learn_results(page)
        elif page.kind == "item":
            item = self._shown(page, action)
            item.values = page.pieces[2:-PIECES_BEHIND_OPTIONS]
            # Coming back from a sub-page, or choosing an option, is no new visit.
            if before.kind == "results":
                item.visits += 1
                item.own_visits += own
            self.item = item
            # On a sub-page a click on a value is refused.
            if before.kind == "item":
                self._choose(item.options(self.wish), action)
        elif page.kind == "sub" and self.item is not None:
            self.item.texts += " " + " ".join(page.pieces).lower()
            self.item.read.add(action)

    def _learn_results(self, page: Page) -> None:
        self.pages_read.add(page.number)
        first = page.pieces.index("Next >") + 1
        self.hits = []
        for place in range(first, len(page.pieces) - 2, 3):
            asin, title, price = page.pieces[place : place + 3]
            self.hits.append(self._item(asin.lower(), title, price))

    def _choose(self, options: dict[str, str], value: str) -> None:
        """Learns from a click: a value that is not wanted replaces the one that is."""
        if value not in options:
            return
        if any(value == wanted for _, wanted in self.wish.options):
            self.chosen.add(value)
            return
        for other in list(self.chosen):
            if options.get(other) == options[value]:
                self.chosen.remove(other)

    def _shown(self, page: Page, asin: str) -> Item:
        """The product of a page, which has its title and not its asin.

        What was clicked says which it is, or the page before.
        """
        title, price = page.pieces[-PIECES_BEHIND_OPTIONS:][:2]
        for item in (self.items.get(asin), self.item, *self.hits):
            if item is not None and item.title == title:
                return item
        return self._item("", title, price)

    def _item(self, asin: str, title: str, price: str) -> Item:
        item = self.items.get(asin)
        if item is None:
            prices = tuple(map(float, _DOLLARS.findall(price)))
            item = self.items[asin] = Item(asin, title, prices, title.lower())
        return item


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


HITS_SHOWN = 5


def compact(context: Context) -> str:
    """One line per kind of information."""
    known = ShopKnowledge(context)
    wish = known.wish
    lines = [f"task {' '.join(wish.words)}"]
    page = known.page
    if page.kind == "results":
        lines.append(f"page results {page.number}")
        lines += [f"{item.asin} {_fit(item, wish)}" for item in open_hits(known)]
    elif known.item is not None and page.kind in ("item", "sub"):
        lines.append(f"page {page.kind} {_fit(known.item, wish)}")
        lines += _standing(known, known.item)
    else:
        lines.append("page search")
    if context.actions and context.actions[-1] == "":
        lines.append("last nothing")
    return "\n".join(lines)


def open_hits(known: ShopKnowledge) -> list[Item]:
    """The hits that were not looked at yet, those that fit best, in the page's order."""
    new = [item for item in known.hits if not item.visits]
    by_fit = sorted(new, key=lambda item: len(item.missing(known.wish)))
    best = by_fit[:HITS_SHOWN]
    return [item for item in new if item in best]


def _fit(item: Item, wish: Wish) -> str:
    """Which wanted words a product lacks, and whether it costs too much."""
    missing = item.missing(wish)
    fit = f"lacks {' '.join(missing)}" if missing else "fits"
    return f"{fit} {'dear' if item.is_dear(wish) else 'cheap'}"


def _standing(known: ShopKnowledge, item: Item) -> list[str]:
    """Each wanted option as it stands, and what was read."""
    lines = []
    for name, value in known.wish.options:
        standing = "here" if value in item.values else "none"
        if value in known.chosen:
            standing = "chosen"
        # A word before a number would be one token with it: "size 8".
        lines.append(f"{value} {name} {standing}")
    if item.read:
        lines.append("features read")
    return lines


MOST_MISSING = 3
"""Wanted words that a title may lack while the features may still have them."""
PAGES_READ = 2
"""Pages of results that are looked at before the expert settles for less."""


class WebshopHabits(Habits, frozen=True):
    """The faults that the expert has on purpose.

    Of episodes, `forget` does not choose the last wanted option, `overlook` buys the
    first hit, whatever it costs or lacks, and `wander` looks at hits in an order of its
    own; the others begin with the first of those that fit.
    """


def advise(context: Context, seed: int, habits: WebshopHabits) -> Advice:
    """The next move."""
    return _NextMove(context, seed, habits).move()


class _NextMove:
    """One decision: what is known, and what follows from it."""

    def __init__(self, context: Context, seed: int, habits: WebshopHabits) -> None:
        self.known = ShopKnowledge(context)
        self.wish = self.known.wish
        self.possible = context.admissible
        self.seed = seed
        self.forgets = indulges(habits, "forget", seed)
        self.overlooks = indulges(habits, "overlook", seed)
        self.wanders = indulges(habits, "wander", seed)

    def move(self) -> Advice:
        """The next move, by the page that is open."""
        known = self.known
        if known.page.kind == "results":
            return self._open()
        if known.item is None:
            return Advice("explore", "search", f"search[{' '.join(self.wish.words)}]")
        if known.page.kind == "sub":
            tag = "explore" if self._is_refused(known.item) else "think"
            return Advice(tag, "go back", click(PREVIOUS))
        return self._buy_or_leave(known.item)

    def _open(self) -> Advice:
        """Opens a hit, turns the page, or settles for one that was refused."""
        # In several copies, those that another copy opens are left out of the list.
        hits = [
            hit for hit in open_hits(self.known) if click(hit.asin) in self.possible
        ]
        if not self.overlooks:
            hits = [hit for hit in hits if self._is_promising(hit)]
            hits.sort(key=self._preference)
        if hits:
            return Advice("explore", "open", click(hits[0].asin))
        if max(self.known.pages_read) < PAGES_READ:
            return Advice("explore", "next page", click(NEXT))
        # Nothing is left to open: the least bad of the last page is taken after all.
        rest = min(self.known.hits, key=self._regret, default=None)
        if rest is None:
            return Advice("think", FINISHED, click(BACK))
        return Advice("explore", "settle", click(rest.asin))

    def _is_promising(self, hit: Item) -> bool:
        missing = hit.missing(self.wish)
        return not hit.is_dear(self.wish) and len(missing) <= MOST_MISSING

    def _preference(self, hit: Item) -> tuple[int, int]:
        """What lacks least comes first, then what the page shows first."""
        missing = len(hit.missing(self.wish))
        return missing, derive_seed(self.seed, hit.asin) if self.wanders else 0

    def _regret(self, hit: Item) -> tuple[bool, int]:
        lacking = len(hit.missing(self.wish)) + len(self._lacking(hit))
        return hit.is_dear(self.wish), lacking

    def _lacking(self, item: Item) -> Sequence[str]:
        wanted = (value for _, value in self.wish.options)
        return [value for value in wanted if value not in item.values]

    def _is_refused(self, item: Item) -> bool:
        """Whether a product is left again. One that is opened twice is settled for."""
        # A visit of another copy settled for nothing.
        if self.overlooks or item.own_visits > 1:
            return False
        if item.is_dear(self.wish) or self._lacking(item):
            return True
        return bool(item.missing(self.wish)) and bool(item.read)

    def _buy_or_leave(self, item: Item) -> Advice:
        if self._is_refused(item):
            return Advice("explore", "go back", click(PREVIOUS))
        unsure = item.missing(self.wish) and not item.read
        if unsure and not self.overlooks and item.own_visits == 1:
            return Advice("explore", "check features", click("features"))
        wanted = self.wish.options
        if self.forgets:
            wanted = wanted[:-1]
        for name, value in wanted:
            if value in item.values and value not in self.known.chosen:
                return Advice("think", f"choose {name}", click(value))
        return Advice("think", "buy", click(BUY))


def names(products: Iterable[Product]) -> list[str]:
    """Actions, asins, values of options, and the generator's kinds and attributes."""
    words = {"click[", "search[", BACK, BUY, NEXT, PREVIOUS}
    for kind in KINDS.values():
        words.update((kind.name, *kind.place.attributes))
    for product in products:
        words.add(product.asin.lower())
        for values in product.options.values():
            words.update(values)
    return sorted(words)
