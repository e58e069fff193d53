"""The commands that messages, tables and help pages tell a user to type, found in the source.

A hint stands in backticks, or after a colon at the end of the text. What holds the place of a value gets one in VALUES.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from typed_pages import ROOT

HINT = re.compile(r"`(agentcli [^`]+)`|(?:^|: )(agentcli .+?)(?= {2,}|`| \(|$)")
PROSE = {
    "agentcli train cannot learn from its responses": "a sentence about a command",
    "this agentcli reads": "a version of the program",
    "Upload by agentcli push": "the message of a commit on the hub",
    "-m agentcli ...": "what a launcher starts",
    "install agentcli on every machine": "a sentence about the program",
    "agentcli {join(typed)}": "built from words; tests/stages/test_study.py looks at them",
    "agentcli {join(words)}": "built from words; tests/cli/test_show_command.py types it",
    "agentcli {printable(shlex.join(words))}": "built from words; tests/reports looks at it",
}
"""Texts with the program's name that hint at no command, and why."""
VALUES = {
    "{run}": "runs/x",
    "{run / 'export/model'}": "runs/x/export/model",
    "{run.path}": "runs/x",
    "{self.path}": "runs/x",
    "{path}": "runs/x",
    "{path.parent}": "runs/x",
    "{self.run}": "runs/x",
    "{writer}": "rollout",
    "{maker}": "rollout",
    "{preset}": "quickstart",
    "{files}": "--preset quickstart",
    "{repo}": "me/quickstart-grpo",
    "{name}": "grpo",
    "{method}": "dpepo",
    "{label}": "L0",
    "{form}": "messages",
    "import FILE": "import runs/x/export/conversations.jsonl",
    "runs/a": "runs/sft",
    "runs/b": "runs/rl",
    "I/N": "1/2",
    "PRESET": "quickstart",
    "RUN TREE": "runs/x 1",
    "RUN": "runs/x",
    "SHARD...": "runs/part-1 runs/part-2",
    "STAGE": "rollout",
    "DIR": "runs/whole",
}
"""A value for what a hint leaves to the moment, fit for the folder of the quickstart."""


class Hint(NamedTuple):
    """A command that a text tells to type."""

    place: str
    text: str

    @property
    def commands(self) -> list[list[str]]:
        """Its command lines, each as the words after `agentcli`."""
        text = self.text
        for name, value in VALUES.items():
            text = text.replace(name, value)
        return [line.split()[1:] for line in text.split(" && ")]


def hints() -> list[Hint]:
    """Every hint of the package, once."""
    places: dict[str, str] = {}
    for path in sorted((ROOT / "agentcli").rglob("*.py")):
        for line, text in texts(path):
            for match in HINT.finditer(text):
                hint = match[1] or match[2]
                if hint not in PROSE:
                    places.setdefault(hint, f"{path.relative_to(ROOT)}:{line}")
    return [Hint(place, text) for text, place in places.items()]


def unclear() -> Iterator[str]:
    """Texts that name the program where no hint can be read."""
    for path in sorted((ROOT / "agentcli").rglob("*.py")):
        for line, text in texts(path):
            rest = HINT.sub("", text)
            if "agentcli " in rest and "{MAKE_A_MODEL}" not in rest and not any(prose in rest for prose in PROSE):
                yield f"{path.relative_to(ROOT)}:{line}: {text}"


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of every string of a file but docstrings; {...} for what is filled in."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    passed = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            passed |= {id(part) for part in node.values}
    for node in nodes:
        if id(node) not in passed and isinstance(node, ast.JoinedStr | ast.Constant):
            text = text_of(node)
            if "agentcli " in text:
                yield node.lineno, text


def text_of(node: ast.JoinedStr | ast.Constant) -> str:
    """A string, with {expression} in the place of its values."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    parts = []
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            parts.append(f"{{{ast.unparse(part.value)}}}")
        else:
            parts.append(str(part.value))
    # A path is typed in quotes where it has blanks, and those of the quickstart have none.
    return re.sub(r"\{word_of\(([^(){}]+)\)\}", r"{\1}", "".join(parts))
