"""The expert that searches: it knows only the pages it has seen, like its pupil.

It searches for the wanted words and opens hits that may fit. It goes back where an
option is lacking or the price too high, reads the features where the title leaves
something open, chooses the options and buys. Every move follows from the agent's past,
the seed and the habits.
"""

from collections.abc import Sequence

import msgspec

from agentcli.environments.protocol import FINISHED, Advice, Context
from agentcli.records.files import derive_seed
from agentcli.records.section import Share
from agentcli.worlds.generated import chance
from agentcli.worlds.webshop import pages
from agentcli.worlds.webshop.tutor.compact import open_hits
from agentcli.worlds.webshop.tutor.knowledge import Item, ShopKnowledge

MOST_MISSING = 3
"""Wanted words that a title may lack while the features may still have them."""
PAGES_READ = 2
"""Pages of results that are looked at before the expert settles for less."""


class WebshopHabits(msgspec.Struct, kw_only=True, frozen=True):
    """The faults that the expert has on purpose: headroom for learning.

    Shares of episodes. Each is also a field of `demos`.
    """

    forget: Share = 0.0
    """Share of episodes in which the last wanted option is not chosen."""
    overlook: Share = 0.0
    """Share of episodes in which the first hit is bought, whatever it costs or lacks."""
    wander: Share = 1.0
    """Share of episodes that look at hits in an order of their own; the others begin
    with the first of those that fit.
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
        self.forgets = chance(seed, "forget") < habits.forget
        self.overlooks = chance(seed, "overlook") < habits.overlook
        self.wanders = chance(seed, "wander") < habits.wander

    def move(self) -> Advice:
        """The next move, by the page that is open."""
        known = self.known
        if known.page.kind == "results":
            return self._open()
        if known.item is None:
            return Advice("explore", "search", f"search[{' '.join(self.wish.words)}]")
        if known.page.kind == "sub":
            tag = "explore" if self._is_refused(known.item) else "think"
            return Advice(tag, "go back", pages.click(pages.PREVIOUS))
        return self._buy_or_leave(known.item)

    def _open(self) -> Advice:
        """Opens a hit, turns the page, or settles for one that was refused."""
        # In several copies, those that another copy opens are left out of the list.
        hits = [hit for hit in open_hits(self.known) if self._is_possible(hit)]
        if not self.overlooks:
            hits = [hit for hit in hits if self._is_promising(hit)]
            hits.sort(key=self._preference)
        if hits:
            return Advice("explore", "open", pages.click(hits[0].asin))
        if max(self.known.pages_read) < PAGES_READ:
            return Advice("explore", "next page", pages.click(pages.NEXT))
        rest = min(self.known.hits, key=self._regret, default=None)
        if rest is None:
            return Advice("think", FINISHED, pages.click(pages.BACK))
        return Advice("explore", "settle", pages.click(rest.asin))

    def _is_possible(self, hit: Item) -> bool:
        return pages.click(hit.asin) in self.possible

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
        """The wanted values that a product does not have."""
        wanted = (value for _, value in self.wish.options)
        return [value for value in wanted if value not in item.values]

    def _is_refused(self, item: Item) -> bool:
        """Whether a product is left again. One that is opened twice is settled for."""
        if self.overlooks or item.visits > 1:
            return False
        if item.is_dear(self.wish) or self._lacking(item):
            return True
        return bool(item.missing(self.wish)) and bool(item.read)

    def _buy_or_leave(self, item: Item) -> Advice:
        if self._is_refused(item):
            return Advice("explore", "go back", pages.click(pages.PREVIOUS))
        unsure = item.missing(self.wish) and not item.read
        if unsure and not self.overlooks and item.visits == 1:
            return Advice("explore", "check features", pages.click("features"))
        wanted = self.wish.options
        if self.forgets:
            wanted = wanted[:-1]
        for name, value in wanted:
            if value in item.values and value not in self.known.chosen:
                return Advice("think", f"choose {name}", pages.click(value))
        return Advice("think", "buy", pages.click(pages.BUY))
