"""Entries by key, and means over what may be empty.

All rooms need them, so they stand alone.
"""

from collections.abc import Hashable, Iterable
from statistics import fmean
from typing import TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)
EntryT = TypeVar("EntryT")


def grouped(pairs: Iterable[tuple[KeyT, EntryT]]) -> dict[KeyT, list[EntryT]]:
    """The entries of pairs (key, entry), by key.

    Keys come in the order of their first entries, and the entries of a key in their
    own. A key without an entry is missing.
    """
    groups: dict[KeyT, list[EntryT]] = {}
    for key, entry in pairs:
        groups.setdefault(key, []).append(entry)
    return groups


def mean(values: Iterable[float]) -> float | None:
    """The mean; None without any value."""
    known = list(values)
    return fmean(known) if known else None
