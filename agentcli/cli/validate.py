"""The command `agentcli validate`."""

import sys
from itertools import chain

import typer

from agentcli.cli.command import Call, Command
from agentcli.cli.errors import one_line, say
from agentcli.cli.options import FILES_ARGUMENT, JSON, KIND
from agentcli.errors import DataError, UsageError


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
        sound = sound and problem is None
        if call.values["json"]:
            line = None if problem is None else one_line(problem)
            print(
                json.dumps(
                    {
                        "file": str(file),
                        "kind": kind,
                        "records": records,
                        "problem": line,
                    }
                )
            )
        elif problem is None:
            print(
                f"{file}: {records} record{'' if records == 1 else 's'} of {kind}, "
                "fine",
                file=sys.stderr,
            )
        if problem is not None:
            say(problem)
    if not sound:
        raise typer.Exit(DataError.exit_code)


COMMAND = Command(
    name="validate",
    body=validate,
    arguments=(FILES_ARGUMENT,),
    options=(KIND, JSON),
    example="agentcli validate runs/x/trees.jsonl runs/x/manifest.json",
)
