"""How the package reads, in figures: of this checkout, or of several side by side.

usage: python scripts/measure_house.py [--tree DIR]... [--json] [--no-run]

nodes a code line    All nodes of `ast.walk`, over the lines that are not blank, not a
                     comment and not part of a docstring.
comment lines        Lines with nothing but a comment.
lines                Lines of the files under agentcli/, blank ones and docstrings too;
                     also by package.
class names          Names that two classes have. `with _` counts _Task and Task as one
                     name.
world members        Public members of the protocols World and Engine: what a world must
                     write.
knob places          Files that name `criterion`, the setting of carl: what its author
                     had to open.
hops                 Functions of the package on the way from cli's `main` to the
                     engine's `step`, in a real rollout of one step. Counted on the call
                     stacks of both processes, through the tasks that started one
                     another. Needs textworld.
"""

import argparse
import ast
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KNOB = "criterion"
NOT_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)
ROLLOUT = (
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
)
TRACER = Path(__file__).with_name("trace_hops.py")


def code_lines(text: str, tree: ast.Module) -> int:
    """Lines that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            lines.difference_update(
                range(node.lineno, (node.end_lineno or node.lineno) + 1)
            )
    return len(lines)


def measure_sources(root: Path) -> dict[str, Any]:
    """Everything that is read off the source, without running it."""
    nodes: Counter[str] = Counter()
    code: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    comments = 0
    longest = 0
    classes: dict[str, int] = defaultdict(int)
    knob_files = []
    for path in sorted((root / "agentcli").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        below = path.relative_to(root / "agentcli").parts
        package = below[0] if len(below) > 1 else "(top)"
        nodes[package] += sum(1 for _ in ast.walk(tree))
        code[package] += code_lines(text, tree)
        for line in text.splitlines():
            lines[package] += 1
            comments += line.lstrip().startswith("#")
            longest = max(longest, len(line))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name] += 1
        if re.search(rf"\b{KNOB}\b", text):
            knob_files.append(path.relative_to(root).as_posix())
    public = Counter(
        name.lstrip("_") for name, count in classes.items() for _ in range(count)
    )
    return {
        "nodes a code line": round(nodes.total() / code.total(), 2),
        "code lines": code.total(),
        "lines": lines.total(),
        "comment lines": comments,
        "longest line": longest,
        "class names with two meanings": sum(count > 1 for count in classes.values()),
        "class names with two meanings, with _": sum(
            count > 1 for count in public.values()
        ),
        "world members": len(world_members(root)),
        "knob places": len(knob_files),
        "nodes a code line by package": {
            name: round(nodes[name] / max(1, code[name]), 2) for name in sorted(nodes)
        },
        "lines by package": {name: lines[name] for name in sorted(lines)},
        "world members by name": world_members(root),
        "knob places by name": knob_files,
    }


def world_members(root: Path) -> list[str]:
    """Public members that the protocols World and Engine ask for."""
    members = []
    tree = ast.parse(
        (root / "agentcli/environments/protocol.py").read_text(encoding="utf-8")
    )
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name in ("World", "Engine"):
            for member in node.body:
                if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                    members.append(f"{node.name}.{member.name}")
                elif isinstance(member, ast.AnnAssign) and isinstance(
                    member.target, ast.Name
                ):
                    members.append(f"{node.name}.{member.target.id}")
    return [name for name in members if "._" not in name]


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
        command = [
            sys.executable,
            "-m",
            "agentcli",
            *ROLLOUT,
            "-q",
            "-o",
            f"{folder}/run",
        ]
        subprocess.run(
            command, env=environment, cwd=folder, check=True, stdout=subprocess.DEVNULL
        )
        sent = json.loads((Path(folder) / "sent.json").read_text(encoding="utf-8"))
        stepped = json.loads(
            (Path(folder) / "stepped.json").read_text(encoding="utf-8")
        )
        return [*sent, *stepped]


def shown(value: Any) -> str:
    """A figure as it stands in the table."""
    return "-" if value is None else str(value)


def main(arguments: list[str]) -> None:
    """Print the figures of every tree."""
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
        hops = None if options.no_run else measure_hops(root.resolve())
        measured["hops"] = None if hops is None else len(hops)
        measured["hops by name"] = hops
        figures[str(root)] = measured
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    rows: dict[str, None] = {}
    for measured in figures.values():
        for name, value in measured.items():
            if isinstance(value, dict):
                rows.update(dict.fromkeys(f"{name}: {part}" for part in value))
            elif not isinstance(value, list):
                rows[name] = None
    width = max(map(len, rows))
    for row in sorted(rows, key=lambda name: " by package" in name):
        name, _, part = row.partition(": ")
        cells = [
            measured[name].get(part) if part else measured[name]
            for measured in figures.values()
        ]
        print(row.ljust(width), *(shown(cell).rjust(10) for cell in cells))


if __name__ == "__main__":
    main(sys.argv[1:])
