"""The command `agentcli doctor`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.cli.call import Call
from agentcli.cli.command import Command, Option
from agentcli.cli.options import JSON
from agentcli.errors import MissingError, UsageError

if TYPE_CHECKING:
    from agentcli.analysis.doctor import Finding

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


COMMAND = Command(
    name="doctor", body=doctor, options=(ISSUE, JSON), example="agentcli doctor"
)
