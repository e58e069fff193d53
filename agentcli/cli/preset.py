"""agentcli preset list | show"""

from agentcli.cli.command import Call, Command
from agentcli.cli.options import JSON, PRESET_ARGUMENT
from agentcli.errors import UsageError


def list_presets(call: Call) -> None:
    """The presets there are, with what each is for."""
    from agentcli.reports.output import print_rows
    from agentcli.stages.layers import list_presets as found

    rows = [
        {"preset": path.stem, "for": path.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")} for path in found()
    ]
    print_rows("presets", rows, json=call.values["json"])


def show(call: Call) -> None:
    """Print a preset, comments and all; with --json only what it sets."""
    import json

    from agentcli.stages.layers import find_preset, read_yaml

    name = call.values["preset"]
    if name is None:
        raise UsageError("name a preset; `agentcli preset list` shows them")
    path = find_preset(name)
    values = read_yaml(path)
    print(json.dumps(values) if call.values["json"] else path.read_text(encoding="utf-8").rstrip())


COMMANDS = (
    Command(name="list", body=list_presets, options=(JSON,), example="agentcli preset list"),
    Command(
        name="show", body=show, argument=PRESET_ARGUMENT, options=(JSON,), example="agentcli preset show spark-alfworld"
    ),
)
