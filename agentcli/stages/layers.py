"""Settings from layers: defaults, or what a run recorded, then preset, files, environment variables, --set and flags.

Every layer is a nested mapping that is checked by itself, so that an error names the file, variable or option that
holds it, the dotted key, and the nearest name. Later layers win; mappings merge key by key. Nothing here knows which
command asks, nor whether a value makes sense in a world: the stages check that.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
import yaml

from agentcli.errors import DataError, UsageError
from agentcli.records.settings import Settings
from agentcli.registry import closest, nearest

PREFIX = "AGENTCLI_"
NOT_SETTINGS = frozenset({"AGENTCLI_DEBUG", "AGENTCLI_CACHE"})
AGGREGATE = "train.aggregate"
PACKAGE = Path(__file__).resolve().parents[1]

Layer = tuple[str, dict[str, Any]]
"""Where a layer comes from, and its nested mapping."""


def resolve(
    preset: str | None,
    files: Sequence[Path],
    environ: Mapping[str, str],
    sets: Sequence[str],
    flags: Mapping[str, Any],
    base: Settings | Mapping[str, Any] | None = None,
    names: Mapping[str, str] | None = None,
    note: Callable[[str], None] | None = None,
) -> Settings:
    """The settings of one command.

    Precedence: defaults or `base` (what a run recorded) < preset < `files` left to right < AGENTCLI_* in `environ` <
    `sets` ("path=value", the value in YAML) and `flags` (dotted path -> value, only those that were given). Where a layer
    changes `credit.method`, switches set below that the new method has too stay, and those of `base` or the preset that it has
    not are left out; where one changes `environment.name`, the former world's `options` are. `note` is told of both. `names`
    says how the option for a path is written.
    Raises UsageError for an unknown key, a wrong type, one path in both `sets` and `flags`, or a switch of the user's own for
    a method that a later layer replaces; DataError for a `base` that this version cannot read.
    """
    merged: dict[str, Any] = msgspec.to_builtins(Settings())
    notes: list[str] = []
    if base is not None:
        merged = _merge(merged, _recorded(base), "recorded settings", {}, notes)
    own: dict[str, str] = {}
    for number, (place, layer) in enumerate(_layers(preset, files, environ, sets, flags, names or {})):
        _check(place, layer)
        merged = _merge(merged, layer, place, own, notes)
        if preset is None or number > 0:
            own |= dict.fromkeys(layer.get("credit", {}), place)
            if "aggregate" in layer.get("train", {}):
                own[AGGREGATE] = place
    if note is not None:
        for text in notes:
            note(text)
    return msgspec.convert(merged, Settings)


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file, {} for an empty one. Raises UsageError with file and line."""
    try:
        value = _parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}{_problem(error)}") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UsageError(f"{path}: expected settings as 'section: ...', got {type(value).__name__}")
    return value


def presets_folder() -> Path:
    """Folder of the shipped presets: inside the installed package, or beside it in a checkout."""
    packaged = PACKAGE / "presets"
    return packaged if packaged.is_dir() else PACKAGE.parent / "presets"


def list_presets() -> list[Path]:
    """The shipped presets, by name."""
    return sorted(presets_folder().glob("*.yaml"))


def find_preset(name: str) -> Path:
    """A shipped preset by name, or any file by its path. Raises UsageError with the nearest name."""
    if name.endswith((".yaml", ".yml")) or "/" in name:
        return Path(name)
    known = {path.stem: path for path in list_presets()}
    if name not in known:
        raise UsageError(f"no preset {name!r}; {nearest(name, sorted(known))}")
    return known[name]


def _layers(
    preset: str | None,
    files: Sequence[Path],
    environ: Mapping[str, str],
    sets: Sequence[str],
    flags: Mapping[str, Any],
    names: Mapping[str, str],
) -> Iterator[Layer]:
    for file in ([find_preset(preset)] if preset is not None else []) + list(files):
        yield str(file), read_yaml(file)
    yield from _joined("AGENTCLI_*", list(_from_environment(environ)))
    assignments = [_from_set(text) for text in sets]
    typed = {path: f"{names.get(path, f'option {path}')} {_shown(value)}" for path, value in flags.items()}
    for place, layer in assignments:
        for path, option in typed.items():
            if _holds(layer, path.split(".")):
                raise UsageError(f"{place.partition('=')[0]} and {option} say the same thing; keep one of them")
    options = [(typed[path], _nest(path, value)) for path, value in flags.items()]
    yield from _joined("options", [*assignments, *options])


def _shown(value: Any) -> str:
    """A value as it may have been typed."""
    if isinstance(value, Mapping):
        return ",".join(f"{key}={_shown(one)}" for key, one in value.items())
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _joined(place: str, layers: list[Layer]) -> Iterator[Layer]:
    """Several one-key layers checked one by one, then given as one layer."""
    joined: dict[str, Any] = {}
    for name, layer in layers:
        _check(name, layer)
        joined = _overlay(joined, layer)
    if joined:
        yield place, joined


def _from_environment(environ: Mapping[str, str]) -> Iterator[Layer]:
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in NOT_SETTINGS:
            path = name[len(PREFIX) :].lower().replace("__", ".")
            yield name, _nest(path, _value(name, environ[name]))


def _from_set(text: str) -> Layer:
    path, equals, value = text.partition("=")
    if not equals or not path:
        raise UsageError(f"--set {text}: write path=value, for instance --set rollout.leaves=4")
    return f"--set {text}", _nest(path, _value(f"--set {text}", value))


def _value(place: str, text: str) -> Any:
    try:
        return _parse(text)
    except yaml.YAMLError as error:
        raise UsageError(f"{place}: the value is not YAML{_problem(error)}") from error


def _nest(path: str, value: Any) -> dict[str, Any]:
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


def _holds(layer: Any, path: list[str]) -> bool:
    return not path or (isinstance(layer, dict) and path[0] in layer and _holds(layer[path[0]], path[1:]))


def _overlay(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Deep merge: `above` wins, mappings merge by key, anything else (lists too) is replaced."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = _overlay(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _merge(
    below: dict[str, Any], layer: Mapping[str, Any], place: str, own: Mapping[str, str], notes: list[str]
) -> dict[str, Any]:
    """`_overlay`, except that another credit method starts with those switches below that it has, another world without options.
    What else that changes is added to `notes`."""
    below = _without_aggregate(below, layer, own, notes)
    below = {**below, "credit": _carried(below["credit"], layer.get("credit", {}), place, own, notes)}
    world, former = layer.get("environment", {}).get("name"), below["environment"].get("name")
    if world is not None and world != former:
        options = below["environment"].get("options")
        if options:
            notes.append(f"environment.name {world}, not {former}: leaves out {former}'s options {', '.join(options)}")
        below = {**below, "environment": {**below["environment"], "options": {}}}
    return _overlay(below, layer)


def _without_aggregate(
    below: dict[str, Any], layer: Mapping[str, Any], own: Mapping[str, str], notes: list[str]
) -> dict[str, Any]:
    """`below`, its train.aggregate unset where it came with another credit method and not from the user."""
    former, method = below["credit"].get("method"), layer.get("credit", {}).get("method")
    chosen = below["train"].get("aggregate")
    if method in (None, former) or chosen is None or AGGREGATE in own:
        return below
    notes.append(f"credit.method {method}, not {former}: leaves out {former}'s train.aggregate {chosen}")
    return {**below, "train": {**below["train"], "aggregate": None}}


def _carried(
    below: dict[str, Any], above: Mapping[str, Any], place: str, own: Mapping[str, str], notes: list[str]
) -> dict[str, Any]:
    """What stays of the credit settings `below` under a layer. `own`: switch -> the place where the user set it.

    Of a preset's and a run's switches only those stay that mean the same in every method; a discount or a weight does not.
    Raises UsageError where that loses a switch of the user's own.
    """
    former, method = below.get("method"), above.get("method")
    switches = {name: value for name, value in below.items() if name != "method"}
    if method is None or method == former or not isinstance(method, str):
        return below
    if not switches:
        return {}
    from agentcli.credit.registry import shared_switches, switches_of

    shared = [name for name in switches_of(method) if name in own or name in shared_switches()]
    kept = {name: value for name, value in switches.items() if name in shared}
    lost = sorted(name for name in switches if name not in kept and name not in above)
    for name in lost:
        if name in own:
            raise UsageError(
                f"{own[name]}: credit.{name}: is a switch of {former}, and {place} makes credit.method {method}, which has no "
                "such switch; leave one of them out"
            )
    stay = [f"{name} {_shown(value)}" for name, value in sorted(kept.items()) if name not in above]
    said = [f"keeps {', '.join(stay)}"] if stay else []
    said += [f"leaves out {former}'s {', '.join(lost)}"] if lost else []
    notes += [f"credit.method {method}, not {former}: {'; '.join(said)}"] if said else []
    return kept


def _recorded(base: Settings | Mapping[str, Any]) -> dict[str, Any]:
    values = msgspec.to_builtins(base)
    try:
        _check("recorded settings", values)
    except UsageError as error:
        raise DataError(f"{error}; name the settings with --preset or -c instead of inheriting them") from error
    return values


def _check(place: str, layer: Mapping[str, Any]) -> None:
    """Raises UsageError "place: dotted.key: what is wrong" for an unknown key or a wrong type."""
    try:
        _refuse_unknown(place, layer, Settings, "")
        msgspec.convert(layer, Settings)
        _refuse_absurd(place, layer, "")
    except RecursionError as error:
        raise UsageError(f"{place}: holds a value that contains itself, or is nested without end") from error
    except msgspec.ValidationError as error:
        message, _, path = str(error).replace("`", "").replace("at key in $", "at $").partition(" - at $.")
        choices = _choices(path)
        expected = f"expected one of {', '.join(choices)}" if choices else message[:1].lower() + message[1:]
        raise UsageError(f"{place}: {path}: {expected}") from error


def _refuse_absurd(place: str, value: Any, path: str) -> None:
    """Numbers that no record can hold, where a setting takes anything (credit, environment.options)."""
    inner = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        _refuse_absurd(place, one, f"{path}[{key}]" if isinstance(value, list) else f"{path}.{key}".lstrip("."))
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{place}: {path}: expected a finite number, got {value}")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise UsageError(f"{place}: {path}: expected a number of 64 bits, got {value}")


def _refuse_unknown(place: str, layer: Mapping[str, Any], section: type[msgspec.Struct], above: str) -> None:
    fields = {field.name: field.type for field in msgspec.structs.fields(section)}
    for key, value in layer.items():
        path = f"{above}{key}"
        if key not in fields:
            raise UsageError(f"{place}: no setting {path!r}; {_suggestion(str(key), above, list(fields))}")
        if _is_section(fields[key]) and isinstance(value, Mapping):
            _refuse_unknown(place, value, fields[key], f"{path}.")


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _suggestion(key: str, above: str, siblings: list[str]) -> str:
    """The nearest name: among the section's own, then the same name in another section, then anywhere."""
    everywhere = list(_paths(Settings, ""))
    elsewhere = [path for path in everywhere if path.rpartition(".")[2] == key]
    sibling = closest(key, siblings)
    near = above + sibling if sibling else closest(f"{above}{key}", elsewhere or everywhere, 0.4 if elsewhere else 0.7)
    return f"did you mean {near}?" if near else f"there are {', '.join(above + name for name in siblings)}"


def _paths(section: type[msgspec.Struct], above: str) -> Iterator[str]:
    for field in msgspec.structs.fields(section):
        yield f"{above}{field.name}"
        if _is_section(field.type):
            yield from _paths(field.type, f"{above}{field.name}.")


def _choices(path: str) -> tuple[str, ...]:
    """What a Literal setting, or each of a list of them, may be; empty for any other."""
    kind: Any = Settings
    for key in path.partition("[")[0].split("."):
        kind = (
            next((field.type for field in msgspec.structs.fields(kind) if field.name == key), None)
            if _is_section(kind)
            else None
        )
    if "[" in path and get_origin(kind) is list:
        (kind,) = get_args(kind)
    kind = next((one for one in (kind, *get_args(kind)) if get_origin(one) is Literal), None)
    return get_args(kind)


class _Loader(yaml.SafeLoader):
    """The safe loader, with two faults mended: duplicate keys are refused, and 1e-6 is a number (YAML 1.2)."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = key_node.value
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is there twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def _install_number_resolver() -> None:
    import re

    number = re.compile(r"^[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+$")
    _Loader.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+0123456789"))


_install_number_resolver()


def _parse(text: str) -> Any:
    """Raises yaml.YAMLError, also for what makes the library's constructors stumble (dates that are none, keys that are lists,
    nesting without end)."""
    try:
        return yaml.load(text, Loader=_Loader)
    except (TypeError, ValueError, LookupError, AttributeError, RecursionError) as error:
        raise yaml.YAMLError(f"{type(error).__name__}: {error}") from error


def _problem(error: Exception) -> str:
    """ ":line: what" of a YAML error, on one line."""
    mark = getattr(error, "problem_mark", None)
    line = f":{mark.line + 1}" if mark is not None else ""
    return f"{line}: {getattr(error, 'problem', None) or ' '.join(str(error).split())}"
