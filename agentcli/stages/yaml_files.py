"""Reads YAML settings files with the safe loader, with its faults corrected.

A duplicate key and an alias are refused; 1e-6 is a number, 010 is ten, and `on` and
`off` are words (YAML 1.2). Every error is one line with file and line number.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from agentcli.errors import DataError, UsageError
from agentcli.records.faults import one_line
from agentcli.records.regular import read_regular

Values = Mapping[str, Any]
"""Plain values of settings, by section and name."""


def read_yaml(path: Path) -> Values:
    """The mapping in a YAML file; {} for an empty file.

    Raises UsageError with file and line.
    """
    try:
        value = _parse(read_regular(path).decode())
    except DataError as error:
        raise UsageError(str(error)) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}{_problem(error)}") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UsageError(
            f"{path}: expected settings as 'section: ...', got {type(value).__name__}"
        )
    return value


def parse_value(place: str, text: str) -> Any:
    """Parses a value at `place` as YAML. Raises UsageError."""
    try:
        return _parse(text)
    except yaml.YAMLError as error:
        raise UsageError(f"{place}: the value is not YAML{_problem(error)}") from error


STUMBLES = (TypeError, ValueError, LookupError, AttributeError, RecursionError)
"""Errors of the library's constructors.

They are caused by impossible dates and unlimited nesting.
"""


class _Loader(yaml.SafeLoader):
    """The safe loader with corrections."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """The next node. Ten lines of aliases of aliases would hold 10^10 values."""
        if self.check_event(yaml.AliasEvent):
            alias = self.peek_event()  # type: ignore[no-untyped-call]
            fault = f"*{alias.anchor} is an alias; write the value itself in its place"
            raise yaml.composer.ComposerError(None, None, fault, alias.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Any, Any]:
        """A mapping without duplicate keys."""
        keys: set[Any] = set()
        for key_node, _ in node.value:
            fault = None
            if not isinstance(key_node, yaml.ScalarNode):
                fault = "a key is a name, and here is a list or a mapping"
            # PyYAML would silently take the last one.
            elif key_node.value in keys:
                fault = f"key {key_node.value!r} is there twice"
            if fault is not None:
                mark = key_node.start_mark
                raise yaml.constructor.ConstructorError(None, None, fault, mark)
            keys.add(key_node.value)
        return super().construct_mapping(node, deep)


# The library implements YAML 1.1, in which 1e-6 is text, 010 is 8 and 1:30 is 90.
INT, FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
_Loader.yaml_implicit_resolvers = {
    letter: [pair for pair in pairs if pair[0] not in (INT, FLOAT)]
    for letter, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    # It also reads `off` as false.
    if letter not in "oO"
}
_DIGITS = "-+0123456789"
_Loader.add_implicit_resolver(INT, re.compile(r"^[-+]?[0-9]+$"), list(_DIGITS))
_Loader.add_implicit_resolver(
    FLOAT,
    re.compile(
        r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$"
        r"|^[-+]?\.(?:inf|Inf|INF)$|^\.(?:nan|NaN|NAN)$"
    ),
    list(_DIGITS + "."),
)


def _decimal(loader: _Loader, node: yaml.ScalarNode) -> int:
    return int(loader.construct_scalar(node))


_Loader.add_constructor(INT, _decimal)


def _parse(text: str) -> Any:
    """The value of a YAML text. Raises yaml.YAMLError for every error."""
    try:
        return yaml.load(text, Loader=_Loader)
    except STUMBLES as error:
        raise yaml.YAMLError(f"{type(error).__name__}: {error}") from error


def _problem(error: Exception) -> str:
    """A fault of a YAML file as ":line: fault", on one line."""
    if isinstance(error, UnicodeDecodeError):
        before = error.object[: error.start].split(b"\n")
        return f":{len(before)}: not UTF-8 (byte {len(before[-1])}); save it as UTF-8"
    mark = getattr(error, "problem_mark", None)
    line = f":{mark.line + 1}" if mark is not None else ""
    problem = getattr(error, "problem", None) or one_line(error)
    return f"{line}: {problem}"
