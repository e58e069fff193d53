"""Layers of settings laid over one another, and what becomes of a method's settings
when a later layer names another one.

Mappings merge key by key; anything else, lists too, is replaced. A setting that the new
method has not is left out, and a note says so. The user's own settings are never left
out in silence: they are refused. Credit is stricter: a discount or a weight means
another thing in every method, so of a preset's and a run's switches only those stay
that are shared.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from agentcli.errors import UsageError
from agentcli.exploration.settings import evaluation_class, method_of, rollout_class

AGGREGATE = "train.aggregate"


def overlay(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both merged by key; `above` wins."""
    merged = dict(below)
    for key, value in above.items():
        former = merged.get(key)
        merged[key] = (
            overlay(former, value)
            if isinstance(former, dict) and isinstance(value, dict)
            else value
        )
    return merged


class Merger:
    """The settings merged so far: `values`, plain; `notes` say what was left out on the
    way.
    """

    def __init__(self, defaults: dict[str, Any]) -> None:
        self.values = defaults
        self.notes: list[str] = []
        self._owners: dict[str, str] = {}
        """Where the user set a setting that depends on a method, by its path."""

    def add(self, place: str, layer: Mapping[str, Any], *, own: bool) -> None:
        """Lay a checked layer above the others. `own`: it is the user's, and no preset
        or recorded run.

        Raises UsageError where that would leave out a setting of the user's own.
        """
        self._forget_aggregate(layer)
        self._change_credit(place, layer)
        self._change_exploration(place, layer)
        self._change_world(layer)
        self.values = overlay(self.values, layer)
        if own:
            for section in ("credit", "rollout", "evaluation", "train"):
                self._owners |= {
                    f"{section}.{name}": place for name in layer.get(section, {})
                }

    def _change_exploration(self, place: str, layer: Mapping[str, Any]) -> None:
        """Another exploration method: whatever it has too stays."""
        former = method_of(self.values)
        method = method_of(layer, otherwise=former)
        if method == former:
            return
        for section, kind in (
            ("rollout", rollout_class),
            ("evaluation", evaluation_class),
        ):
            below = self.values[section]
            names = kind(method).__struct_fields__
            lost = [name for name in below if name not in names]
            self._refuse_own(
                lost, section, former, f"{place} makes rollout.method {method}"
            )
            # A recorded run names defaults too: nothing is lost with these.
            usual = msgspec.to_builtins(kind(former)())
            changed = [name for name in lost if below[name] != usual.get(name)]
            if changed:
                self._note(
                    "rollout.method",
                    method,
                    former,
                    f"leaves out {former}'s {', '.join(sorted(changed))}",
                )
            self._replace(
                section, {name: value for name, value in below.items() if name in names}
            )

    def _change_credit(self, place: str, layer: Mapping[str, Any]) -> None:
        """Another credit method: of a preset's and a run's switches those stay that
        mean the same in every method.
        """
        above = layer.get("credit", {})
        former, method = self.values["credit"].get("method"), above.get("method")
        if method == former or not isinstance(method, str):
            return
        switches = {
            name: value
            for name, value in self.values["credit"].items()
            if name != "method"
        }
        kept: dict[str, Any] = {}
        if switches:
            from agentcli.credit.registry import shared_switches, switches_of

            shared = shared_switches()
            names = [
                name
                for name in switches_of(method)
                if name in shared or f"credit.{name}" in self._owners
            ]
            kept = {name: value for name, value in switches.items() if name in names}
        lost = sorted(
            name for name in switches if name not in kept and name not in above
        )
        self._refuse_own(
            lost, "credit", str(former), f"{place} makes credit.method {method}"
        )
        stay = [
            f"{name} {shown(value)}"
            for name, value in sorted(kept.items())
            if name not in above
        ]
        parts = [f"keeps {', '.join(stay)}"] if stay else []
        parts += [f"leaves out {former}'s {', '.join(lost)}"] if lost else []
        if parts:
            self._note("credit.method", method, str(former), "; ".join(parts))
        self._replace("credit", kept)

    def _forget_aggregate(self, layer: Mapping[str, Any]) -> None:
        """Another credit method: how the former one's loss averages goes with it,
        unless the user chose that.
        """
        former, method = (
            self.values["credit"].get("method"),
            layer.get("credit", {}).get("method"),
        )
        chosen = self.values["train"].get("aggregate")
        if method in (None, former) or chosen is None or AGGREGATE in self._owners:
            return
        self._note(
            "credit.method",
            method,
            former,
            f"leaves out {former}'s {AGGREGATE} {chosen}",
        )
        self._replace("train", {**self.values["train"], "aggregate": None})

    def _change_world(self, layer: Mapping[str, Any]) -> None:
        """Another world: the former one's options mean nothing to it."""
        environment = self.values["environment"]
        former = environment["name"]
        world = layer.get("environment", {}).get("name", former)
        if world == former:
            return
        if environment["options"]:
            options = ", ".join(environment["options"])
            self._note(
                "environment.name",
                world,
                former,
                f"leaves out {former}'s options {options}",
            )
        self._replace("environment", {**environment, "options": {}})

    def _refuse_own(
        self, lost: list[str], section: str, former: str, change: str
    ) -> None:
        """Raises UsageError where a setting of the user's own is among the `lost`."""
        for name in lost:
            path = f"{section}.{name}"
            if path in self._owners:
                raise UsageError(
                    f"{self._owners[path]}: {path}: is a switch of {former}, and "
                    f"{change}, which has no such switch; leave one of them out"
                )

    def _replace(self, section: str, values: dict[str, Any]) -> None:
        self.values = {**self.values, section: values}

    def _note(self, path: str, name: str, former: str, what: str) -> None:
        self.notes.append(f"{path} {name}, not {former}: {what}")


def shown(value: Any) -> str:
    """A value as it may have been typed."""
    if isinstance(value, Mapping):
        return ",".join(f"{key}={shown(one)}" for key, one in value.items())
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
