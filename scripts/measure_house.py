"""How the package reads, in figures: of this checkout, or of several side by side.

usage: python scripts/measure_house.py [--tree DIR]... [--json] [--no-run]

syntax nodes         All nodes of `ast.walk` under agentcli/: its size, however wide its
                     lines are; also by package.
nodes a code line    Over the lines that are not blank, not a comment and not part of a
                     docstring; also by package.
comment lines        Lines with nothing but a comment.
longest line         Its characters; of code, and of text (comments, and strings over
                     several lines).
lines                Lines of the files, blank ones and docstrings too; also by package.
class names          Names that two classes have. `with _` counts _Task and Task as one
                     name.
world members        Public members of the protocols World and Engine: what a world must
                     write.
knob places          Files that name `criterion`, the setting of carl: what its author
                     had to open.
files                Also those that one file alone imports, and those under 60 lines.
science %            Share of the lines in exploration/, credit/ but for what compares,
                     explains and exports.
import, refusal %    Share of the lines in imports; in a `raise`, an `if` that only
                     raises, or a function that checks or refuses.
circles              Groups of files that import each other, imports inside functions
                     counted; and the files of the largest.
longest method       Lines of the longest file of a credit method, but for dpepo's.
presets alike        Presets of which nine tenths of the lines are another's.
hops                 Functions of the package on the way from cli's `main` to the
                     engine's `step`, in a real rollout of one step. Counted on the call
                     stacks of both processes, through the tasks that started one
                     another. Needs textworld.
"""

import argparse
import ast
import difflib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx

ROOT = Path(__file__).resolve().parents[1]
NOT_SCIENCE = ("compare", "explain", "equations", "export", "statistics", "terms")
CHECKING = ("check", "refuse", "require", "validate")
SHORT = 60
ALIKE = 0.9
KNOB = "criterion"
NOT_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)
ROLLOUT = [
    "rollout",
    "--env",
    "alfworld",
    "--policy",
    "random",
    "--tasks",
    "1",
    "--leaves",
    "1",
    "--max-steps",
    "1",
    "-q",
]
TRACER = Path(__file__).with_name("trace_hops.py")


@dataclass
class Size:
    """The size of some files."""

    nodes: int = 0
    code: int = 0
    lines: int = 0
    comments: int = 0
    longest_code: int = 0
    longest_text: int = 0

    def __add__(self, other: "Size") -> "Size":
        return Size(
            nodes=self.nodes + other.nodes,
            code=self.code + other.code,
            lines=self.lines + other.lines,
            comments=self.comments + other.comments,
            longest_code=max(self.longest_code, other.longest_code),
            longest_text=max(self.longest_text, other.longest_text),
        )

    @property
    def density(self) -> float:
        """Syntax nodes a code line."""
        return round(self.nodes / max(1, self.code), 2)


def size_of(text: str, tree: ast.Module) -> Size:
    """The size of one file."""
    lines = text.splitlines()
    comments = [number for number, line in enumerate(lines, 1) if is_comment(line)]
    texts = {*comments, *string_lines(text)}
    widths = dict(enumerate(map(len, lines), 1))
    return Size(
        nodes=sum(1 for _ in ast.walk(tree)),
        code=code_lines(text, tree),
        lines=len(lines),
        comments=len(comments),
        longest_code=max(
            (width for number, width in widths.items() if number not in texts),
            default=0,
        ),
        longest_text=max((widths[number] for number in texts), default=0),
    )


def is_comment(line: str) -> bool:
    """Whether a line holds nothing but a comment."""
    return line.lstrip().startswith("#")


def string_lines(text: str) -> set[int]:
    """The lines of strings in three quotes: docstrings and longer texts."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.STRING and token.string.endswith(('"""', "'''")):
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines


def code_lines(text: str, tree: ast.Module) -> int:
    """The number of lines that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str()), end_lineno=int(end)):
                lines.difference_update(range(node.lineno, end + 1))
    return len(lines)


def measure_sources(root: Path) -> dict[str, Any]:
    """Everything that is read off the source, without running it."""
    sizes: dict[str, Size] = defaultdict(Size)
    classes: Counter[str] = Counter()
    knob_files = []
    for path in sorted((root / "agentcli").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        below = path.relative_to(root / "agentcli").parts
        package = below[0] if len(below) > 1 else "(top)"
        sizes[package] += size_of(text, tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name] += 1
        if re.search(rf"\b{KNOB}\b", text):
            knob_files.append(path.relative_to(root).as_posix())
    whole = sum(sizes.values(), Size())
    members = world_members(root)
    packages = sorted(sizes.items())
    return {
        "syntax nodes": whole.nodes,
        "nodes a code line": whole.density,
        "code lines": whole.code,
        "lines": whole.lines,
        "comment lines": whole.comments,
        "longest line of code": whole.longest_code,
        "longest line of text": whole.longest_text,
        "class names with two meanings": doubled(classes),
        "class names with two meanings, with _": doubled(without_underscores(classes)),
        "world members": len(members),
        "knob places": len(knob_files),
        "syntax nodes by package": {name: size.nodes for name, size in packages},
        "nodes a code line by package": {name: size.density for name, size in packages},
        "lines by package": {name: size.lines for name, size in packages},
        "world members by name": members,
        "knob places by name": knob_files,
    }


def measure_files(root: Path) -> dict[str, Any]:
    """What the files of the package are to one another."""
    texts, trees = {}, {}
    for path in sorted((root / "agentcli").rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts)
        name = name.removesuffix(".__init__")
        texts[name] = path.read_text(encoding="utf-8").splitlines()
        trees[name] = ast.parse("\n".join(texts[name]))
    arrows = networkx.DiGraph()
    arrows.add_nodes_from(trees)
    for name, tree in trees.items():
        arrows.add_edges_from((name, other) for other in imported(tree, trees))
    groups = networkx.strongly_connected_components(arrows)
    circles = [len(group) for group in groups if len(group) > 1]
    lines = sum(map(len, texts.values()))
    methods = credit_methods(root)
    science = sum(len(text) for name, text in texts.items() if is_science(name))
    return {
        "files": len(texts),
        "files with one importer": sum(count == 1 for _, count in arrows.in_degree()),
        "files under 60 lines": sum(0 < len(text) < SHORT for text in texts.values()),
        "science %": share(science, lines),
        "import lines %": share(sum(map(import_lines, trees.values())), lines),
        "refusal lines %": share(sum(map(refusal_lines, trees.values())), lines),
        "circles": len(circles),
        "files of the largest circle": max(circles, default=0),
        "longest method": max(
            len(texts[f"agentcli.credit.{name}"]) for name in methods
        ),
        "presets alike": presets_alike(root),
    }


def imported(tree: ast.Module, names: dict[str, Any]) -> set[str]:
    """The files of the package that one imports, now or later."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in names else str(node.module))
    return found & names.keys()


def is_science(name: str) -> bool:
    """Whether a file grows trees or assigns credit."""
    room, _, file = name.removeprefix("agentcli.").partition(".")
    return room in ("exploration", "credit") and file not in NOT_SCIENCE


def import_lines(tree: ast.Module) -> int:
    """Lines of import statements."""
    return covered(tree, lambda node: isinstance(node, ast.Import | ast.ImportFrom))


def refusal_lines(tree: ast.Module) -> int:
    """Lines that refuse something."""
    return covered(tree, refuses)


def covered(tree: ast.Module, wanted: Callable[[ast.AST], bool]) -> int:
    """The number of lines that nodes of some kind take."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and wanted(node):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def refuses(node: ast.AST) -> bool:
    """Whether a statement only refuses."""
    match node:
        case ast.Raise():
            return True
        case ast.If(body=[ast.Raise()], orelse=[]):
            return True
        case ast.FunctionDef(name=name):
            return name.lstrip("_").startswith(CHECKING)
    return False


def credit_methods(root: Path) -> list[str]:
    """The files of the credit methods, but for dpepo's, whose paper has most forms."""
    credit = root / "agentcli" / "credit"
    names = []
    for path in credit.glob("*.py"):
        if "\ndef assign(" in path.read_text(encoding="utf-8"):
            names.append(path.stem)
    return [name for name in names if name != "dpepo"]


def presets_alike(root: Path) -> int:
    """How many presets nearly say what another one says."""
    texts = []
    for path in (root / "presets").glob("*.yaml"):
        lines = path.read_text(encoding="utf-8").splitlines()
        bare = [line.partition("#")[0].strip() for line in lines]
        texts.append([line for line in bare if line])
    return sum(any(alike(one, other) for other in texts) for one in texts)


def alike(one: list[str], other: list[str]) -> bool:
    """Whether two presets have nine tenths of their lines in common."""
    if one is other:
        return False
    return difflib.SequenceMatcher(None, one, other).ratio() >= ALIKE


def share(part: int, whole: int) -> float:
    """In percent."""
    return round(100 * part / whole, 1)


def without_underscores(classes: Counter[str]) -> Counter[str]:
    """The same counts, with _Task and Task as one name."""
    public: Counter[str] = Counter()
    for name, count in classes.items():
        public[name.lstrip("_")] += count
    return public


def doubled(classes: Counter[str]) -> int:
    """How many names several classes have."""
    return sum(count > 1 for count in classes.values())


def world_members(root: Path) -> list[str]:
    """Public members that the protocols World and Engine ask for."""
    members = []
    protocol = root / "agentcli" / "environments" / "protocol.py"
    for node in ast.parse(protocol.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name in ("World", "Engine"):
            for name in filter(None, map(member_name, node.body)):
                members.append(f"{node.name}.{name}")
    return members


def member_name(statement: ast.stmt) -> str | None:
    """The name of a public method or annotated attribute."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            pass
        case ast.AnnAssign(target=ast.Name(id=name)):
            pass
        case _:
            return None
    return None if name.startswith("_") else name


def measure_hops(root: Path) -> list[str]:
    """The functions from `main` to the engine's `step`, outermost first."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sitecustomize.py").write_bytes(TRACER.read_bytes())
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([folder, str(root)]),
            "HOPS_ROOT": str(root / "agentcli"),
            "HOPS_FOLDER": folder,
        }
        subprocess.run(
            [sys.executable, "-m", "agentcli", *ROLLOUT, "-o", f"{folder}/run"],
            env=environment,
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        hops: list[str] = []
        for name in ("sent.json", "stepped.json"):
            hops += json.loads((Path(folder) / name).read_text(encoding="utf-8"))
        return hops


def print_table(figures: dict[str, dict[str, Any]]) -> None:
    """Prints a column a tree: first the figures of the whole, then those by package."""
    rows: dict[str, list[str]] = defaultdict(lambda: ["-"] * len(figures))
    for column, measured in enumerate(figures.values()):
        for name, value in measured.items():
            if isinstance(value, dict):
                for package, part in value.items():
                    rows[f"{name}: {package}"][column] = str(part)
            elif not isinstance(value, list) and value is not None:
                rows[name][column] = str(value)
    width = max(map(len, rows))
    for name in sorted(rows, key=lambda name: " by package" in name):
        print(name.ljust(width), *(cell.rjust(10) for cell in rows[name]))


def main(arguments: list[str]) -> None:
    """Prints the figures of every tree."""
    parser = argparse.ArgumentParser(description="Figures of how the package reads.")
    parser.add_argument(
        "--tree",
        type=Path,
        action="append",
        help="a checkout; may be given again (this one)",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print JSON, with the names behind the figures",
    )
    parser.add_argument(
        "--no-run", action="store_true", help="leave out the hops, which need a rollout"
    )
    options = parser.parse_args(arguments)
    figures = {}
    for root in options.tree or [ROOT]:
        measured = measure_sources(root.resolve())
        measured |= measure_files(root.resolve())
        hops = None if options.no_run else measure_hops(root.resolve())
        measured["hops"] = None if hops is None else len(hops)
        measured["hops by name"] = hops
        figures[str(root)] = measured
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    print_table(figures)


if __name__ == "__main__":
    main(sys.argv[1:])
