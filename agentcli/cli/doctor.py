"""The command `agentcli doctor`."""

from agentcli.cli.call import Call
from agentcli.cli.command import Command
from agentcli.cli.options import JSON
from agentcli.errors import MissingError


def doctor(call: Call) -> None:
    """Say what is installed of all that agentcli can use, and how to get the rest.

    Exits with 4 if the core lacks something.
    """
    import msgspec

    from agentcli.analysis.doctor import examine_here
    from agentcli.reports.output import print_rows

    findings = examine_here()
    print_rows("doctor", msgspec.to_builtins(findings), json=call.values["json"])
    remedies = []
    for finding in findings:
        if finding.required and not finding.present:
            remedies.append(f"{finding.name}: {finding.detail}; type: {finding.get}")
    if remedies:
        raise MissingError("; ".join(remedies))


COMMAND = Command(
    name="doctor", body=doctor, options=(JSON,), example="agentcli doctor"
)
