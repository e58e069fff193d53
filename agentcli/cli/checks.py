"""The commands `agentcli validate`, `schema` and `doctor`: files and this machine."""

import os
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from agentcli.cli import completion
from agentcli.cli.call import Call
from agentcli.cli.command import Command, Option, file_option
from agentcli.cli.errors import one_line, say
from agentcli.cli.options import JSON
from agentcli.errors import DataError, MissingError, UsageError

if TYPE_CHECKING:
    from agentcli.analysis.doctor import Finding
    from agentcli.analysis.validate import CheckedFile

NAMED = 3
"""The most files that a note names."""
FILES_ARGUMENT = Option(
    "files",
    "Files (.jsonl, .json, .yaml settings) or run directories.",
    list[Path],
    "FILES",
)
NAME_ARGUMENT = Option(
    "name", "Record by name, or settings.", values=completion.schemas
)
KIND = file_option(
    "--kind",
    "What the files hold, where name and folder do not say: tree, credit, panel, ...",
    metavar="NAME",
    values=completion.schemas,
)


def validate(call: Call) -> None:
    """Check files line by line.

    Checks trees, credit, episodes, panels, manifests, metrics and settings; for a run
    directory, all of its files, and that they belong together. Names file, line and
    field of the first error in each file; the exit code is 3 if there is any.
    """
    import json

    if not call.values["files"]:
        raise UsageError("name the files, for instance: agentcli validate runs/latest")
    checks = list(_checks(call.values["files"], call.values["kind"]))
    sound = True
    unsummed = list[Path]()
    for checked in chain.from_iterable(checks):
        file, kind, records, problem = checked[:4]
        if checked.lacks_checksum:
            unsummed.append(file)
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
            fine = f"{file}: {records} {noun} of {kind}, fine"
            print(one_line(fine), file=sys.stderr)
        if problem is not None:
            sound = False
            say(problem)
    if unsummed:
        print(one_line(_without_checksum(unsummed)), file=sys.stderr)
    if not sound:
        raise typer.Exit(DataError.exit_code)


def _without_checksum(files: list[Path]) -> str:
    """Says which files may have changed unnoticed."""
    named = ", ".join(map(str, files[:NAMED]))
    if len(files) > NAMED:
        named += f" and {len(files) - NAMED} more"
    return (
        f"without a checksum in manifest.json: {named}; written by hand, or by a stage "
        "that has not ended"
    )


def _checks(files: list[Path], kind: str | None) -> Iterator[Iterator["CheckedFile"]]:
    """The check of each file. Of several files, those without records are skipped."""
    from agentcli.analysis.validate import check

    for path in files:
        try:
            yield check(path, kind)
        except UsageError as error:
            if len(files) == 1 or kind is not None:
                raise
            reason = str(error).partition(";")[0]
            print(f"left out: {one_line(reason)}", file=sys.stderr)


def schema(call: Call) -> None:
    """Print the JSON Schema of a record or of the settings.

    Records are: task, step, tree, credit, episode, panel, manifest, ...
    """
    import json

    from agentcli.analysis.schema import json_schema, kind_names

    name = call.values["name"]
    if name is None:
        raise UsageError(f"name a schema: {', '.join(kind_names())}")
    print(json.dumps(json_schema(name), indent=2))


VALIDATE = Command(
    name="validate",
    body=validate,
    options=(FILES_ARGUMENT, KIND, JSON),
    example="agentcli validate runs/x/trees.jsonl runs/x/manifest.json",
)
SCHEMA = Command(
    name="schema", body=schema, options=(NAME_ARGUMENT,), example="agentcli schema tree"
)


ISSUE = Option(
    "--issue", "Print Markdown for a report, without the paths of this machine.", bool
)
EXTRA = "extra "
GROUPS = (("optional, not here", False, "yellow"), ("missing", True, "red"))
"""Tables of what is not here: title, whether it is required, and the colour."""


def doctor(call: Call) -> None:
    """Show what works now, which optional parts are not here, and how to get them.

    Exits with 4 if a required part is missing.
    """
    import msgspec

    from agentcli.analysis.doctor import examine, issue
    from agentcli.reports.output import print_rows

    if call.values["json"] and call.values["issue"]:
        raise UsageError("--json and --issue are two forms of the same; give one")
    here = Path.cwd()
    findings = examine(os.environ, here)
    if call.values["issue"]:
        print(issue(findings, os.environ, here))
    elif call.values["json"]:
        print_rows("doctor", msgspec.to_builtins(findings), json=True)
    else:
        _print_groups(findings)
    remedies = []
    for finding in findings:
        if finding.required and not finding.present:
            remedies.append(f"{finding.name}: {finding.detail}; type: {finding.get}")
    if remedies:
        raise MissingError("; ".join(remedies))
    if not call.values["json"] and not call.values["issue"]:
        print(f"next: {_next_step()}")


def _print_groups(findings: list["Finding"]) -> None:
    """What is here, what is not and need not be, and what has to be."""
    import msgspec

    from agentcli.reports.output import print_rows

    extras = []
    works = []
    for finding in findings:
        if not finding.present:
            continue
        if finding.name.startswith(EXTRA):
            extras.append(finding.name.removeprefix(EXTRA))
        else:
            works.append({"name": finding.name, "detail": finding.detail})
    if extras:
        works.append({"name": "extras", "detail": ", ".join(extras)})
    print_rows("works now", works, json=False)
    for title, required, style in GROUPS:
        rows = []
        for finding in findings:
            if finding.required == required and not finding.present:
                row = msgspec.structs.asdict(finding)
                rows.append({name: row[name] for name in ("name", "detail", "get")})
        if rows:
            print_rows(title, rows, json=False, styles=[style] * len(rows))


def _next_step() -> str:
    from agentcli.records.settings import EnvironmentSettings
    from agentcli.stages.resolve import RUNS, way_to_a_model

    if (RUNS / "latest").is_dir():
        return "agentcli show"
    return f"a small policy; {way_to_a_model(EnvironmentSettings())}"


DOCTOR = Command(
    name="doctor", body=doctor, options=(ISSUE, JSON), example="agentcli doctor"
)
