"""The kinds of product of the generated catalogue: what they can be like, and cost.

Attributes, options and categories are spelled as in WebShop's files. No value of an
option holds the name of a color by accident, or the reward could not tell it apart.
"""

from typing import NamedTuple

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
    "rubber sole",
    "non slip",
    "memory foam",
    "arch support",
    "ankle strap",
    "steel toe",
)
CLOTHES = (
    "machine wash",
    "long sleeve",
    "slim fit",
    "moisture wicking",
    "quick drying",
    "elastic waist",
)
CARE = (
    "cruelty free",
    "paraben free",
    "sulfate free",
    "long lasting",
    "tea tree",
    "sensitive skin",
)
DEVICES = (
    "fast charging",
    "water resistant",
    "noise cancelling",
    "hands free",
    "heavy duty",
    "carrying case",
)
HOME = (
    "easy assembly",
    "solid wood",
    "space saving",
    "easy clean",
    "stainless steel",
    "living room",
)
FOOD = (
    "gluten free",
    "sugar free",
    "non gmo",
    "plant based",
    "dairy free",
    "low sodium",
)


class ProductKind(NamedTuple):
    """Products of one sort."""

    name: str
    category: str
    path: str
    """Its product_category."""
    attributes: tuple[str, ...]
    options: tuple[tuple[str, tuple[str, ...]], ...]
    low: int
    high: int
    """Prices in dollars."""


class Department(NamedTuple):
    """A place in the shop: what its products have in common."""

    category: str
    path: str
    attributes: tuple[str, ...]


def _kind(
    place: Department, name: str, low: int, high: int, **options: tuple[str, ...]
) -> ProductKind:
    return ProductKind(
        name=name,
        category=place.category,
        path=f"{place.path} › {name.title()}",
        attributes=place.attributes,
        options=tuple(options.items()),
        low=low,
        high=high,
    )


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
