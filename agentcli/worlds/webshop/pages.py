"""The pages of the shop as texts, in the form that RewardFlow (Figure 16) prints.

Every piece of a page stands in quotes, and [SEP] between them. The instruction, which
WebShop repeats on every page, is left out: it is the task.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from agentcli.worlds.webshop.products import Product

PER_PAGE = 10
BACK, PREVIOUS, NEXT, BUY = "back to search", "< prev", "next >", "buy now"
SUB_PAGES = ("description", "features", "reviews")
SEARCH_HINT = "search[<your query>]"
"""Stands in the list of actions for a search, whose words are free."""


class Visit(NamedTuple):
    """All that a state is, and how the action that led there was taken."""

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


def results_page(
    products: Sequence[Product],
    number: int,
    total: int,
) -> str:
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
