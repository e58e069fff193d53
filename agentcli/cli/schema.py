"""The command `agentcli schema`."""

from agentcli.cli import completion
from agentcli.cli.call import Call
from agentcli.cli.command import Command
from agentcli.cli.option import Option
from agentcli.errors import UsageError

NAME_ARGUMENT = Option(
    "name", None, "Record by name, or settings.", values=completion.schemas
)


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


COMMAND = Command(
    name="schema",
    body=schema,
    options=(NAME_ARGUMENT,),
    example="agentcli schema tree",
)
