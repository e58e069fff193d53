"""The generated catalogue: rows in the schema of WebShop's files, the same for ever.

A title names two of a product's three attributes. The third stands in its first bullet:
the search engine reads that, an agent only on the page Features. Each product has some
values of each option, so that not every product that fits can be had as it is wanted.
"""

import random
from collections.abc import Iterator

from agentcli.environments.protocol import PLACE
from agentcli.errors import UsageError
from agentcli.records.files import derive_seed
from agentcli.registry import nearest
from agentcli.worlds.webshop.kinds import KINDS, ProductKind
from agentcli.worlds.webshop.options import (
    GENERATOR_VERSION,
    WebshopOptions,
)
from agentcli.worlds.webshop.products import (
    Product,
    RawAttributes,
    RawOption,
    RawProduct,
    product_of,
)

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
        kind = kinds[number % len(kinds)]
        attributes = rng.sample(kind.attributes, PER_KIND)
        asked = sorted(rng.sample(attributes, ASKED))
        row = _row(kind, attributes, _new_names(names, rng), rng)
        instruction = f"Find me {asked[0]} {kind.name} with {asked[1]}"
        yield (
            row,
            RawAttributes(
                attributes=attributes,
                instruction=instruction,
                instruction_attributes=asked,
            ),
        )


def kinds_of(options: WebshopOptions) -> list[ProductKind]:
    """The kinds of product that are drawn. Raises UsageError for an unknown one."""
    if options.kinds is None:
        return list(KINDS.values())
    for name in options.kinds:
        if name not in KINDS:
            hint = nearest(name, KINDS)
            raise UsageError(f"{PLACE}.kinds: no kind of product {name!r}; {hint}")
    return [KINDS[name] for name in options.kinds]


def _new_names(taken: set[str], rng: random.Random) -> tuple[str, str]:
    """An asin and a brand with its model that no other product has."""
    asin = brand = ""
    while not asin or asin in taken:
        asin = "B0" + "".join(rng.choices(LETTERS, k=8))
    while not brand or brand in taken:
        syllables = (BEGINNINGS, MIDDLES, ENDS)
        word = "".join(rng.choice(part) for part in syllables)
        brand = f"{word} {rng.choice(LETTERS[10:])}{rng.randrange(10_000)}"
    taken.update((asin, brand))
    return asin, brand


def _row(
    kind: ProductKind, attributes: list[str], names: tuple[str, str], rng: random.Random
) -> RawProduct:
    asin, brand = names
    first, second, third = attributes
    customization: dict[str, list[RawOption] | None] = {}
    for name, values in kind.options:
        count = rng.randint(len(values) // 2, len(values) - 1)
        kept = set(rng.sample(values, count))
        offered = [RawOption(value) for value in values if value in kept]
        customization[name] = offered
    return RawProduct(
        asin=asin,
        name=f"{brand} {first.title()} {kind.name.title()} with {second.title()}",
        category=kind.category,
        query=kind.name,
        product_category=kind.path,
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
    return f"${low:.2f}${low + rng.randint(1, 9):.2f}"
