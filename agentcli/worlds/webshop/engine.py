"""One shopping trip at a time: searches and clicks until something is bought."""

from collections.abc import Callable
from typing import Literal

from agentcli.environments.protocol import Observation, Start
from agentcli.errors import EngineError
from agentcli.records.calls import read_call
from agentcli.records.types import Task
from agentcli.worlds.webshop import pages
from agentcli.worlds.webshop.catalogue import LONGEST_QUERY, Catalogue
from agentcli.worlds.webshop.goals import ShopGoal, matches, reward_of
from agentcli.worlds.webshop.pages import PER_PAGE, Visit
from agentcli.worlds.webshop.products import Product, color_of


def plan(catalogue: Catalogue, goal: ShopGoal, visit: Visit) -> list[str]:
    """Actions that end with reward 1. Raises EngineError when there are none."""
    wanted = goal.product
    choice = choice_of(goal)
    if visit.page == "done" or reward_of(goal, wanted, choice.values()) < 1:
        raise EngineError("no purchase of the wanted product is worth 1 from here")
    at_it = visit.item >= 0 and catalogue.products[visit.item].asin == wanted.asin
    way = [] if at_it else _way(catalogue, wanted, visit)
    # Options can be clicked on the page of the product only.
    if at_it and visit.page == "sub":
        way = [pages.click(pages.PREVIOUS)]
    # What is chosen already need not be clicked again.
    chosen = dict(visit.chosen) if at_it else {}
    for name, value in choice.items():
        if chosen.get(name) != value:
            way.append(pages.click(value))
    return [*way, pages.click(pages.BUY)]


def choice_of(goal: ShopGoal) -> dict[str, str]:
    """The values of the wanted product's options that match the goal, by name."""
    choice = {}
    for wanted in goal.options:
        for name, values in goal.product.options.items():
            value = _best(values, wanted, name)
            if value is not None and name not in choice:
                choice[name] = value
                break
    return choice


def _best(values: tuple[str, ...], wanted: str, name: str) -> str | None:
    """The value named in the goal, or one that the reward function accepts for it."""
    for value in values:
        if wanted in (value, f"{name} {value}"):
            return value
    for value in values:
        if matches(color_of(value), wanted):
            return value
    return None


def _way(catalogue: Catalogue, wanted: Product, visit: Visit) -> list[str]:
    """Actions that lead to the product's page."""
    place = None
    if visit.page == "results":
        place = _rank(catalogue, visit.keywords, wanted)
    if place is not None:
        return [*_turns(visit.number, place), pages.click(wanted.asin.lower())]
    # The title finds nearly every product, the whole text of it the rest.
    for text in (wanted.title.lower(), wanted.indexed_text):
        query = " ".join(text.split()[:LONGEST_QUERY])
        place = _rank(catalogue, query, wanted)
        if place is not None:
            turns = _turns(1, place)
            return [f"search[{query}]", *turns, pages.click(wanted.asin.lower())]
    raise EngineError(f"no search shows the wanted product {wanted.asin}")


def _rank(catalogue: Catalogue, query: str, wanted: Product) -> int | None:
    """The product's place among the hits of a query."""
    for rank, place in enumerate(catalogue.search(query)):
        if catalogue.products[place].asin == wanted.asin:
            return rank
    return None


def _turns(number: int, rank: int) -> list[str]:
    """Clicks from page `number` of the results to the one that shows a hit."""
    pages_on = rank // pages.PER_PAGE + 1 - number
    link = pages.NEXT if pages_on > 0 else pages.PREVIOUS
    return [pages.click(link)] * abs(pages_on)


START = Visit()


class WebshopEngine:
    """An Engine that is Forkable and Solvable."""

    def __init__(self, catalogue: Catalogue, locate: Callable[[Task], int]) -> None:
        self._catalogue = catalogue
        self._locate = locate

    def start(self, task: Task) -> Start:
        """Opens a task. Raises DataError for a task of other settings."""
        self.goal: ShopGoal = self._catalogue.goal(self._locate(task))
        self.visit = START
        return Start(instruction=self.goal.instruction, observation=self._observe())

    def step(self, action: str) -> Observation:
        """Searches or clicks. What is neither, or clicks on nothing, is not accepted.

        As in WebShop a search is possible on every page.
        """
        before = self.visit
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
            self.visit = plain._replace(accepted=False)
        else:
            self.visit = after._replace(looked=after == plain)
        return self._observe()

    def snapshot(self) -> Visit:
        return self.visit

    def restore(self, snapshot: Visit) -> Observation:
        """Goes back to a page."""
        self.visit = snapshot
        return self._observe()

    def plan(self) -> list[str]:
        """Actions that end with reward 1. Raises EngineError when there are none."""
        return plan(self._catalogue, self.goal, self.visit)

    def product(self) -> Product:
        return self._catalogue.products[self.visit.item]

    def _results(self) -> tuple[int, ...]:
        """The places of the products on this page of results."""
        end = self.visit.number * PER_PAGE
        return self._catalogue.search(self.visit.keywords)[end - PER_PAGE : end]

    def _clicked(self, text: str) -> Visit | None:
        """The page behind a link, a button or an option; None where there is none."""
        visit = self.visit._replace(accepted=True, looked=False)
        if visit.page == "search":
            return None
        if visit.page == "results":
            return self._clicked_result(visit, text)
        if visit.page == "item" and (chosen := self._choice(text)) is not None:
            return visit._replace(chosen=chosen)
        if text == pages.BACK:
            return START
        if text == pages.PREVIOUS and visit.page == "sub":
            return visit._replace(page="item", sub="")
        if text == pages.PREVIOUS:
            return Visit("results", visit.keywords, visit.number)
        if visit.page == "item" and text == pages.BUY:
            return visit._replace(page="done")
        if visit.page == "item" and text in pages.SUB_PAGES:
            return visit._replace(page="sub", sub=text)
        return None

    def _clicked_result(self, visit: Visit, text: str) -> Visit | None:
        if text == pages.BACK:
            return START
        # As in WebShop there is always a next page, even an empty one.
        if text == pages.NEXT:
            return visit._replace(number=visit.number + 1)
        if text == pages.PREVIOUS and visit.number > 1:
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
                chosen = {**dict(self.visit.chosen), name: text}
                return tuple(sorted(chosen.items()))
        return None

    def _observe(self) -> Observation:
        visit = self.visit
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
            state=repr(visit[:6]),
            canonical=f"{text} clicked: [{clicked}]" if clicked else text,
            accepted=visit.accepted,
            looked=visit.looked,
            reward=reward,
            end=end,
        )

    def _text(self, reward: float) -> str:
        visit = self.visit
        if visit.page == "search":
            return pages.text_of(["Search"])
        if visit.page == "results":
            total = len(self._catalogue.search(visit.keywords))
            shown = [self._catalogue.products[place] for place in self._results()]
            return pages.results_page(shown, visit.number, total)
        product = self.product()
        if visit.page == "item":
            return pages.item_page(product)
        if visit.page == "sub":
            return pages.sub_page(product, visit.sub)
        return pages.done_page(product.asin, dict(visit.chosen), reward)

    def _actions(self) -> tuple[str, ...]:
        visit = self.visit
        if visit.page == "search":
            return (pages.SEARCH_HINT,)
        if visit.page == "done":
            return ()
        links = [pages.BACK]
        if visit.page == "results":
            links += [pages.PREVIOUS] if visit.number > 1 else []
            links.append(pages.NEXT)
            products = [self._catalogue.products[place] for place in self._results()]
            links += [product.asin.lower() for product in products]
        else:
            links.append(pages.PREVIOUS)
        if visit.page == "item":
            for values in self.product().options.values():
                links += values
            links += [*pages.SUB_PAGES, pages.BUY]
        return tuple(map(pages.click, dict.fromkeys(links)))
