"""The command `agentcli schema`."""

from agentcli.cli.command import Call, Command
from agentcli.cli.options import SCHEMA_ARGUMENT
from agentcli.errors import UsageError


def schema(call: Call) -> None:
    """Print the JSON Schema of a record (task, step, tree, credit, episode, panel,
    manifest, ...) or of the settings.
    """
    import json

    from agentcli.analysis.schema import json_schema, kind_names

    name = call.values["name"]
    if name is None:
        raise UsageError(f"name a schema: {', '.join(kind_names())}")
    print(json.dumps(json_schema(name), indent=2))


COMMAND = Command(
    name="schema",
    body=schema,
    arguments=(SCHEMA_ARGUMENT,),
    options=(),
    example="agentcli schema tree",
)
