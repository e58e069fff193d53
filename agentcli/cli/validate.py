"""agentcli validate"""

import sys

import typer

from agentcli.cli.command import Call, Command
from agentcli.cli.options import FILES_ARGUMENT, JSON, KIND
from agentcli.errors import DataError, UsageError


def validate(call: Call) -> None:
    """Check files line by line: trees, credit, episodes, panels, manifests, metrics, settings. Names file, line and
    field of the first fault of each; exit code 3 if there is any."""
    import json

    from agentcli.stages.schema import kind_of
    from agentcli.stages.schema import validate as stage

    if not call.values["files"]:
        raise UsageError("name the files, for instance: agentcli validate runs/latest/trees.jsonl")
    kinds = {path: kind_of(path, call.values["kind"]) for path in call.values["files"]}
    sound = True
    for path, kind in kinds.items():
        records, problem = None, None
        try:
            records = stage(path, call.values["kind"])
        except DataError as error:
            sound, problem = False, " ".join(str(error).split())
        if call.values["json"]:
            print(json.dumps({"file": str(path), "kind": kind, "records": records, "problem": problem}))
        elif problem is None:
            print(f"{path}: {records} record{'' if records == 1 else 's'} of {kind}, fine", file=sys.stderr)
        if problem is not None:
            print(f"error: {problem}", file=sys.stderr)
    if not sound:
        raise typer.Exit(DataError.exit_code)


COMMAND = Command(
    name="validate",
    body=validate,
    argument=FILES_ARGUMENT,
    options=(KIND, JSON),
    example="agentcli validate runs/latest/trees.jsonl",
)
