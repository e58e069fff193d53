"""Goals, and the reward of a purchase as WebShop computes it (Yao et al. 2022, section 3).

A synthetic goal asks for one combination of a product's options, a human one for what a
person wrote. Where WebShop draws a price without a seed, the draw follows from the asin
here, so that a goal is the same in every process.

    reward = r_type * (attributes hit + options hit + price fits)
                    / (attributes wanted + options wanted + 1)

Texts match where their token set ratio is above 85. One thing differs: WebShop asks a
language model of spaCy for the words of a title that are nouns. Here hyphens and
apostrophes part words, and every word of letters alone counts that is not one of a short
list of function words.
"""

import itertools
import math
import random
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

from agentcli.records.files import derive_seed
from agentcli.worlds.webshop.products import COLORS, Product, color_of

PRICE_STEPS = tuple(10.0 * step for step in range(1, 100))
"""Upper limits that a goal may name, in dollars."""
NO_LIMIT = 1_000_000.0


class ShopGoal(msgspec.Struct, frozen=True, kw_only=True):
    """One task."""

    product: Product
    """The product it was made from, whose type is wanted."""
    instruction: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    """The wanted options as the reward compares them."""
    price_upper: float


def goals_of(product: Product, kind: str) -> int:
    """Number of goals that a product gives."""
    if kind == "human":
        return sum(bool(one.instruction_attributes) for one in product.human)
    if product.instruction is None or not product.instruction_attributes:
        return 0
    return math.prod(len(values) for values in product.options.values())


def goal_of(product: Product, kind: str, number: int) -> ShopGoal:
    """The goal `number` of those that a product gives."""
    if kind == "human":
        return _human(product, number)
    return _synthetic(product, number)


def _synthetic(product: Product, number: int) -> ShopGoal:
    # The number counts combinations as itertools.product does, the last name fastest.
    names = sorted(product.options)
    combinations = itertools.product(*(product.options[name] for name in names))
    values = next(itertools.islice(combinations, number, None))
    pairs = list(zip(names, values, strict=True))
    limit, price_text = _price_limit(product, 0)
    with_options = ", and ".join(f"{name}: {value}" for name, value in pairs)
    if with_options:
        with_options = f" with {with_options}"
    return ShopGoal(
        product=product,
        instruction=f"{product.instruction}{with_options}{price_text}",
        attributes=product.instruction_attributes,
        options=tuple(_compared(name, value) for name, value in pairs),
        price_upper=limit,
    )


def _compared(name: str, value: str) -> str:
    """A synthetic option as WebShop compares it: a pair, unless it is just a color."""
    for color in COLORS:
        if color in (name, value):
            return color
    return f"{name} {value}"


def _human(product: Product, number: int) -> ShopGoal:
    asked = [one for one in product.human if one.instruction_attributes]
    one = asked[number]
    limit, price_text = _price_limit(product, number)
    return ShopGoal(
        product=product,
        instruction=one.instruction.strip(".") + price_text,
        attributes=one.instruction_attributes,
        options=tuple(color_of(option) for option in one.instruction_options),
        price_upper=limit,
    )


def _price_limit(product: Product, number: int) -> tuple[float, str]:
    """The larger of two of the next four multiples of ten, and its words."""
    # As WebShop does, but seeded: it draws two limits above the price, and takes the
    # larger. A price above all steps has no limit.
    above = [step for step in PRICE_STEPS if step > product.price][:4]
    if len(above) < 2:
        return NO_LIMIT, ""
    rng = random.Random(derive_seed("webshop", "limit", product.asin, number))
    limit = max(rng.sample(above, 2))
    return limit, f", and price lower than {limit:.2f} dollars"


MATCH = 85
"""The rounded ratio that a match exceeds."""

_FUNCTION_WORDS = """
a an and are as at by for from in into is it its of on or our that the their this to
under up with without your you s
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
_WORD = re.compile(r"[^\W_]+")


def reward_of(goal: ShopGoal, bought: Product, chosen: Iterable[str]) -> float:
    """The reward for buying a product with these options, from 0 to 1."""
    hits = attribute_hits(goal.attributes, bought)
    hits += option_hits(goal.options, chosen)
    hits += bought.price <= goal.price_upper
    wanted = len(goal.attributes) + len(goal.options) + 1
    return type_reward(goal.product, bought) * (hits / wanted)


def type_reward(wanted: Product, bought: Product) -> float:
    """1, 0.5, 0.1 or 0: how far the product is of the wanted type."""
    words = title_words(wanted.title)
    overlap = 0.2
    if words:
        # As in WebShop, a word that stands twice in the wanted title counts twice below.
        shared_words = {*words} & {*title_words(bought.title)}
        overlap = len(shared_words) / len(words)
    if overlap == 0:
        return 0.0
    if overlap < 0.1:
        return 0.1
    # WebShop section 3: the same search query, two shared categories or more than a
    # fifth of the title make the same type.
    same_query = wanted.query == bought.query
    shared = _categories(wanted) & _categories(bought)
    if same_query or len(shared) >= 2 or overlap > 0.2:
        return 1.0
    return 0.5


def title_words(title: str) -> list[str]:
    """The content words of a title, with repetitions."""
    words = _WORD.findall(title.lower())
    return [word for word in words if word.isalpha() and word not in FUNCTION_WORDS]


def _categories(product: Product) -> set[str]:
    return {part.strip() for part in product.product_category.split("›")}


def attribute_hits(wanted: Sequence[str], bought: Product) -> int:
    """Number of wanted attributes that are listed, or stand in one of the texts."""
    # An attribute counts if it is listed up to spelling, or stands in a text as it is.
    features = " ".join(bought.bullets)
    texts = [text.lower() for text in (bought.title, features, bought.description)]
    hits = 0
    for attribute in wanted:
        listed = any(matches(one, attribute) for one in bought.attributes)
        hits += listed or any(attribute in text for text in texts)
    return hits


def option_hits(wanted: Sequence[str], chosen: Iterable[str]) -> int:
    """Number of wanted options that one of the chosen values matches."""
    values = [color_of(value) for value in chosen]
    hits = 0
    for option in wanted:
        hits += any(matches(value, option) for value in values)
    return hits


@lru_cache(maxsize=65536)
def matches(one: str, other: str) -> bool:
    """Whether the token set ratio of two texts is above MATCH."""
    from rapidfuzz import fuzz, utils

    def plain(text: str) -> str:
        return utils.default_process(text.encode("ascii", "ignore").decode())

    # thefuzz, which WebShop asks, reads ASCII and gives whole numbers.
    return round(fuzz.token_set_ratio(plain(one), plain(other))) > MATCH
