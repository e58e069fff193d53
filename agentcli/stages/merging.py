"""Merges layers of settings.

Mappings merge key by key; anything else, including a list, is replaced. If a later
layer names another method, settings that this method does not have are left out, and a
note says so. A setting that the user wrote is never left out silently: it is refused.

Credit is stricter. A discount or a weight means something else in every method, so only
shared settings are kept from a preset or a run.
"""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from agentcli.errors import UsageError
from agentcli.exploration.settings import evaluation_class, method_of, rollout_class
from agentcli.stages.yaml_files import Values

AGGREGATE = "train.aggregate"
OF_METHODS = ("credit", "rollout", "evaluation", "train")
"""Sections whose settings depend on a method."""


def overlay(below: Values, above: Values) -> Values:
    """Merges both by key; `above` wins."""
    merged = dict(below)
    for key, value in above.items():
        former = merged.get(key)
        if isinstance(former, dict) and isinstance(value, dict):
            merged[key] = overlay(former, value)
        else:
            merged[key] = value
    return merged


class Merger:
    """The settings merged so far.

    `values` are plain values; `notes` say what was left out.
    """

    def __init__(self, defaults: Values) -> None:
        self.values = defaults
        self.notes: list[str] = []
        self._credit_named = False
        """Whether any layer has named a credit method; if not, there is no earlier one.
        """
        self._places: dict[str, str] = {}
        """The source of each method setting that the user wrote, by path."""

    def add(
        self,
        place: str,
        layer: Values,
        *,
        users: bool,
    ) -> None:
        """Merges a checked layer on top of the others.

        `users` says whether the user wrote it. Raises UsageError if a setting that the
        user wrote would be left out.
        """
        self._change_credit(place, layer)
        self._change_exploration(place, layer)
        self._change_owner("environment", "name", layer)
        self._change_owner("train", "objective", layer)
        self.values = overlay(self.values, layer)
        if users:
            for section in OF_METHODS:
                for name in layer.get(section, {}):
                    self._places[f"{section}.{name}"] = place

    def _change_exploration(self, place: str, layer: Values) -> None:
        """Keeps the settings that the new exploration method also has."""
        former = method_of(self.values)
        method = method_of(layer, otherwise=former)
        if method == former:
            return
        change = f"{place} makes rollout.method {method}"
        classes = {"rollout": rollout_class, "evaluation": evaluation_class}
        for section, class_of in classes.items():
            names = class_of(method).__struct_fields__
            values = self.values[section]
            lost = [name for name in values if name not in names]
            self._refuse_users(lost, section, former, change)
            # A recorded run also contains defaults, which may be left out without a
            # note.
            usual = msgspec.to_builtins(class_of(former)())
            changed = [name for name in lost if values[name] != usual.get(name)]
            if changed:
                left_out = f"leaves out {former}'s {', '.join(sorted(changed))}"
                self._note("rollout.method", method, former, left_out)
            self._keep_only(section, names)

    def _change_credit(self, place: str, layer: Values) -> None:
        """Keeps the settings with the same meaning in the new credit method."""
        above = layer.get("credit", {})
        former = self.values["credit"].get("method")
        method = above.get("method")
        if not isinstance(method, str):
            return
        named, self._credit_named = self._credit_named, True
        if method == former:
            return
        self._forget_aggregate(method, former)
        switches = dict(self.values["credit"])
        switches.pop("method", None)
        kept = self._shared(switches, method)
        lost = sorted(switches.keys() - kept - above.keys())
        change = f"{place} makes credit.method {method}"
        self._refuse_users(lost, "credit", str(former), change)
        effects = []
        staying = sorted(kept - above.keys())
        if staying:
            values = [f"{name} {shown(switches[name])}" for name in staying]
            effects.append(f"keeps {', '.join(values)}")
        if lost:
            effects.append(f"leaves out {former}'s {', '.join(lost)}")
        if named:
            effects += self._changed_defaults(above, kept)
        if effects:
            self._note("credit.method", method, former, "; ".join(effects))
        self._keep_only("credit", kept)

    def _shared(self, switches: Values, method: str) -> set[str]:
        """The settings that `method` has too.

        They mean the same in every method, or the user wrote them.
        """
        if not switches:
            return set()
        from agentcli.credit.registry import shared_switches, switches_of

        common = set(shared_switches())
        for name in switches:
            if f"credit.{name}" in self._places:
                common.add(name)
        return common & switches.keys() & set(switches_of(method))

    def _changed_defaults(self, above: Values, kept: Collection[str]) -> list[str]:
        """Shared settings that nobody wrote and whose default changes."""
        from agentcli.credit.registry import make, shared_switches

        stays = {name: self.values["credit"][name] for name in kept}
        try:
            former = make(self.values["credit"])[2]
            new = make({**stays, **above})[2]
        except UsageError:
            # Errors are reported when all layers are decoded.
            return []
        changes = []
        for name in sorted(shared_switches() - set(kept) - above.keys()):
            if not (hasattr(former, name) and hasattr(new, name)):
                continue
            before, now = getattr(former, name), getattr(new, name)
            if before != now:
                changes.append(f"{name} becomes {shown(now)} (was {shown(before)})")
        return changes

    def _forget_aggregate(self, method: str, former: str | None) -> None:
        """Resets the loss average of the earlier credit method."""
        chosen = self.values["train"].get("aggregate")
        if chosen is None or AGGREGATE in self._places:
            return
        left_out = f"leaves out {former}'s {AGGREGATE} {chosen}"
        self._note("credit.method", method, former, left_out)
        self.values = overlay(self.values, {"train": {"aggregate": None}})

    def _change_owner(self, section: str, key: str, layer: Values) -> None:
        """Drops the options of another world or objective: they mean nothing here."""
        values = self.values[section]
        former = values[key]
        owner = layer.get(section, {}).get(key, former)
        if owner == former:
            return
        if values["options"]:
            left_out = f"leaves out {former}'s options {', '.join(values['options'])}"
            self._note(f"{section}.{key}", owner, former, left_out)
        self.values = {**self.values, section: {**values, "options": {}}}

    def _refuse_users(
        self,
        lost: list[str],
        section: str,
        former: str,
        change: str,
    ) -> None:
        """Raises UsageError if the user wrote one of the `lost` settings."""
        for name in lost:
            path = f"{section}.{name}"
            if path in self._places:
                raise UsageError(
                    f"{self._places[path]}: {path}: is a switch of {former}, and "
                    f"{change}, which has no such switch; leave one of them out"
                )

    def _keep_only(self, section: str, names: Collection[str]) -> None:
        values = self.values[section]
        kept = {name: value for name, value in values.items() if name in names}
        self.values = {**self.values, section: kept}

    def _note(
        self,
        path: str,
        name: str,
        former: str | None,
        effect: str,
    ) -> None:
        self.notes.append(f"{path} {name}, not {former}: {effect}")


def shown(value: Any) -> str:
    """A value as it might have been typed."""
    if isinstance(value, Mapping):
        pairs = [f"{key}={shown(one)}" for key, one in value.items()]
        return ",".join(pairs)
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value)
