"""env new: an example world to change into your own, and its test."""

import keyword
import re
from importlib.resources import files
from pathlib import Path

from agentcli.environments.registry import world_names
from agentcli.errors import UsageError, WriteError
from agentcli.records.regular import is_there

TEMPLATE = "agentcli.worlds.template"
NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


def new_world(name: str, folder: Path) -> dict[Path, str]:
    """The files of a new world and their contents; nothing is written.

    Raises UsageError for a name that is not a Python module name, that another module
    or world has, or that the files use otherwise, and for a file that exists.
    """
    if not NAME.fullmatch(name) or keyword.iskeyword(name):
        raise UsageError(
            f"NAME {name!r}: write a Python module's name, for instance my_world"
        )
    if name in world_names() or _is_importable(name):
        raise UsageError(f"NAME {name}: there is another module or world of this name")
    sources = {"world.py": f"{name}.py", "test_world.py": f"test_{name}.py"}
    title = "".join(word.capitalize() for word in name.split("_"))
    texts = {}
    for source, target in sources.items():
        path = folder / target
        if is_there(path):
            raise UsageError(f"{path} exists; choose another NAME")
        text = files(TEMPLATE).joinpath(source).read_text(encoding="utf-8")
        if re.search(rf"\b{title}\b", text.replace("NewWorld", "")):
            raise UsageError(f"NAME {name}: its files import a {title}; choose another")
        text = text.replace("NewWorld", title)
        texts[path] = re.sub(r"\bnew_world\b", name, text)
    return texts


def write_world(texts: dict[Path, str]) -> None:
    """Writes the files. Raises WriteError if one cannot be written."""
    for path, text in texts.items():
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise WriteError(f"{path}: {error.strerror}") from error


def _is_importable(name: str) -> bool:
    """Whether `import NAME` finds a module outside this folder."""
    import sys
    from importlib.machinery import PathFinder

    elsewhere = [path for path in sys.path if Path(path or ".").resolve() != Path.cwd()]
    is_built_in = name in sys.builtin_module_names
    return is_built_in or PathFinder.find_spec(name, elsewhere) is not None
