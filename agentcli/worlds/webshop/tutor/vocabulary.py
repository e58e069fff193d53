"""The names that a tiny tokenizer must hold as whole tokens."""

from collections.abc import Iterable

from agentcli.worlds.webshop.kinds import KINDS
from agentcli.worlds.webshop.pages import BACK, BUY, NEXT, PREVIOUS
from agentcli.worlds.webshop.products import Product


def names(products: Iterable[Product]) -> list[str]:
    """Actions, asins, values of options, and the generator's kinds and attributes."""
    words = {"click[", "search[", BACK, BUY, NEXT, PREVIOUS}
    for kind in KINDS.values():
        words.update((kind.name, *kind.attributes))
    for product in products:
        words.add(product.asin.lower())
        for values in product.options.values():
            words.update(values)
    return sorted(words)
