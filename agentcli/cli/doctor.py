"""The command `agentcli doctor`."""

from agentcli.cli.command import Call, Command
from agentcli.cli.options import JSON
from agentcli.errors import MissingError


def doctor(call: Call) -> None:
    """What is here of all that agentcli can use, and what to type for the rest; exits 4
    if the core lacks something.
    """
    import msgspec

    from agentcli.analysis.doctor import examine_here
    from agentcli.reports.output import print_rows

    findings = examine_here()
    print_rows(
        "doctor",
        [msgspec.to_builtins(finding) for finding in findings],
        json=call.values["json"],
    )
    lacking = [
        finding for finding in findings if finding.required and not finding.found
    ]
    if lacking:
        raise MissingError(
            "; ".join(f"{one.name}: {one.detail}; type: {one.get}" for one in lacking)
        )


COMMAND = Command(
    name="doctor", body=doctor, options=(JSON,), example="agentcli doctor"
)
