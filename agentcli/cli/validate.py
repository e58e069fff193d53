"""The command `agentcli validate`."""

import sys
from itertools import chain
from pathlib import Path

import typer

from agentcli.cli import completion
from agentcli.cli.call import Call
from agentcli.cli.command import Command
from agentcli.cli.errors import one_line, say
from agentcli.cli.option import Option, file_option
from agentcli.cli.options import JSON
from agentcli.errors import DataError, UsageError

FILES_ARGUMENT = Option(
    "files",
    None,
    "Files (.jsonl, .jsonl.zst, .json, .yaml settings) or run directories.",
    list[Path],
    "FILES",
)
KIND = file_option(
    "--kind",
    None,
    "What the files hold, where name and folder do not say: tree, credit, panel, ...",
    metavar="NAME",
    values=completion.schemas,
)


def validate(call: Call) -> None:
    """Check files line by line.

    Trees, credit, episodes, panels, manifests, metrics, settings; for a run directory
    all of its files, and that they belong together. Names file, line and field of the
    first fault of each; exit code 3 if there is any.
    """
    import json

    from agentcli.analysis.validate import check

    if not call.values["files"]:
        raise UsageError("name the files, for instance: agentcli validate runs/latest")
    checks = [check(path, call.values["kind"]) for path in call.values["files"]]
    sound = True
    for file, kind, records, problem in chain.from_iterable(checks):
        if call.values["json"]:
            line = {
                "file": str(file),
                "kind": kind,
                "records": records,
                "problem": None if problem is None else one_line(problem),
            }
            print(json.dumps(line))
        elif problem is None:
            noun = "record" if records == 1 else "records"
            print(f"{file}: {records} {noun} of {kind}, fine", file=sys.stderr)
        if problem is not None:
            sound = False
            say(problem)
    if not sound:
        raise typer.Exit(DataError.exit_code)


COMMAND = Command(
    name="validate",
    body=validate,
    options=(FILES_ARGUMENT, KIND, JSON),
    example="agentcli validate runs/x/trees.jsonl runs/x/manifest.json",
)
