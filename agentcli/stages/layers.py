"""Settings from layers: recorded ones, preset, files, variables, --set and flags.

Every layer is a nested mapping and is checked separately (known.py), so that an error
names its source. Later layers win (merging.py). Nothing here depends on the command, or
checks whether a value makes sense in a world: the stages do that.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from agentcli.environments.registry import TOKEN_VARIABLE
from agentcli.errors import DataError, UsageError
from agentcli.exploration.settings import decode, method_of, rollout_class
from agentcli.records.settings import Settings
from agentcli.registry import nearest
from agentcli.stages.known import check, without_foreign
from agentcli.stages.merging import Merger, overlay, shown
from agentcli.stages.yaml_files import Values, parse_value, read_yaml

PREFIX = "AGENTCLI_"
NOT_SETTINGS = frozenset({"AGENTCLI_DEBUG", "AGENTCLI_CACHE", TOKEN_VARIABLE})
RECORDED = "recorded settings"
OPTIONS = "options"
EXTENDS = "extends"
"""Key of a settings file: the shipped preset whose settings it starts from."""
PACKAGE = Path(__file__).resolve().parents[1]
EMPTY: Values = MappingProxyType({})

Part = tuple[str, Values]
"""The source of some settings, and their nested mapping."""


class Layer(NamedTuple):
    """Settings of equal precedence.

    A layer is what a run recorded, one file, all variables, or all options.
    """

    place: str
    parts: Sequence[Part]
    users: bool = True
    """Whether the user wrote them; False for recorded ones and presets."""


def resolve(
    preset: str | None = None,
    files: Sequence[Path] = (),
    environ: Mapping[str, str] = EMPTY,
    sets: Sequence[str] = (),
    flags: Values = EMPTY,
    base: Settings | Values | None = None,
    names: Mapping[str, str] = EMPTY,
    note: Callable[[str], None] | None = None,
) -> Settings:
    """The settings of one command.

    Precedence: defaults or `base` (recorded by a run) < preset < `files` left to right
    < AGENTCLI_* in `environ` < `sets` ("path=value", the value in YAML) and `flags`
    (dotted path -> value, only those that were given). `names` gives the spelling of
    the option for a path. `note` gets a line for settings that are left out because the
    method or world changes.

    Raises UsageError for an unknown key, a wrong type, one path in both `sets` and
    `flags`, or a user's setting for a method that a later layer replaces. Raises
    DataError for a `base` that this version cannot read.
    """
    layers = []
    if base is not None:
        recorded = (RECORDED, msgspec.to_builtins(base))
        layers.append(Layer(RECORDED, [recorded], users=False))
    if preset is not None:
        shipped = file_layer(find_preset(preset))
        layers.append(shipped._replace(users=False))
    layers += map(file_layer, files)
    variables = list(_from_environment(environ))
    layers.append(Layer("AGENTCLI_*", variables))
    options = list(_from_options(sets, flags, names))
    layers.append(Layer(OPTIONS, options))
    method = _last_method([part for layer in layers for part in layer.parts])
    merger = Merger(msgspec.to_builtins(Settings()))
    layers = [_for_method(layer, method, merger.notes) for layer in layers]
    _check_all(layers, method)
    for layer in layers:
        merger.add(layer.place, values_of(layer), users=layer.users)
    if note is not None:
        for text in merger.notes:
            note(text)
    return decode(merger.values)


def file_layer(path: Path) -> Layer:
    """A settings file as a layer; below it the preset that it `extends`, and so on.

    Raises UsageError.
    """
    return Layer(str(path), _with_base(path, ()))


def values_of(layer: Layer) -> Values:
    """The settings of a layer's parts, later ones over earlier ones."""
    merged: Values = {}
    for _, values in layer.parts:
        merged = overlay(merged, values)
    return merged


def _with_base(path: Path, above: Sequence[Path]) -> list[Part]:
    """The settings of a file and of what it extends, the lowest first."""
    values = dict(read_yaml(path))
    parts: list[Part] = [(str(path), values)]
    if EXTENDS not in values:
        return parts
    base = values.pop(EXTENDS)
    if not isinstance(base, str):
        raise UsageError(f"{path}: {EXTENDS}: takes the name of one shipped preset")
    known = {preset.stem: preset for preset in list_presets()}
    if base not in known:
        problem = f"no preset {base!r}; {nearest(base, known)}"
        raise UsageError(f"{path}: {EXTENDS}: {problem}")
    if known[base] in (*above, path):
        raise UsageError(f"{path}: {EXTENDS}: {base} extends this preset in turn")
    return [*_with_base(known[base], [*above, path]), *parts]


def presets_folder() -> Path:
    """The folder of the shipped presets."""
    packaged = PACKAGE / "presets"
    # In a checkout they are next to the package.
    return packaged if packaged.is_dir() else PACKAGE.parent / "presets"


def list_presets() -> list[Path]:
    """The shipped presets, sorted by name."""
    return sorted(presets_folder().glob("*.yaml"))


def find_preset(name: str) -> Path:
    """A shipped preset by name, or any file by its path.

    Raises UsageError with the nearest name.
    """
    if name.endswith((".yaml", ".yml")) or "/" in name:
        return Path(name)
    known = {path.stem: path for path in list_presets()}
    if name not in known:
        raise UsageError(f"no preset {name!r}; {nearest(name, known)}")
    return known[name]


def _for_method(
    layer: Layer,
    method: str,
    notes: list[str],
) -> Layer:
    """The layer without settings that only other exploration methods have.

    This way one file can serve every stage. `notes` get a line for settings left out.
    """
    # Options are taken literally.
    if layer.place == OPTIONS:
        return layer
    parts = []
    for place, values in layer.parts:
        # So is a part that names a method itself.
        if method_of(values, otherwise=""):
            parts.append((place, values))
            continue
        kept, foreign = without_foreign(values, method)
        parts.append((place, kept))
        if foreign:
            notes.append(
                f"{place}: leaves out {', '.join(foreign)}, which rollout.method "
                f"{method} does not have"
            )
    return layer._replace(parts=parts)


def _check_all(layers: Sequence[Layer], method: str) -> None:
    """Checks every part separately, for the given method."""
    try:
        for layer in layers:
            for place, values in layer.parts:
                check(place, values, method)
    except UsageError as error:
        if str(error).startswith(RECORDED):
            raise DataError(
                f"{error}; name the settings with --preset or -c instead of "
                "inheriting them"
            ) from error
        raise


def _last_method(parts: Sequence[Part]) -> str:
    """The last exploration method that is named.

    Raises UsageError for one that does not exist.
    """
    method = Settings().rollout.method
    for place, values in parts:
        method = method_of(values, otherwise=method)
        try:
            rollout_class(method)
        except UsageError as error:
            raise UsageError(f"{place}: {error}") from error
    return method


def _from_environment(environ: Mapping[str, str]) -> Iterator[Part]:
    for name, text in sorted(environ.items()):
        if name.startswith(PREFIX) and name not in NOT_SETTINGS:
            path = name.removeprefix(PREFIX).lower().replace("__", ".")
            yield name, _nest(path, parse_value(name, text))


def _from_options(
    sets: Sequence[str],
    flags: Values,
    names: Mapping[str, str],
) -> Iterator[Part]:
    """Raises UsageError for a setting that is given in both ways."""
    assignments = [_from_set(text) for text in sets]
    yield from assignments
    for path, value in flags.items():
        name = names.get(path, f"option {path}")
        option = f"{name} {shown(value)}"
        for place, values in assignments:
            if _holds(values, path.split(".")):
                raise UsageError(
                    f"{place.partition('=')[0]} and {option} say the same thing; keep "
                    "one of them"
                )
        yield option, _nest(path, value)


def _from_set(text: str) -> Part:
    place = f"--set {text}"
    path, equals, value = text.partition("=")
    if not equals or not path:
        raise UsageError(
            f"{place}: write path=value, for instance --set rollout.leaves=4"
        )
    return place, _nest(path, parse_value(place, value))


def _nest(path: str, value: Any) -> Values:
    """A nested mapping with `value` at a dotted path."""
    first, *inner = path.split(".")
    for key in reversed(inner):
        value = {key: value}
    return {first: value}


def _holds(layer: Any, path: list[str]) -> bool:
    """Whether there is a value at the path, or above it."""
    for key in path:
        if not isinstance(layer, dict) or key not in layer:
            return False
        layer = layer[key]
    return True
