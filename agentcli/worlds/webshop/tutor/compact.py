"""A whole decision in about fifty words, for policies too small for whole pages.

Everything is drawn from the instruction and from pages that were seen. Titles shrink to
what they lack of the wish, prices to cheap or dear.
"""

from agentcli.environments.protocol import Context
from agentcli.worlds.webshop.tutor.knowledge import Item, ShopKnowledge, Wish

HITS_SHOWN = 5


def compact(context: Context) -> str:
    """One line per kind of information."""
    known = ShopKnowledge(context)
    wish = known.wish
    lines = [f"task {' '.join(wish.words)}"]
    page = known.page
    if page.kind == "results":
        lines.append(f"page results {page.number}")
        lines += [f"{item.asin} {_fit(item, wish)}" for item in open_hits(known)]
    elif known.item is not None and page.kind in ("item", "sub"):
        lines.append(f"page {page.kind} {_fit(known.item, wish)}")
        lines += _standing(known, known.item)
    else:
        lines.append("page search")
    if context.actions and context.actions[-1] == "":
        lines.append("last nothing")
    return "\n".join(lines)


def open_hits(known: ShopKnowledge) -> list[Item]:
    """The hits that were not looked at yet, those that fit best, in the page's order."""
    new = [item for item in known.hits if not item.visits]
    by_fit = sorted(new, key=lambda item: len(item.missing(known.wish)))
    best = by_fit[:HITS_SHOWN]
    return [item for item in new if item in best]


def _fit(item: Item, wish: Wish) -> str:
    """Which wanted words a product lacks, and whether it costs too much."""
    missing = item.missing(wish)
    fit = f"lacks {' '.join(missing)}" if missing else "fits"
    return f"{fit} {'dear' if item.is_dear(wish) else 'cheap'}"


def _standing(known: ShopKnowledge, item: Item) -> list[str]:
    """Each wanted option as it stands, and what was read."""
    lines = []
    for name, value in known.wish.options:
        standing = "here" if value in item.values else "none"
        if value in known.chosen:
            standing = "chosen"
        # A word before a number would be one token with it: "size 8".
        lines.append(f"{value} {name} {standing}")
    if item.read:
        lines.append("features read")
    return lines
