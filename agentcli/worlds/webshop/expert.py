"""The expert that knows the goal: it searches for the product and buys it rightly."""

from agentcli.errors import EngineError
from agentcli.worlds.webshop import pages
from agentcli.worlds.webshop.catalogue import LONGEST_QUERY, Catalogue
from agentcli.worlds.webshop.goals import ShopGoal
from agentcli.worlds.webshop.pages import Visit
from agentcli.worlds.webshop.products import Product, color_of
from agentcli.worlds.webshop.reward import matches, reward_of


def plan(catalogue: Catalogue, goal: ShopGoal, visit: Visit) -> list[str]:
    """Actions that end with reward 1. Raises EngineError when there are none."""
    wanted = goal.product
    choice = choice_of(goal)
    if visit.page == "done" or reward_of(goal, wanted, choice.values()) < 1:
        raise EngineError("no purchase of the wanted product is worth 1 from here")
    at_it = visit.item >= 0 and catalogue.products[visit.item].asin == wanted.asin
    way = [] if at_it else _way(catalogue, wanted, visit)
    if at_it and visit.page == "sub":
        way = [pages.click(pages.PREVIOUS)]
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
    """The value that was meant, else one that the reward takes for it."""
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
