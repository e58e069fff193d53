"""The generated catalogue: rows in the schema of WebShop's files, the same for ever.

A title names two of a product's three attributes. The third stands in its first bullet:
the search engine reads that, an agent only on the page Features. Each product has some
values of each option, so that not every product that fits can be had as it is wanted.

Attributes, options and categories are spelled as in WebShop's files. No value of an
option holds the name of a color by accident, or the reward could not tell it apart.
"""

import random
from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple

import msgspec

from agentcli.records.files import derive_seed
from agentcli.records.section import Count, Seed
from agentcli.worlds.generated import chosen
from agentcli.worlds.webshop.products import (
    Product,
    RawAttributes,
    RawOption,
    RawProduct,
    product_of,
)

VARIABLE = "WEBSHOP_DATA"
"""The environment variable that names the folder of WebShop's files."""
GENERATOR_VERSION = 1
"""Increase when the same settings generate another catalogue."""
TEST_GOALS = 500
"""Goals 0 to 499 are the test split, the rest train (WebShop's own division)."""


class WebshopOptions(msgspec.Struct, kw_only=True, frozen=True):
    """Settings of the world. Without a data folder the catalogue is generated."""

    size: Literal["small", "all"] = "small"
    """Files of a data folder: small reads items_shuffle_1000.json and its companion,
    all the 1.18 million products of items_shuffle.json.
    """
    goals: Literal["synthetic", "human"] = "synthetic"
    """Who wrote the instructions; a generated catalogue has synthetic ones only."""
    # At least one of each of the 20 kinds.
    products: Annotated[int, msgspec.Meta(ge=20, le=2_000_000)] = 1000
    """Products of the generated catalogue."""
    kinds: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] | None = None
    """Only these kinds of product are generated, e.g. [loafers, rug]; None: all."""
    tests: Count = TEST_GOALS
    """Goals of the test split."""
    seed: Seed = 0
    """Seed of the generated catalogue."""


COLORS = ("black", "blue", "brown", "green", "grey", "pink", "purple", "red", "white")
SHOE_SIZES = ("6", "7", "8", "9", "10", "11", "12")
CLOTHES_SIZES = ("small", "medium", "large", "x-large", "xx-large")
BED_SIZES = ("twin", "full", "queen", "king")
FLAVORS = ("vanilla", "honey", "cinnamon", "ginger", "cherry", "coconut", "maple")
SCENTS = ("jasmine", "musk", "citrus", "cedar", "bergamot", "vanilla")
PACKS = ("1 pack", "2 pack", "3 pack", "6 pack", "12 pack")
LENGTHS = ("3 feet", "6 feet", "10 feet", "15 feet")
BOTTLES = ("100 ml", "250 ml", "500 ml", "750 ml")

SHOES = (
    *("rubber sole", "non slip", "memory foam"),
    *("arch support", "ankle strap", "steel toe"),
)
CLOTHES = (
    *("machine wash", "long sleeve", "slim fit"),
    *("moisture wicking", "quick drying", "elastic waist"),
)
CARE = (
    *("cruelty free", "paraben free", "sulfate free"),
    *("long lasting", "tea tree", "sensitive skin"),
)
DEVICES = (
    *("fast charging", "water resistant", "noise cancelling"),
    *("hands free", "heavy duty", "carrying case"),
)
HOME = (
    *("easy assembly", "solid wood", "space saving"),
    *("easy clean", "stainless steel", "living room"),
)
FOOD = (
    *("gluten free", "sugar free", "non gmo"),
    *("plant based", "dairy free", "low sodium"),
)


class Department(NamedTuple):
    """A place in the shop: what its products have in common."""

    category: str
    path: str
    attributes: tuple[str, ...]


class ProductKind(NamedTuple):
    """Products of one sort."""

    place: Department
    name: str
    low: int
    high: int
    """Prices in dollars."""
    options: dict[str, tuple[str, ...]]


def _kind(
    place: Department, name: str, low: int, high: int, **options: tuple[str, ...]
) -> ProductKind:
    return ProductKind(place, name, low, high, options)


_SHOES = Department("fashion", "Clothing, Shoes & Jewelry › Shoes", SHOES)
_CLOTHES = Department("fashion", "Clothing, Shoes & Jewelry › Clothing", CLOTHES)
_CARE = Department("beauty", "Beauty & Personal Care › Skin & Hair", CARE)
_DEVICES = Department("electronics", "Electronics › Accessories", DEVICES)
_HOME = Department("garden", "Home & Kitchen › Furniture", HOME)
_FOOD = Department("grocery", "Grocery & Gourmet Food › Pantry", FOOD)

_KINDS = (
    _kind(_SHOES, "loafers", 20, 90, size=SHOE_SIZES, color=COLORS),
    _kind(_SHOES, "sandals", 15, 70, size=SHOE_SIZES, color=COLORS),
    _kind(_SHOES, "boots", 35, 140, size=SHOE_SIZES, color=COLORS),
    _kind(_CLOTHES, "t-shirt", 8, 45, size=CLOTHES_SIZES, color=COLORS),
    _kind(_CLOTHES, "dress", 18, 90, size=CLOTHES_SIZES, color=COLORS),
    _kind(_CLOTHES, "jacket", 30, 160, size=CLOTHES_SIZES, color=COLORS),
    _kind(_CARE, "shampoo", 8, 60, scent=SCENTS, size=PACKS),
    _kind(_CARE, "perfume", 8, 60, scent=SCENTS, size=PACKS),
    _kind(_CARE, "lipstick", 8, 60, color=COLORS, size=PACKS),
    _kind(_CARE, "toothbrush", 8, 60, color=COLORS, size=PACKS),
    _kind(_DEVICES, "headphones", 15, 180, color=COLORS, size=PACKS),
    _kind(_DEVICES, "speaker", 20, 150, color=COLORS, size=PACKS),
    _kind(_DEVICES, "phone case", 8, 40, color=COLORS, size=PACKS),
    _kind(_HOME, "bed frame", 90, 400, size=BED_SIZES, color=COLORS),
    _kind(_HOME, "mattress", 120, 600, size=BED_SIZES, color=COLORS),
    _kind(_HOME, "rug", 25, 200, size=LENGTHS, color=COLORS),
    _kind(_HOME, "bookshelf", 40, 250, size=LENGTHS, color=COLORS),
    _kind(_FOOD, "green tea", 6, 50, flavor=FLAVORS, size=PACKS),
    _kind(_FOOD, "protein bar", 6, 50, flavor=FLAVORS, size=PACKS),
    _kind(_FOOD, "olive oil", 6, 50, size=BOTTLES),
)
KINDS = {kind.name: kind for kind in _KINDS}
"""By name."""


LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
BEGINNINGS = ("Ven", "Tal", "Ori", "Kes", "Mar", "Lum", "Bro", "Sil", "Dar", "Fen")
MIDDLES = ("do", "vi", "ra", "ne", "lo", "ta", "mi", "ku")
ENDS = ("x", "ra", "lle", "n", "sta", "no", "va", "ck")
PER_KIND = 3
"""Attributes of a product."""
ASKED = 2
"""Attributes that a goal asks for."""


def generated(options: WebshopOptions) -> Iterator[Product]:
    """The products of a generated catalogue. Raises UsageError for an unknown kind."""
    for raw, attributes in rows(options):
        yield product_of(raw, attributes, (), raw.asin)


def rows(options: WebshopOptions) -> Iterator[tuple[RawProduct, RawAttributes]]:
    """Rows as they would stand in items_shuffle.json and items_ins_v2.json."""
    kinds = kinds_of(options)
    parts = ("webshop", "catalogue", GENERATOR_VERSION, options.seed)
    rng = random.Random(derive_seed(*parts))
    names: set[str] = set()
    for number in range(options.products):
        # In turn and not drawn, so that a small catalogue lacks no kind.
        kind = kinds[number % len(kinds)]
        attributes = rng.sample(kind.place.attributes, PER_KIND)
        asked = sorted(rng.sample(attributes, ASKED))
        row = _row(kind, attributes, _new_names(names, rng), rng)
        first, second = asked
        instruction = f"Find me {first} {kind.name} with {second}"
        yield row, RawAttributes(attributes, instruction, asked)


def kinds_of(options: WebshopOptions) -> list[ProductKind]:
    """The kinds of product that are drawn. Raises UsageError for an unknown one."""
    names = chosen(options.kinds, KINDS, "kinds", "kind of product")
    return [KINDS[name] for name in names]


def _new_names(taken: set[str], rng: random.Random) -> tuple[str, str]:
    """An asin and a brand with its model that no other product has."""
    asin = brand = ""
    while not asin or asin in taken:
        # As Amazon's: ten characters that begin with B0.
        asin = "B0" + "".join(rng.choices(LETTERS, k=8))
    while not brand or brand in taken:
        syllables = (BEGINNINGS, MIDDLES, ENDS)
        word = "".join(rng.choice(part) for part in syllables)
        letter = rng.choice(LETTERS[10:])
        brand = f"{word} {letter}{rng.randrange(10_000)}"
    taken.update((asin, brand))
    return asin, brand


def _row(
    kind: ProductKind, attributes: list[str], names: tuple[str, str], rng: random.Random
) -> RawProduct:
    asin, brand = names
    first, second, third = attributes
    customization: dict[str, list[RawOption] | None] = {}
    for name, values in kind.options.items():
        count = rng.randint(len(values) // 2, len(values) - 1)
        kept = set(rng.sample(values, count))
        offered = [RawOption(value) for value in values if value in kept]
        customization[name] = offered
    return RawProduct(
        asin=asin,
        name=f"{brand} {first.title()} {kind.name.title()} with {second.title()}",
        category=kind.place.category,
        query=kind.name,
        product_category=f"{kind.place.path} › {kind.name.title()}",
        full_description=f"The {brand} is made for every day.",
        small_description=[third.capitalize(), f"A {kind.name} by {brand}"],
        pricing=_pricing(kind, rng),
        customization_options=dict(customization),
    )


def _pricing(kind: ProductKind, rng: random.Random) -> str:
    """One price, or two for a tenth of the products."""
    low = rng.randint(kind.low, kind.high) - 0.01
    if rng.random() < 0.9:
        return f"${low:.2f}"
    high = low + rng.randint(1, 9)
    # WebShop's files write a range as two prices in a row.
    return f"${low:.2f}${high:.2f}"
