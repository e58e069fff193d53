"""Checks that a layer of settings has known keys and values of the right type.

An error names the file, variable or option with the layer, the dotted key, and the
nearest name or the choices.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from agentcli.errors import UsageError
from agentcli.exploration.settings import (
    evaluation_class,
    method_of,
    methods_with,
    names_of_methods,
    rollout_class,
    settings_class,
)
from agentcli.records.options import choices_at, fault_and_path, section_in
from agentcli.registry import closest
from agentcli.stages.yaml_files import Values

UNWRITABLE = re.compile("[\0\ud800-\udfff]")
"""NUL, and surrogates, which come from YAML escapes or from shell words not in UTF-8.
"""


def check(place: str, layer: Values, method: str) -> None:
    """Refuses an unknown key, a wrong type, or a value that no record can store.

    `method` is the exploration method, if the layer itself names none. Raises
    UsageError "place: dotted.key: what is wrong".
    """
    method = method_of(layer, otherwise=method)
    kind = settings_class(method)
    try:
        _Keys(place, kind, method).refuse_unknown(layer, kind, "")
        msgspec.convert(layer, kind)
        _refuse_absurd(place, layer, "")
    except RecursionError as error:
        raise UsageError(f"{place}: is nested too deeply") from error
    except msgspec.ValidationError as error:
        fault, path = fault_and_path(error)
        choices = choices_at(kind, path)
        if choices:
            fault = f"expected one of {', '.join(map(str, choices))}"
        raise UsageError(f"{place}: {path}: {fault}") from error


def without_foreign(layer: Values, method: str) -> tuple[Values, list[str]]:
    """The layer without the settings that only other exploration methods have.

    Also returns the paths of these settings.
    """
    kept = dict(layer)
    foreign: list[str] = []
    for section, kind in (("rollout", rollout_class), ("evaluation", evaluation_class)):
        values = layer.get(section)
        if not isinstance(values, Mapping):
            continue
        names = kind(method).__struct_fields__
        unknown = [name for name in values if name not in names]
        others = [name for name in unknown if methods_with(str(name))]
        kept[section] = {name: values[name] for name in values if name not in others}
        foreign += [f"{section}.{name}" for name in sorted(others)]
    return kept, foreign


class _Keys:
    """The keys that a layer may have with exploration method `method`."""

    def __init__(
        self,
        place: str,
        kind: type[msgspec.Struct],
        method: str,
    ) -> None:
        self._place = place
        self._kind = kind
        self._method = method

    def refuse_unknown(
        self,
        layer: Values,
        section: type[msgspec.Struct],
        above: str,
    ) -> None:
        """Raises UsageError for the first unknown key, in this section or below it."""
        fields = {field.name: field.type for field in msgspec.structs.fields(section)}
        for key, value in layer.items():
            path = f"{above}{key}"
            if key not in fields:
                self._refuse_other_methods(path)
                hint = self._suggestion(str(key), above, list(fields))
                raise UsageError(f"{self._place}: no setting {path!r}; {hint}")
            inner = section_in(fields[key])
            if inner is not None and isinstance(value, Mapping):
                self.refuse_unknown(value, inner, f"{path}.")

    def _refuse_other_methods(self, path: str) -> None:
        """Raises UsageError for a setting that only other exploration methods have."""
        section, _, key = path.partition(".")
        if section not in ("rollout", "evaluation"):
            return
        methods = []
        for name in methods_with(key):
            # Not every setting of a rollout also exists for evaluations.
            kind = rollout_class if section == "rollout" else evaluation_class
            if key in kind(name).__struct_fields__:
                methods.append(name)
        if methods:
            raise UsageError(
                f"{self._place}: {path}: {self._method} has no such setting; add "
                f"--method {' or '.join(methods)}, or leave it out"
            )

    def _suggestion(
        self,
        key: str,
        above: str,
        siblings: list[str],
    ) -> str:
        """The nearest name: in the section, else in other methods, else anywhere."""
        near = closest(key, siblings)
        if near:
            return f"did you mean {above}{near}?"
        near = closest(key, names_of_methods()) if above == "rollout." else None
        if near:
            methods = " or ".join(methods_with(near))
            return f"did you mean {above}{near}, with --method {methods}?"
        everywhere = list(_paths(self._kind, ""))
        homonyms = [path for path in everywhere if path.rpartition(".")[2] == key]
        # policy.temperature is more likely meant than a judge's temperature.
        top = min((path.count(".") for path in homonyms), default=0)
        homonyms = [path for path in homonyms if path.count(".") == top]
        # The same name in another section may differ more in its path than another
        # name.
        near = closest(f"{above}{key}", homonyms, 0.4)
        if not homonyms:
            near = closest(f"{above}{key}", everywhere, 0.7)
        if near:
            return f"did you mean {near}?"
        return f"there are {', '.join(above + name for name in siblings)}"


def _paths(section: type[msgspec.Struct], above: str) -> Iterator[str]:
    """The paths of all settings of a section and its subsections."""
    for field in msgspec.structs.fields(section):
        yield f"{above}{field.name}"
        inner = section_in(field.type)
        if inner is not None:
            yield from _paths(inner, f"{above}{field.name}.")


def _refuse_absurd(place: str, value: Any, path: str) -> None:
    """Raises UsageError for a number or text that no record can store.

    Some settings accept anything: credit, environment.options.
    """
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _refuse_absurd(place, key, path)
            _refuse_absurd(place, inner, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _refuse_absurd(place, inner, f"{path}[{index}]")
    elif isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{place}: {path}: expected a finite number, got {value}")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise UsageError(f"{place}: {path}: expected a number of 64 bits, got {value}")
    elif isinstance(value, str) and UNWRITABLE.search(value):
        raise UsageError(
            f"{place}: {path}: {value!a} holds NUL or half of a character, which no "
            "file can; leave it out"
        )
