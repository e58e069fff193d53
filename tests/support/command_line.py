"""One command line as the installed program runs it, in this process; and every command there is."""

import contextlib
import dataclasses
import io
import json
import sys
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import typer
from agentcli.cli.app import command_tree, main, without_help
from agentcli.cli.call import Call, register
from agentcli.cli.command import Command
from agentcli.cli.typed import typed_settings
from agentcli.records.files import read_records
from agentcli.records.settings import Settings
from agentcli.records.types import Tree
from agentcli.stages.layers import resolve
from typer.testing import CliRunner


@dataclasses.dataclass
class Answer:
    """What a command left on the terminal."""

    code: int
    stdout: str
    stderr: str


def agentcli(*words: str) -> Answer:
    """`agentcli WORDS...` from argv to the exit code."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with (
        patch.object(sys, "argv", ["agentcli", *words]),
        # The folder of one's own FILE.py is added to the path; the next command has a new one.
        patch.object(sys, "path", list(sys.path)),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
        warnings.catch_warnings(),
    ):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
    return Answer(code, stdout.getvalue(), stderr.getvalue())


def json_lines(text: str) -> list[dict[str, Any]]:
    """What --json printed, one object a line."""
    return [json.loads(line) for line in text.splitlines()]


def trees_of(run: Path | str) -> list[Tree]:
    """The trees that a run has written."""
    return list(read_records(Path(run, "trees.jsonl"), Tree))


def succeeded(*words: str) -> Answer:
    """The answer of a command line that must end well."""
    answer = agentcli(*words)
    assert answer.code == 0, (words, answer)
    return answer


def chained(folder: Path, settings: str, commands: Iterable[Sequence[str]]) -> Path:
    """`folder`, made with `settings` as toy.yaml and what `commands` leave there; each must end well."""
    folder.mkdir(exist_ok=True)
    with contextlib.chdir(folder):
        Path("toy.yaml").write_text(settings, encoding="utf-8")
        for words in commands:
            succeeded(*words)
    return folder


def all_commands() -> dict[tuple[str, ...], Command]:
    """Every command by the words that name it."""
    found: dict[tuple[str, ...], Command] = {}
    for name, node in command_tree().items():
        inner = {(name,): node} if isinstance(node, Command) else {(name, key): one for key, one in node.items()}
        found.update(inner)
    return found


def parse(words: Sequence[str]) -> None:
    """Reads the words of one command line and does nothing; fails where they are no command with its options and settings."""
    words = without_help(list(words))
    (name,) = [name for name in all_commands() if tuple(words[: len(name)]) == name]
    app = typer.Typer(pretty_exceptions_enable=False)
    register(dataclasses.replace(all_commands()[name], body=read_changes), app, words)
    result = CliRunner().invoke(app, list(words[len(name) :]))
    assert result.exit_code == 0, f"agentcli {' '.join(words)}: {result.output}"


def read_changes(call: Call) -> None:
    """Reads the settings that options and --set change, unless a file that is not here has others."""
    preset = call.values.get("preset")
    if call.values.get("set") and not str(preset).endswith(".yaml"):
        typed = typed_settings(call.options, call.values)
        resolve(preset, [], {}, call.values["set"], typed)


def settings_of(command: Command, arguments: list[str]) -> Settings:
    """What the command would resolve, its body replaced by one that only looks."""
    seen: list[Settings] = []

    def look(call: Call) -> None:
        seen.append(call.settings)

    app = typer.Typer(pretty_exceptions_enable=False)
    register(dataclasses.replace(command, body=look), app)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return seen[0]


def files_below(folder: Path) -> dict[str, tuple[int, int]]:
    """Everything in a folder: path -> (size, time of change)."""
    return {
        str(path.relative_to(folder)): (path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
    }
