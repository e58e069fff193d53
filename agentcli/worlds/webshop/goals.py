"""Goals: what is asked for, in words and as the reward reads it.

A synthetic goal asks for one combination of a product's options, a human one for what a
person wrote. Where WebShop draws a price without a seed, the draw follows from the asin
here, so that a goal is the same in every process.
"""

import itertools
import math
import random

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
    above = [step for step in PRICE_STEPS if step > product.price][:4]
    if len(above) < 2:
        return NO_LIMIT, ""
    rng = random.Random(derive_seed("webshop", "limit", product.asin, number))
    limit = max(rng.sample(above, 2))
    return limit, f", and price lower than {limit:.2f} dollars"
