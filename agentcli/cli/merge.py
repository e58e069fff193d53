"""The command `agentcli merge`."""

from pathlib import Path

from agentcli.cli.call import Call
from agentcli.cli.command import Command
from agentcli.cli.option import Option
from agentcli.cli.options import OUT, OVERWRITE, REPORTING
from agentcli.errors import UsageError

SHARDS_ARGUMENT = Option(
    "shards", "The run directories of all shards.", list[Path], "SHARD"
)


def merge(call: Call) -> None:
    """Join the runs of all shards (--shard I/N).

    The result is the run that the unsharded command would have written.
    """
    from agentcli.stages.merge import perform, plan

    if not call.values["shards"]:
        raise UsageError(
            "name the run directories of all shards: agentcli merge SHARD... -o DIR"
        )
    # A shard may contain a rollout and evaluations: each stage is merged separately.
    for stage in plan(call.values["shards"], call.place.new_run()):
        call.carry_out(stage, perform, stage.settings)


COMMAND = Command(
    name="merge",
    body=merge,
    options=(SHARDS_ARGUMENT, OUT, OVERWRITE, *REPORTING),
    example="agentcli merge runs/part-1 runs/part-2 -o runs/whole",
)
