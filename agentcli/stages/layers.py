"""Settings from layers: of the folder, recorded, preset, files, variables, options.

Every layer is a nested mapping and is checked separately, so that an error names its
source. Later layers win, key by key; a list is replaced as a whole. A method owns its
section: whoever names another method starts the section anew (`_left_behind`). Nothing
here depends on the command, or checks whether a value makes sense in a world: the
stages do that.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from agentcli.credit.registry import shared_switches, switches_of
from agentcli.environments.registry import TOKEN_VARIABLE
from agentcli.errors import DataError, UsageError, prefixed
from agentcli.exploration.registry import method_names
from agentcli.exploration.settings import (
    decode,
    evaluation_class,
    named,
    rollout_class,
    settings_class,
)
from agentcli.records.section import read, section_in
from agentcli.records.settings import RolloutSettings, Settings
from agentcli.registry import closest, nearest
from agentcli.stages.plan import without
from agentcli.stages.yaml_files import Values, parse_value, read_yaml

PREFIX = "AGENTCLI_"
NOT_SETTINGS = frozenset({"AGENTCLI_DEBUG", "AGENTCLI_CACHE", TOKEN_VARIABLE})
RECORDED = "recorded settings"
PROJECT = Path("agentcli.yaml")
"""The settings of a folder, which all commands that are typed there begin with."""
EXTENDS = "extends"
"""Key of a settings file: the shipped presets whose settings it starts from."""
PACKAGE = Path(__file__).resolve().parents[1]
EMPTY: Values = MappingProxyType({})
METHODS = ("rollout.method", "credit.method")
"""The settings that name the method that owns a section."""
OPTIONED = ("environment.name", "train.objective")
"""The settings that name whose the `options` beside them are."""
UNWRITABLE = re.compile("[\0\ud800-\udfff]")
"""NUL, and surrogates, which come from YAML escapes or from shell words not in UTF-8.
"""


class Layer(NamedTuple):
    """Settings from one source: a variable, an option, a file with what it extends."""

    place: str
    values: Values
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
) -> Settings:
    """The settings of these layers. Raises what `gather` and `merge` raise."""
    return merge(gather(preset, files, environ, sets, flags, base, names))


def gather(
    preset: str | None = None,
    files: Sequence[Path] = (),
    environ: Mapping[str, str] = EMPTY,
    sets: Sequence[str] = (),
    flags: Values = EMPTY,
    base: Settings | Values | None = None,
    names: Mapping[str, str] = EMPTY,
    project: Path | None = None,
) -> list[Layer]:
    """The layers of one command, the lowest first.

    Precedence: defaults < `project` (of the folder) < `base` (recorded by a run) <
    preset < `files` left to right < AGENTCLI_* in `environ` < `sets` ("path=value", the
    value in YAML) and `flags` (dotted path -> value, only those that were given).
    `names` gives the spelling of the option for a path.

    Raises UsageError for a file that is no YAML mapping, and for one path in both
    `sets` and `flags`.
    """
    layers = []
    if project is not None:
        # Not as the user's: it serves every command, so it may hold settings of a
        # method that this one replaces.
        layers.append(Layer(str(project), file_values(project), users=False))
    if base is not None:
        layers.append(Layer(RECORDED, msgspec.to_builtins(base), users=False))
    if preset is not None:
        file = find_preset(preset)
        layers.append(Layer(str(file), file_values(file), users=False))
    layers += [Layer(str(file), file_values(file)) for file in files]
    layers += _from_environment(environ)
    layers += _from_options(sets, flags, names)
    return layers


def merge(layers: Sequence[Layer]) -> Settings:
    """The settings of layers; later ones win.

    Raises UsageError for an unknown key, a wrong type, or a user's setting for a method
    that a later layer replaces. Raises DataError for recorded settings that this
    version cannot read.
    """
    merged = msgspec.to_builtins(Settings())
    # Known before merging: an earlier layer must drop what a later one replaces.
    last = {key: _last_named(layers, key, merged) for key in (*METHODS, *OPTIONED)}
    for layer in layers:
        _check(layer, last["rollout.method"][0])
        merged = overlay(merged, _without_former(layer, last))
    return decode(merged)


def file_values(path: Path, above: Sequence[Path] = ()) -> Values:
    """The settings of a file, over those of the presets that it `extends`, and so on.

    Of several presets the later one wins. `above` are the files that extend this one.
    Raises UsageError.
    """
    values = read_yaml(path)
    merged = EMPTY
    known = {preset.stem: preset for preset in list_presets()}
    for base in bases_of(values):
        if base not in known:
            problem = f"no preset {base!r}; {nearest(base, known)}"
            raise UsageError(f"{path}: {EXTENDS}: {problem}")
        if known[base] in (*above, path):
            raise UsageError(f"{path}: {EXTENDS}: {base} extends this preset in turn")
        merged = overlay(merged, file_values(known[base], [*above, path]))
    own = {key: value for key, value in values.items() if key != EXTENDS}
    return overlay(merged, own)


def bases_of(values: Values) -> list[str]:
    """The presets that a file with these values extends: one by its name, or a list."""
    bases = values.get(EXTENDS, [])
    return [str(base) for base in (bases if isinstance(bases, list) else [bases])]


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


def shown(value: Any) -> str:
    """A value as it might have been typed."""
    if isinstance(value, Mapping):
        pairs = [f"{key}={shown(one)}" for key, one in value.items()]
        return ",".join(pairs)
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value)


def presets_folder() -> Path:
    """The folder of the shipped presets."""
    packaged = PACKAGE / "presets"
    # In a checkout they are next to the package.
    return packaged if packaged.is_dir() else PACKAGE.parent / "presets"


def list_presets() -> list[Path]:
    """The shipped presets, sorted by name."""
    return sorted(presets_folder().glob("*.yaml"))


def same_files(places: Iterable[str]) -> list[str]:
    """The words for the settings files among the places of layers; a preset's first.

    A shipped preset is named as --preset NAME, any other file as -c FILE.
    """
    shipped = {str(path): path.stem for path in list_presets()}
    words = []
    for place in places:
        if place in shipped:
            words += ["--preset", shipped[place]]
        # An option has its words as its place. The folder's own file is read anyway.
        elif place.endswith((".yaml", ".yml")) and place[0] != "-":
            words += ["-c", place] if place != str(PROJECT) else []
    return words


def purpose_of(file: Path) -> str:
    """The first line of a shipped file, which says what it is for."""
    return file.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")


def find_preset(name: str) -> Path:
    """A shipped preset by name, or any file by its path.

    Raises UsageError with the nearest name.
    """
    return find_shipped(name, "preset", list_presets())


def find_shipped(name: str, kind: str, shipped: Iterable[Path]) -> Path:
    """One of the files that come along, by its stem; any other file by its path.

    Raises UsageError with the nearest name; `kind` is what such a file is called.
    """
    if name.endswith((".yaml", ".yml")) or "/" in name:
        return Path(name)
    known = {path.stem: path for path in shipped}
    if name not in known:
        raise UsageError(f"no {kind} {name!r}; {nearest(name, known)}")
    return known[name]


def _last_named(layers: Sequence[Layer], key: str, defaults: Values) -> tuple[str, str]:
    """The owner that the last layer names at `key`, and the place of that layer.

    Raises UsageError for an exploration method that does not exist.
    """
    last = (str(named(defaults, key)), "")
    for layer in layers:
        owner = named(layer.values, key)
        if owner is None:
            continue
        last = (owner, layer.place)
        if key == "rollout.method":
            with prefixed(layer.place, UsageError):
                rollout_class(owner)
    return last


def _without_former(layer: Layer, last: Mapping[str, tuple[str, str]]) -> Values:
    """The settings of a layer, without those of an owner that another one replaces.

    A layer that names no owner is meant for the last one. Raises UsageError if the user
    wrote what would be left out for another method.
    """
    values = layer.values
    for key, (owner, place) in last.items():
        former = named(values, key) or owner
        if former == owner:
            continue
        lost = _left_behind(values, key, owner)
        if key in METHODS and layer.users and any(lost.values()):
            paths = [f"{name}.{one}" for name, found in lost.items() for one in found]
            raise UsageError(
                f"{layer.place}: {', '.join(paths)}: of {key} {former}, and {place} "
                f"makes it {owner}; leave one of them out"
            )
        if key == "credit.method" and not layer.users:
            # How tokens are averaged is a part of a method's loss.
            lost["train"] = ["aggregate"]
        values = without(values, lost)
    return values


def _left_behind(values: Values, key: str, owner: str) -> dict[str, list[str]]:
    """By section, the settings that `owner` does not share with the one before it.

    Exploration methods share RolloutSettings; credit methods the switches of
    credit/switches.py, if both have them. Worlds and objectives share all but options.
    """
    if key == "rollout.method":
        shared = {
            "rollout": RolloutSettings.__struct_fields__,
            "evaluation": evaluation_class(RolloutSettings().method).__struct_fields__,
        }
    elif key == "credit.method":
        common = shared_switches()
        if len(values["credit"]) > 1:
            common = common.intersection(switches_of(owner))
        shared = {"credit": ("method", *common)}
    else:
        return {key.partition(".")[0]: ["options"]}
    return {
        part: [name for name in values.get(part, {}) if name not in names]
        for part, names in shared.items()
    }


def _check(layer: Layer, method: str) -> None:
    """Refuses an unknown key, a wrong type, or a value that no record can store.

    `method` is the exploration method, if the layer names none. Raises UsageError
    "place: dotted.key: what is wrong"; DataError for recorded settings.
    """
    place, values, _ = layer
    method = named(values, "rollout.method") or method
    try:
        read(values, settings_class(method), f"{place}: ", hint=partial(_hint, method))
        _refuse_absurd(place, values, "")
    except RecursionError as error:
        raise UsageError(f"{place}: is nested too deeply") from error
    except UsageError as error:
        if place != RECORDED:
            raise
        raise DataError(
            f"{error}; name the settings with --preset or -c instead of inheriting them"
        ) from error


def _hint(method: str, path: str, siblings: list[str]) -> str:
    """What to do about an unknown path.

    It may be a setting of another method. Else the nearest name is meant, in the same
    section, in that of another method, or anywhere.
    """
    methods: dict[str, list[str]] = {}
    for name in method_names():
        for known in _paths(settings_class(name), ""):
            methods.setdefault(known, []).append(name)
    if path in methods:
        others = " or ".join(methods[path])
        return f"{method} has none: add --method {others}, or leave it out"
    above, dot, key = path.rpartition(".")
    remedies = ((siblings, ""), (list(methods), ", with --method {}"))
    for names, remedy in remedies:
        beside = [one for one in names if one.rpartition(".")[0] == above]
        near = closest(key, [one.rpartition(".")[2] for one in beside])
        if near:
            name = f"{above}{dot}{near}"
            others = " or ".join(methods.get(name, ()))
            return f"did you mean {name}{remedy.format(others)}?"
    everywhere = list(_paths(settings_class(method), ""))
    homonyms = [one for one in everywhere if one.rpartition(".")[2] == key]
    # policy.temperature is more likely meant than a judge's temperature.
    top = min((one.count(".") for one in homonyms), default=0)
    homonyms = [one for one in homonyms if one.count(".") == top]
    # The same name in another section may differ more in its path than another name.
    near = closest(path, homonyms, 0.4) if homonyms else closest(path, everywhere, 0.7)
    return f"did you mean {near}?" if near else f"there are {', '.join(siblings)}"


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


def _from_environment(environ: Mapping[str, str]) -> Iterator[Layer]:
    for name, text in sorted(environ.items()):
        if name.startswith(PREFIX) and name not in NOT_SETTINGS:
            path = name.removeprefix(PREFIX).lower().replace("__", ".")
            yield Layer(name, nest(path, parse_value(name, text)))


def _from_options(
    sets: Sequence[str],
    flags: Values,
    names: Mapping[str, str],
) -> Iterator[Layer]:
    """Raises UsageError for a setting that is given in both ways."""
    assignments = [_from_set(text) for text in sets]
    yield from assignments
    for path, value in flags.items():
        name = names.get(path, f"option {path}")
        option = f"{name} {shown(value)}"
        for place, values, _ in assignments:
            if _holds(values, path.split(".")):
                raise UsageError(
                    f"{place.partition('=')[0]} and {option} say the same thing; keep "
                    "one of them"
                )
        yield Layer(option, nest(path, value))


def _from_set(text: str) -> Layer:
    place = f"--set {text}"
    path, equals, value = text.partition("=")
    if not equals or not path:
        raise UsageError(
            f"{place}: write path=value, for instance --set rollout.leaves=4"
        )
    return Layer(place, nest(path, parse_value(place, value)))


def nest(path: str, value: Any) -> Values:
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
