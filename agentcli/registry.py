"""Plug-ins by name: worlds, methods, policies, dialects and objectives.

A registry holds a table of built-in names, each with the place of its thing:
"module:thing", or "module" for the module itself. An installed package adds names under
the registry's entry-point group; a built-in name wins over an installed one. Nothing is
imported before it is asked for, so that listing names is cheap.
"""

from collections.abc import Iterable, Mapping
from importlib import import_module
from operator import attrgetter
from typing import Any

from agentcli.errors import UsageError


class Registry:
    """The plug-ins of one kind.

    `group` is the entry-point group, `key` the setting that names a plug-in, `kind` a
    plug-in in words. `table` is read whenever a name is asked for. With `in_full` a
    name may also be a place, "module:thing".
    """

    def __init__(
        self,
        group: str,
        table: Mapping[str, str],
        *,
        key: str,
        kind: str,
        in_full: bool = False,
    ) -> None:
        self.group = group
        self.table = table
        self.key = key
        self.kind = kind
        self.in_full = in_full

    def names(self) -> list[str]:
        """The built-in and installed names, sorted."""
        from importlib import metadata

        names = set(self.table)
        for point in metadata.entry_points(group=self.group):
            names.add(point.name)
        return sorted(names)

    def place(self, name: str) -> str:
        """The "module:thing" that a name stands for.

        Raises UsageError with the nearest name for an unknown one.
        """
        if name in self.table:
            return self.table[name]
        if self.in_full and ":" in name:
            return name
        from importlib import metadata

        for point in metadata.entry_points(group=self.group, name=name):
            return f"{point.module}:{point.attr}" if point.attr else point.module
        hint = nearest(name, self.names())
        raise UsageError(f"{self.key}: no {self.kind} {name!r}; {hint}")

    def load(self, name: str) -> Any:
        """The thing itself, imported now.

        Raises UsageError with the nearest name, and the errors of its import. A place
        that does not exist is an ImportError of its module, or an AttributeError.
        """
        module, colon, attributes = self.place(name).partition(":")
        thing: Any = import_module(module)
        return attrgetter(attributes)(thing) if colon else thing


def nearest(name: str, names: Iterable[str], otherwise: str = "there are") -> str:
    """The hint that ends an error about an unknown name.

    It is the nearest name, else all of them after `otherwise`.
    """
    known = list(names)
    close = closest(name, known)
    if close:
        return f"did you mean {close}?"
    return f"{otherwise} {', '.join(known)}"


def closest(name: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The most similar of `names`, if one is at least `cutoff` similar (1: equal)."""
    from difflib import get_close_matches

    close = get_close_matches(name, list(names), 1, cutoff)
    return close[0] if close else None
