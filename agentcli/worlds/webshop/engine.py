"""The shop in play: its pages as texts, what a click does, and the expert's plan.

Pages have the form that RewardFlow (Figure 16) prints. Every piece of a page stands in
quotes, and [SEP] between them. The instruction, which WebShop repeats on every page, is
left out: it is the task.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from agentcli.environments.protocol import Observation, Start
from agentcli.errors import EngineError
from agentcli.records.calls import read_call
from agentcli.records.types import Task
from agentcli.worlds.generated import StateEngine
from agentcli.worlds.webshop.catalogue import LONGEST_QUERY, Catalogue
from agentcli.worlds.webshop.goals import ShopGoal, matches, reward_of
from agentcli.worlds.webshop.products import Product, color_of

PER_PAGE = 10
BACK, PREVIOUS, NEXT, BUY = "back to search", "< prev", "next >", "buy now"
SUB_PAGES = ("description", "features", "reviews")
SEARCH_HINT = "search[<your query>]"
"""Stands in the list of actions for a search, whose words are free."""


class Visit(NamedTuple):
    """A state, and how the engine took the action that led there."""

    page: Literal["search", "results", "item", "sub", "done"] = "search"
    keywords: str = ""
    number: int = 0
    """Page of the results, from 1."""
    item: int = -1
    """Place of the product that is looked at."""
    chosen: tuple[tuple[str, str], ...] = ()
    """Clicked options, by name."""
    sub: str = ""
    accepted: bool = True
    looked: bool = False


def click(text: str) -> str:
    """The action that clicks on a text."""
    return f"click[{text}]"


def text_of(pieces: Sequence[str]) -> str:
    """A page as one text."""
    return " [SEP] ".join(f"'{piece}'" for piece in pieces)


def results_page(products: Sequence[Product], number: int, total: int) -> str:
    """A page of results. The last one has Next > too, which leads to an empty page."""
    pieces = ["Back to Search", f"Page {number} (Total results: {total})"]
    if number > 1:
        pieces.append("< Prev")
    pieces.append("Next >")
    for product in products:
        pieces += [product.asin, product.title.strip(), product.price_tag]
    return text_of(pieces)


def item_page(product: Product) -> str:
    """The page of a product. What was clicked does not show on it."""
    pieces = ["Back to Search", "< Prev"]
    for name, values in product.options.items():
        pieces += [name, *values]
    pieces += [product.title.strip(), f"Price: {product.price_tag}", "Rating: N.A."]
    return text_of([*pieces, "Description", "Features", "Reviews", "Buy Now"])


def sub_page(product: Product, name: str) -> str:
    """A product's description, features or reviews; there are no reviews."""
    pieces = ["Back to Search", "< Prev"]
    if name == "description":
        pieces.append(product.description.strip())
    elif name == "features":
        pieces += [bullet.strip() for bullet in product.bullets]
    return text_of([piece for piece in pieces if piece])


def done_page(asin: str, options: Mapping[str, str], reward: float) -> str:
    """The last page, as WebShop leaves it: most of what it could say is None."""
    bought = ["Purchased", "asin", asin, "options", json.dumps(options)]
    bought += ["attrs", "None", "category", "None", "query", "None"]
    bought += ["product category", "None"]
    target = ["Target", "asin", "options", "attrs", "price upper", "instruction text"]
    target += ["category", "product category", "query", "Goal", "None"]
    reached = ["Reward", "Your score (min 0.0, max 1.0)", str(reward)]
    thanks = ["Thank you for shopping with us!", "Your code:", "None"]
    thanks.append("(Paste it in your MTurk interface.)")
    return text_of([*thanks, *bought, *target, *reached, "Reward Details", "None"])


def choice_of(goal: ShopGoal) -> dict[str, str]:
    """The values of the wanted product's options that match the goal, by name."""
    choice = {}
    for wanted in goal.options:
        for name, values in goal.product.options.items():
            value = _best(values, wanted, name)
            # A second value of an option would replace the first when it is clicked.
            if value is not None and name not in choice:
                choice[name] = value
                break
    return choice


def _best(values: tuple[str, ...], wanted: str, name: str) -> str | None:
    """The value named in the goal, or one that the reward function accepts for it."""
    for value in values:
        # First the exact name: one that is only alike may stand before it.
        if wanted in (value, f"{name} {value}"):
            return value
    for value in values:
        if matches(color_of(value), wanted):
            return value
    return None


def _turns(number: int, rank: int) -> list[str]:
    """Clicks from page `number` of the results to the one that shows a hit."""
    pages_on = rank // PER_PAGE + 1 - number
    link = NEXT if pages_on > 0 else PREVIOUS
    return [click(link)] * abs(pages_on)


START = Visit()


class WebshopEngine(StateEngine[Visit]):
    """One goal at a time; it is Solvable."""

    def __init__(self, catalogue: Catalogue, locate: Callable[[Task], int]) -> None:
        self._catalogue = catalogue
        self._locate = locate

    def start(self, task: Task) -> Start:
        """Opens a task. Raises DataError for a task of other settings."""
        self.goal: ShopGoal = self._catalogue.goal(self._locate(task))
        self._now = START
        return Start(instruction=self.goal.instruction, observation=self._observe())

    def step(self, action: str) -> Observation:
        """Searches or clicks. What is neither, or clicks on nothing, is not accepted.

        As in WebShop a search is possible on every page.
        """
        before = self._now
        call = read_call(action)
        after = None
        if call is not None and before.page != "done":
            argument = call.argument.lower()
            if call.name == "search":
                after = Visit("results", argument, 1)
            elif call.name == "click":
                after = self._clicked(argument)
        # How a page was reached is part of a Visit, and not of the page: a click that
        # leads to the page itself has only looked.
        plain = before._replace(accepted=True, looked=False)
        if after is None:
            self._now = plain._replace(accepted=False)
        else:
            self._now = after._replace(looked=after == plain)
        return self._observe()

    def plan(self) -> list[str]:
        """Actions that end with reward 1. Raises EngineError when there are none."""
        visit = self._now
        wanted = self.goal.product
        choice = choice_of(self.goal)
        if visit.page == "done" or reward_of(self.goal, wanted, choice.values()) < 1:
            raise EngineError("no purchase of the wanted product is worth 1 from here")
        at_it = visit.item >= 0 and self.product().asin == wanted.asin
        way = [] if at_it else self._way(wanted)
        # Options can be clicked on the page of the product only.
        if at_it and visit.page == "sub":
            way = [click(PREVIOUS)]
        # What is chosen already need not be clicked again.
        chosen = dict(visit.chosen) if at_it else {}
        for name, value in choice.items():
            if chosen.get(name) != value:
                way.append(click(value))
        return [*way, click(BUY)]

    def _way(self, wanted: Product) -> list[str]:
        place = None
        if self._now.page == "results":
            place = self._rank(self._now.keywords, wanted)
        if place is not None:
            turns = _turns(self._now.number, place)
            return [*turns, click(wanted.asin.lower())]
        # The title finds nearly every product, the whole text of it the rest.
        for text in (wanted.title.lower(), wanted.indexed_text):
            query = " ".join(text.split()[:LONGEST_QUERY])
            place = self._rank(query, wanted)
            if place is not None:
                turns = _turns(1, place)
                return [f"search[{query}]", *turns, click(wanted.asin.lower())]
        raise EngineError(f"no search shows the wanted product {wanted.asin}")

    def _rank(self, query: str, wanted: Product) -> int | None:
        for rank, place in enumerate(self._catalogue.search(query)):
            if self._catalogue.products[place].asin == wanted.asin:
                return rank
        return None

    def product(self) -> Product:
        return self._catalogue.products[self._now.item]

    def _results(self) -> tuple[int, ...]:
        end = self._now.number * PER_PAGE
        return self._catalogue.search(self._now.keywords)[end - PER_PAGE : end]

    def _clicked(self, text: str) -> Visit | None:
        """The page behind a link, a button or an option; None where there is none."""
        visit = self._now._replace(accepted=True, looked=False)
        if visit.page == "search":
            return None
        if visit.page == "results":
            return self._clicked_result(visit, text)
        if visit.page == "item" and (chosen := self._choice(text)) is not None:
            return visit._replace(chosen=chosen)
        if text == BACK:
            return START
        if text == PREVIOUS and visit.page == "sub":
            return visit._replace(page="item", sub="")
        if text == PREVIOUS:
            return Visit("results", visit.keywords, visit.number)
        if visit.page == "item" and text == BUY:
            return visit._replace(page="done")
        if visit.page == "item" and text in SUB_PAGES:
            return visit._replace(page="sub", sub=text)
        return None

    def _clicked_result(self, visit: Visit, text: str) -> Visit | None:
        if text == BACK:
            return START
        # As in WebShop there is always a next page, even an empty one.
        if text == NEXT:
            return visit._replace(number=visit.number + 1)
        if text == PREVIOUS and visit.number > 1:
            return visit._replace(number=visit.number - 1)
        for place in self._results():
            if self._catalogue.products[place].asin.lower() == text:
                return visit._replace(page="item", item=place)
        return None

    def _choice(self, text: str) -> tuple[tuple[str, str], ...] | None:
        """The chosen options after a click on a value; None if it is no value."""
        # A value that two options share counts for the last one, as in WebShop.
        for name, values in reversed(self.product().options.items()):
            if text in values:
                chosen = {**dict(self._now.chosen), name: text}
                # Sorted, so that the order of the clicks makes no other state.
                return tuple(sorted(chosen.items()))
        return None

    def _observe(self) -> Observation:
        visit = self._now
        reward = 0.0
        end: Literal["success", "failure"] | None = None
        if visit.page == "done":
            values = [value for _, value in visit.chosen]
            reward = reward_of(self.goal, self.product(), values)
            end = "success" if reward == 1 else "failure"
        text = self._text(reward)
        clicked = ", ".join(value for _, value in visit.chosen)
        return Observation(
            text=text,
            actions=self._actions(),
            # Without `accepted` and `looked`: they tell of the action, not of the
            # state.
            state=repr(visit[:6]),
            # A product's page does not show the clicks, on which the reward depends.
            canonical=f"{text} clicked: [{clicked}]" if clicked else text,
            accepted=visit.accepted,
            looked=visit.looked,
            reward=reward,
            end=end,
        )

    def _text(self, reward: float) -> str:
        visit = self._now
        if visit.page == "search":
            return text_of(["Search"])
        if visit.page == "results":
            total = len(self._catalogue.search(visit.keywords))
            shown = [self._catalogue.products[place] for place in self._results()]
            return results_page(shown, visit.number, total)
        product = self.product()
        if visit.page == "item":
            return item_page(product)
        if visit.page == "sub":
            return sub_page(product, visit.sub)
        return done_page(product.asin, dict(visit.chosen), reward)

    def _actions(self) -> tuple[str, ...]:
        visit = self._now
        if visit.page == "search":
            return (SEARCH_HINT,)
        if visit.page == "done":
            return ()
        links = [BACK]
        if visit.page == "results":
            links += [PREVIOUS] if visit.number > 1 else []
            links.append(NEXT)
            products = [self._catalogue.products[place] for place in self._results()]
            links += [product.asin.lower() for product in products]
        else:
            links.append(PREVIOUS)
        if visit.page == "item":
            for values in self.product().options.values():
                links += values
            links += [*SUB_PAGES, BUY]
        # Two options may share a value.
        return tuple(map(click, dict.fromkeys(links)))
