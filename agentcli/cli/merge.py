"""The command `agentcli merge`."""

from agentcli.cli.command import Call, Command
from agentcli.cli.options import OUT, OVERWRITE, REPORTING, SHARDS_ARGUMENT
from agentcli.errors import UsageError


def merge(call: Call) -> None:
    """Join the runs of all shards (--shard I/N) into the run that the unsharded command
    would have written.
    """
    from agentcli.stages.merge import perform, plan

    if not call.values["shards"]:
        raise UsageError(
            "name the run directories of all shards: agentcli merge SHARD... -o DIR"
        )
    for one in plan(call.values["shards"], call.new_run()):
        call.carry_out(one, perform, one.settings)


COMMAND = Command(
    name="merge",
    body=merge,
    arguments=(SHARDS_ARGUMENT,),
    options=(OUT, OVERWRITE, *REPORTING),
    example="agentcli merge runs/part-1 runs/part-2 -o runs/whole",
)
