"""The command `agentcli doctor`."""

from typing import TYPE_CHECKING

from agentcli.cli.call import Call
from agentcli.cli.command import Command
from agentcli.cli.options import JSON
from agentcli.errors import MissingError

if TYPE_CHECKING:
    from agentcli.analysis.doctor import Finding


def doctor(call: Call) -> None:
    """Show which optional and required packages are installed, and how to get the rest.

    Exits with 4 if a required one is missing.
    """
    import msgspec

    from agentcli.analysis.doctor import examine_here
    from agentcli.reports.output import print_rows

    findings = examine_here()
    styles = [_style(finding) for finding in findings]
    rows = msgspec.to_builtins(findings)
    print_rows("doctor", rows, json=call.values["json"], styles=styles)
    remedies = []
    for finding in findings:
        if finding.required and not finding.present:
            remedies.append(f"{finding.name}: {finding.detail}; type: {finding.get}")
    if remedies:
        raise MissingError("; ".join(remedies))


def _style(finding: "Finding") -> str | None:
    """Red for something required that is missing, yellow for something optional."""
    if finding.present:
        return None
    return "red" if finding.required else "yellow"


COMMAND = Command(
    name="doctor", body=doctor, options=(JSON,), example="agentcli doctor"
)
