"""Plug-ins by name: worlds, methods, policies, dialects and objectives.

A registry has a table of built-in names, each with the place of its object:
"module:thing", or "module" for the module itself. An installed package adds names under
the registry's entry-point group; a built-in name wins over an installed one. A plug-in
is imported only when it is requested, so that listing names is cheap.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from inspect import unwrap
from operator import attrgetter
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any, get_type_hints

from agentcli.errors import UsageError

OWN_FILES: dict[str, str] = {}
"""The Python files that plug-ins were taken from, as a setting names each."""
OWN_MODULES: dict[str, ModuleType] = {}
"""The modules made from these files; `sys.modules` has none of them, so that a file
named as a library hides nothing.
"""


def own_line(error: BaseException) -> str | None:
    """The last line, as FILE:LINE, that an error passed in one of OWN_FILES."""
    passed = None
    for frame, number in walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if file in OWN_FILES:
            passed = f"{OWN_FILES[file]}:{number}"
    return passed


def own_files(*names: str) -> list[Path]:
    """The Python files of the plug-ins that are named as folder/file.py:thing."""
    places = [name.partition(":") for name in names]
    return [Path(file) for file, colon, _ in places if colon and file.endswith(".py")]


@dataclass(eq=False)
class Registry:
    """The plug-ins of one kind.

    `group` is the entry-point group, `key` the setting that names a plug-in, `kind` a
    plug-in in words. `table` is read whenever a name is asked for. With `in_full` a
    name may also be a place, "module:thing" or "folder/file.py:thing".
    """

    group: str
    table: Mapping[str, str]
    _: KW_ONLY
    key: str
    kind: str
    in_full: bool = False

    def names(self) -> list[str]:
        """The built-in and installed names, sorted."""
        from importlib import metadata

        return sorted({*self.table, *metadata.entry_points(group=self.group).names})

    def place(self, name: str) -> str:
        """The "module:thing" that a name stands for.

        Raises UsageError with the nearest name for an unknown one.
        """
        if name in self.table:
            return self.table[name]
        if self.in_full and ":" in name[1:] and not name.endswith(":"):
            return name
        if self.in_full and name.removesuffix(":").endswith(".py"):
            raise UsageError(
                f"{self.key}: {name}: names a file and nothing in it; write it as "
                f"{name.removesuffix(':')}:NAME"
            )
        from importlib import metadata

        for point in metadata.entry_points(group=self.group, name=name):
            return f"{point.module}:{point.attr}" if point.attr else point.module
        hint = nearest(name, self.names())
        raise UsageError(f"{self.key}: no {self.kind} {name!r}; {hint}")

    def load(self, name: str) -> Any:
        """The thing itself, imported now.

        Raises UsageError with the nearest name, or for a place that does not exist, and
        the errors of its import.
        """
        place = self.place(name)
        module, colon, attributes = place.partition(":")
        try:
            with prints_aside():
                thing = self._module(module)
        except ImportError as error:
            # Its own module is missing: a wrong name. Any other module: not installed.
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise
            raise UsageError(
                f"{self.key}: {place}: no module {error.name} can be imported; "
                f"{_instead(module, attributes)}"
            ) from error
        try:
            return attrgetter(attributes)(thing) if colon else thing
        except AttributeError as error:
            raise UsageError(
                f"{self.key}: {place}: {module} has no {attributes}"
                f"{_near(attributes, thing)}"
            ) from error

    def function(
        self, name: str, member: str
    ) -> tuple[Callable[..., Any], dict[str, Any]]:
        """The function of a plug-in that is one, and the names in its module.

        It is what a place names, or `member` of the module that a name stands for.
        Raises UsageError if there is none, and what `load` raises.
        """
        plug_in = self.load(name)
        if isinstance(plug_in, ModuleType):
            names = vars(plug_in)
            function = names.get(member)
        else:
            names = getattr(unwrap(plug_in), "__globals__", {})
            function = plug_in
        if not callable(function):
            raise UsageError(
                f"{self.key}: {name} holds no function `{member}`; write the place of "
                "one as folder/file.py:function"
            )
        return function, names

    def settings_class(self, function: Callable[..., Any]) -> Any:
        """The class that `settings` of a plug-in's function is annotated with.

        Raises UsageError if it has none.
        """
        title = f"{self.key}: {getattr(function, '__name__', function)}"
        try:
            annotated = get_type_hints(function).get("settings")
        except NameError as error:
            raise UsageError(f"{title}: its annotations: {error}") from error
        if annotated is None:
            raise UsageError(
                f"{title} must have a parameter `settings`; annotate it with the class "
                "of its settings"
            )
        return annotated

    def _module(self, name: str) -> ModuleType:
        """A module by its name, or the one that a Python file makes."""
        if not name.endswith(".py"):
            return import_module(name)
        spec = spec_from_file_location(Path(name).stem, name)
        if spec is None or spec.loader is None or not Path(name).is_file():
            raise UsageError(
                f"{self.key}: {name}: no such file; write it as folder/file.py:NAME"
            )
        module = module_from_spec(spec)
        # As with a script, its neighbours can be imported; they shadow nothing.
        folder = str(Path(name).resolve().parent)
        if folder not in sys.path:
            sys.path.append(folder)
        OWN_FILES[os.path.abspath(name)] = name
        OWN_MODULES[module.__name__] = module
        try:
            spec.loader.exec_module(module)
        except SyntaxError as error:
            problem = f"line {error.lineno}: {error.msg}"
            raise UsageError(f"{self.key}: {name}: {problem}") from error
        except SystemExit as error:
            problem = "ends the program while it is imported"
            raise UsageError(f"{self.key}: {name}: {problem}") from error
        return module


def _instead(module: str, attributes: str) -> str:
    """What to write for a module that cannot be imported."""
    file = os.path.splitext(module)[0] + ".py"
    if os.path.isfile(file):
        return f"did you mean {file}:{attributes}?"
    if os.path.isfile(module):
        return "give the file a name that ends with .py"
    return (
        "write a file as folder/file.py:NAME, or type PYTHONPATH=. before agentcli; "
        "a file ends with .py"
    )


def _near(attributes: str, module: ModuleType) -> str:
    """The hint at what a module defines under the most similar name, or at all of it."""
    names = []
    for name, thing in vars(module).items():
        is_own = getattr(thing, "__module__", None) == module.__name__
        if is_own and callable(thing) and not name.startswith("_"):
            names.append(name)
    return f"; {nearest(attributes, names, 'it has')}" if names else ""


@contextmanager
def prints_aside() -> Iterator[None]:
    """Sends what a plug-in prints to stderr: stdout is for results."""
    with redirect_stdout(sys.stderr):
        yield


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
    """The most similar of `names`, if one is at least `cutoff` similar (1: equal).

    One that begins with `name` comes before all others.
    """
    from difflib import get_close_matches

    known = list(names)
    # Similarity prefers short names: dtype to temperature for temp.
    begins = [one for one in known if len(name) > 2 and one.startswith(name)]
    close = get_close_matches(name, begins or known, 1, 0 if begins else cutoff)
    return close[0] if close else None
