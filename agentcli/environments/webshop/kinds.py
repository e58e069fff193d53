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


def _shoes(name: str, low: int, high: int) -> ProductKind:
    path = "Clothing, Shoes & Jewelry › Shoes › " + name.title()
    options = (("size", SHOE_SIZES), ("color", COLORS))
    return ProductKind(name, "fashion", path, SHOES, options, low, high)


def _clothes(name: str, low: int, high: int) -> ProductKind:
    path = "Clothing, Shoes & Jewelry › Clothing › " + name.title()
    options = (("size", CLOTHES_SIZES), ("color", COLORS))
    return ProductKind(name, "fashion", path, CLOTHES, options, low, high)


def _care(name: str, option: str, values: tuple[str, ...]) -> ProductKind:
    path = "Beauty & Personal Care › Skin & Hair › " + name.title()
    options = ((option, values), ("size", PACKS))
    return ProductKind(name, "beauty", path, CARE, options, 8, 60)


def _device(name: str, low: int, high: int) -> ProductKind:
    path = "Electronics › Accessories › " + name.title()
    options = (("color", COLORS), ("size", PACKS))
    return ProductKind(name, "electronics", path, DEVICES, options, low, high)


def _home(name: str, sizes: tuple[str, ...], low: int, high: int) -> ProductKind:
    path = "Home & Kitchen › Furniture › " + name.title()
    options = (("size", sizes), ("color", COLORS))
    return ProductKind(name, "garden", path, HOME, options, low, high)


def _food(name: str, option: str, values: tuple[str, ...]) -> ProductKind:
    path = "Grocery & Gourmet Food › Pantry › " + name.title()
    options = ((option, values), ("size", PACKS))
    return ProductKind(name, "grocery", path, FOOD, options, 6, 50)


_KINDS = (
    _shoes("loafers", 20, 90),
    _shoes("sandals", 15, 70),
    _shoes("boots", 35, 140),
    _clothes("t-shirt", 8, 45),
    _clothes("dress", 18, 90),
    _clothes("jacket", 30, 160),
    _care("shampoo", "scent", SCENTS),
    _care("perfume", "scent", SCENTS),
    _care("lipstick", "color", COLORS),
    _care("toothbrush", "color", COLORS),
    _device("headphones", 15, 180),
    _device("speaker", 20, 150),
    _device("phone case", 8, 40),
    _home("bed frame", BED_SIZES, 90, 400),
    _home("mattress", BED_SIZES, 120, 600),
    _home("rug", LENGTHS, 25, 200),
    _home("bookshelf", LENGTHS, 40, 250),
    _food("green tea", "flavor", FLAVORS),
    _food("protein bar", "flavor", FLAVORS),
    _food("olive oil", "size", BOTTLES)._replace(options=(("size", BOTTLES),)),
)
KINDS = {kind.name: kind for kind in _KINDS}
"""By name."""
