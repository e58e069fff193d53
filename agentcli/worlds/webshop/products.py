"""Products as pages, search and reward need them, made from rows of WebShop's files.

The rules are those of WebShop's own loader: a row without a price costs 100 dollars,
two prices are a range, options are lower case, and a slash in them becomes a bar.
"""

import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from agentcli.errors import DataError
from agentcli.records.faults import shown
from agentcli.records.files import derive_seed

LONGEST_ASIN = 10
NO_PRICE = 100.0
"""Dollars that a product without a price costs."""
NO_ATTRIBUTES = ("DUMMY_ATTR",)
"""Attributes of a product that the file of attributes lacks."""

_COLORS = """
alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze
brown burgundy camel camo caramel champagne charcoal cheetah chestnut chocolate
christmas coffee cognac copper coral cranberry cream crystal dark denim eggplant
elephant espresso fuchsia gold granite grape graphite grass gray green grey heather
indigo ivory ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve
merlot midnight mint mocha multicolor mushroom mustard natural navy nude olive orange
peach pewter pink plum purple rainbow red rose royal rust sand sapphire seashell silver
skull slate steel stone stonewash sunflower tan taupe teal tiger turquoise violet walnut
wheat white wine yellow
"""
COLORS = tuple(_COLORS.split())
"""WebShop's colors, in the order in which they are looked for."""


class RawOption(msgspec.Struct):
    """One value of an option as the files have it; its picture is not read."""

    value: str


RawOptions = dict[str, list[RawOption] | None] | str | list[Any] | None
"""Options by name; some rows have an empty text or list in their place."""


class RawProduct(msgspec.Struct):
    """A row of items_shuffle*.json; fields that nothing needs are not read."""

    asin: str
    name: str
    category: str
    query: str
    product_category: str
    full_description: str | None = None
    small_description: list[str | None] | str | None = None
    pricing: str | None = None
    customization_options: RawOptions = None


class RawAttributes(msgspec.Struct):
    """A row of items_ins_v2*.json."""

    attributes: list[str] | None = None
    instruction: str | None = None
    instruction_attributes: list[str] | None = None


class HumanInstruction(msgspec.Struct, frozen=True):
    """An entry of items_human_ins.json."""

    instruction: str
    instruction_attributes: tuple[str, ...] = ()
    instruction_options: tuple[str, ...] = ()


class Product(msgspec.Struct, frozen=True, kw_only=True):
    """One product."""

    asin: str
    title: str
    category: str
    """fashion, beauty, electronics, garden or grocery."""
    query: str
    """The words under which it was found when the data was collected."""
    product_category: str
    """The path of categories, e.g. "A › B › C"."""
    description: str
    bullets: tuple[str, ...]
    attributes: tuple[str, ...]
    options: dict[str, tuple[str, ...]]
    """Name -> values, in the order of the page."""
    prices: tuple[float, ...]
    """One price, or the ends of a range."""
    instruction: str | None = None
    """What a synthetic goal asks for; None where there is none."""
    instruction_attributes: tuple[str, ...] = ()
    human: tuple[HumanInstruction, ...] = ()

    @property
    def price_tag(self) -> str:
        return " to ".join(f"${price}" for price in self.prices)

    @property
    def price(self) -> float:
        """The price that is paid; one inside a range is drawn once for all."""
        if len(self.prices) == 1:
            return self.prices[0]
        rng = random.Random(derive_seed("webshop", "price", self.asin))
        return rng.uniform(*self.prices)

    @property
    def indexed_text(self) -> str:
        """The text that the search engine reads."""
        options = []
        for name, values in self.options.items():
            options.append(f"{name}: {', '.join(values)}")
        first_bullet = self.bullets[0] if self.bullets else ""
        parts = (self.title, self.description, first_bullet, ", and ".join(options))
        return " ".join(parts).lower()


def product_of(
    raw: RawProduct,
    attributes: RawAttributes | None,
    human: Sequence[HumanInstruction],
    place: str,
) -> Product:
    """A product from its rows. Raises DataError for a price that is none."""
    instruction = None
    asked: Sequence[str] = ()
    listed: Sequence[str] = NO_ATTRIBUTES
    if attributes is not None:
        instruction = attributes.instruction
        asked = attributes.instruction_attributes or ()
        if attributes.attributes is not None:
            listed = attributes.attributes
    return Product(
        asin=raw.asin,
        title=raw.name,
        category=raw.category,
        query=raw.query.lower().strip(),
        product_category=raw.product_category,
        description=raw.full_description or "",
        bullets=_bullets(raw.small_description),
        attributes=tuple(listed),
        options=_options(raw.customization_options),
        prices=_prices(raw.pricing, place),
        instruction=instruction,
        instruction_attributes=tuple(asked),
        human=tuple(human),
    )


def _bullets(texts: list[str | None] | str | None) -> tuple[str, ...]:
    if isinstance(texts, str):
        return (texts,)
    return tuple(text or "" for text in texts or ())


def _options(raw: RawOptions) -> dict[str, tuple[str, ...]]:
    # Some rows have an empty text or list where others have a mapping.
    if not isinstance(raw, Mapping):
        return {}
    options = {}
    for name, contents in raw.items():
        if contents is not None:
            values = (one.value.strip().replace("/", " | ") for one in contents)
            options[name.lower()] = tuple(map(str.lower, values))
    return options


def _prices(pricing: str | None, place: str) -> tuple[float, ...]:
    """The dollars behind each sign: one price, or the first two."""
    if not pricing:
        return (NO_PRICE,)
    prices = []
    for text in pricing.split("$")[1:]:
        digits = re.sub(r"[^\d.]", "", text)
        try:
            prices.append(float(digits))
        except ValueError:
            raise DataError(
                f"{place}: {shown(pricing)!r} is not a price such as $12.34 - at "
                "`$.pricing`"
            ) from None
    return tuple(prices[:2]) or (NO_PRICE,)


def color_of(option: str) -> str:
    """The first known color in an option; without one the option as it is."""
    # The order of the list decides, as in WebShop: "dark blue" is blue.
    for color in COLORS:
        if color in option:
            return color
    return option
