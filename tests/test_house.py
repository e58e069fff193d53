"""The house rules that can be read off the source: floors, cycles, lengths, docstrings, one meaning per class name.

What breaks a rule today is listed below as data. The lists may only shrink: an entry that is no longer needed fails too.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx
import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "agentcli").rglob("*.py"))

FLOORS = (
    {"errors", "registry", "requirements", "version"},
    {"records"},
    {"environments", "policies", "prompts"},
    {"worlds", "exploration", "credit", "training", "evaluation", "reports"},
    {"stages", "analysis"},
    {"cli", "api"},
    {"__main__"},
)
"""Rooms from the ground up. A room may import from every floor below its own, and none from `agentcli/__init__.py`, the door."""
SIDEWAYS = {
    ("", "version"): "the package says its own version",
    ("", "api"): "the package offers its library by name, imported when asked for",
    ("registry", "errors"): "the registry refuses an unknown name",
    ("prompts", "environments"): "a prompt is made from what an environment showed",
    ("policies", "environments"): "an expert asks the world's tutor",
    ("policies", "prompts"): "an expert writes its answer as the dialect wants it",
    ("reports", "evaluation"): "a table knows the type of the results it shows",
    ("reports", "credit"): "so does the account of an advantage",
    ("analysis", "stages"): "panels and layers of settings are read in one way",
}
"""Arrows within one floor, and why."""
ONLY_RECORDS = ("credit", "evaluation")
"""Rooms that know nothing but records, so that they can be read with the papers alone."""

LONGEST_FILE, LONGEST_FUNCTION = 600, 60

RIDDLES = ("Of ", "Those ", "As ")
"""How no docstring begins: the reader would have to guess the subject."""

CLASSES_OF_TWO_MEANINGS: set[str] = set()
NAME_ALFWORLD = {
    "agentcli/environments/registry.py",
    "agentcli/records/settings.py",
}
"""Files outside worlds/alfworld/ that name ALFWorld."""
LONG_FILES: set[str] = set()
"""Files that are, or hold a function that is, still too long."""
UNDOCUMENTED: set[str] = set()
"""Rooms with a public class, function or method of several statements that has no docstring."""
RUN_ON_FIRST_LINES: set[str] = set()
"""Rooms with a docstring whose first line does not end with a full stop."""
RIDDLING: set[str] = set()
"""Rooms with a docstring that begins with one of RIDDLES."""


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def room(module: str) -> str:
    """The first name below the package; "" for the package itself."""
    return module.split(".")[1] if "." in module else ""


MODULES = {module_name(path): path for path in SOURCES}


def imports(module: str, nodes: Iterator[ast.AST]) -> Iterator[tuple[str, int]]:
    """The package's own modules that `nodes` import, with the line."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "agentcli":
                    yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: write the import from agentcli on, not a relative one"
            if (node.module or "").partition(".")[0] == "agentcli":
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    yield (inner if inner in MODULES else str(node.module)), node.lineno


def outside_type_checking(node: ast.AST) -> Iterator[ast.AST]:
    """Every node that is ever executed."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child
        yield from outside_type_checking(child)


def may_import(importer: str, imported: str) -> bool:
    """Whether a module of the room `importer` may import one of the room `imported`."""
    if imported == importer:
        return True
    if (importer, imported) in SIDEWAYS:
        return True
    if "" in (importer, imported):
        return False
    if importer in ONLY_RECORDS and imported not in ("records", "errors", "registry", "requirements", "version"):
        return False
    height = {name: level for level, names in enumerate(FLOORS) for name in names}
    return height[imported] < height[importer]


def test_every_room_has_a_floor() -> None:
    rooms = {room(module) for module in MODULES} - {""}
    assert rooms <= set.union(*FLOORS), "name the floor of a new room in FLOORS"


def test_imports_only_go_down() -> None:
    """Imports inside functions count too: what is lazy is still an arrow."""
    upwards = set()
    for module, path in MODULES.items():
        for imported, line in imports(module, ast.walk(tree(path))):
            if not may_import(room(module), room(imported)):
                upwards.add(f"{shown(path)}:{line} imports {imported}")
    refuse(sorted(upwards))


@pytest.mark.parametrize(
    ("importer", "imported", "allowed"),
    [
        ("cli", "stages", True),
        ("stages", "cli", False),
        ("credit", "records", True),
        ("credit", "environments", False),
        ("evaluation", "credit", False),
        ("prompts", "environments", True),
        ("environments", "prompts", False),
        ("worlds", "environments", True),
        ("environments", "worlds", False),
        ("records", "errors", True),
        ("errors", "records", False),
        ("", "records", False),
        ("stages", "", False),
    ],
)
def test_the_table_of_floors_says_what_it_should(importer: str, imported: str, allowed: bool) -> None:
    assert may_import(importer, imported) == allowed


def test_no_modules_import_each_other() -> None:
    """Imports inside functions count: who reads one of two such files has to read the other. Imports for types alone do not."""
    graph = networkx.DiGraph()
    for module, path in MODULES.items():
        for imported, _ in imports(module, outside_type_checking(tree(path))):
            # A package's __init__ is run before its modules; it says nothing here and so closes no circle.
            if imported != room(module) and not module.startswith(f"{imported}."):
                graph.add_edge(module, imported)
    groups = networkx.strongly_connected_components(graph)
    circles = [" and ".join(sorted(group)) for group in groups if len(group) > 1]
    refuse(circles)


def test_files_and_functions_are_short() -> None:
    long = defaultdict(list)
    for path in [*SOURCES, *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "scripts").rglob("*.py"))]:
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > LONGEST_FILE:
            long[shown(path)].append(f"{shown(path)}: {lines} lines")
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > LONGEST_FUNCTION:
                    long[shown(path)].append(f"{shown(path)}:{node.lineno}: {node.name} has {lines} lines")
    hold(long, LONG_FILES)


def test_a_class_name_has_one_meaning() -> None:
    places = defaultdict(list)
    for path in SOURCES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{shown(path)}:{node.lineno}")
    doubled = {name: where for name, where in places.items() if len(where) > 1}
    refuse([f"{name}: {where}" for name, where in doubled.items() if name not in CLASSES_OF_TWO_MEANINGS])
    refuse(no_longer_needed(CLASSES_OF_TWO_MEANINGS, set(doubled)))


def test_only_its_own_folder_names_alfworld() -> None:
    naming = {
        shown(path)
        for path in SOURCES
        if "worlds/alfworld/" not in shown(path) and "alfworld" in path.read_text(encoding="utf-8").lower()
    }
    refuse(sorted(naming - NAME_ALFWORLD))
    refuse(no_longer_needed(NAME_ALFWORLD, naming))


def documented(path: Path) -> Iterator[tuple[str, ast.AST]]:
    """(place, node) of the module and of its public classes, functions and methods."""

    def inside(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.AST]]:
        for child in getattr(node, "body", []):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                if child.name.startswith("_"):
                    continue
                yield f"{shown(path)}:{child.lineno} {prefix}{child.name}", child
                if isinstance(child, ast.ClassDef):
                    yield from inside(child, f"{child.name}.")

    yield f"{shown(path)}:1", tree(path)
    yield from inside(tree(path), "")


def needs_a_docstring(path: Path, node: ast.AST) -> bool:
    """An empty __init__.py and a method of one statement may do without one."""
    if isinstance(node, ast.Module):
        return bool(node.body)
    if isinstance(node, ast.ClassDef) or node in tree(path).body:
        return True
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and len(node.body) > 1


def by_room(faults: list[tuple[Path, str]]) -> dict[str, list[str]]:
    rooms: dict[str, list[str]] = defaultdict(list)
    for path, fault in faults:
        rooms[room(module_name(path))].append(fault)
    return rooms


def test_public_things_have_a_docstring() -> None:
    missing = []
    for path in SOURCES:
        for place, node in documented(path):
            if needs_a_docstring(path, node) and ast.get_docstring(node) is None:  # type: ignore[arg-type]
                missing.append((path, place))
    hold(by_room(missing), UNDOCUMENTED)


def docstrings(path: Path) -> Iterator[tuple[str, str]]:
    """(place, text) of every docstring of something public."""
    for place, node in documented(path):
        text = ast.get_docstring(node)  # type: ignore[arg-type]
        if text is not None:
            yield place, text


def test_the_first_line_of_a_docstring_ends_with_a_full_stop() -> None:
    faults = []
    for path in SOURCES:
        for place, text in docstrings(path):
            first = text.splitlines()[0]
            if not first.endswith("."):
                faults.append((path, f"{place}: {first}"))
    hold(by_room(faults), RUN_ON_FIRST_LINES)


def test_no_docstring_is_a_riddle() -> None:
    faults = []
    for path in SOURCES:
        for place, text in docstrings(path):
            if text.startswith(RIDDLES):
                faults.append((path, f"{place}: {text.splitlines()[0]}"))
    hold(by_room(faults), RIDDLING)


def hold(faults: dict[str, list[str]], exceptions: set[str]) -> None:
    """No room has faults but the exceptions, and each of these still has some."""
    refuse([fault for name in sorted(faults) if name not in exceptions for fault in faults[name]])
    refuse(no_longer_needed(exceptions, set(faults)))


def no_longer_needed(exceptions: set[str], needed: set[str]) -> list[str]:
    """What to delete from a list above."""
    return [f"delete {name!r} from the list of exceptions" for name in sorted(exceptions - needed)]


def refuse(faults: list[str]) -> None:
    """Fail and show every fault, one a line."""
    assert not faults, "\n" + "\n".join(faults)
