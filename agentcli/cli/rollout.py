"""The commands `agentcli rollout`, and `merge` for rollouts in shards."""

from pathlib import Path

from agentcli.cli import options
from agentcli.cli.call import Call
from agentcli.cli.command import Command, Option, method_option
from agentcli.cli.method_options import growth_options
from agentcli.errors import UsageError

CRITIC = method_option(
    "--critic",
    "Critic whose value of every step is recorded; credit ppo reads it.",
    str,
    "DIR",
    hidden=True,
    path="rollout.critic",
)


def rollout(call: Call) -> None:
    """Grow one tree of steps per task.

    Without --preset, -c or --model, settings and model are taken from runs/latest.
    """
    from agentcli.stages.rollout import perform, plan

    growth = plan(
        call.settings, call.place.new_run(), model=call.place.model(call.settings)
    )
    call.note(call.settings.rollout.remark)
    call.carry_out(growth, perform)


COMMAND = Command(
    name="rollout",
    body=rollout,
    inherits=True,
    fresh=True,
    options=(
        *options.LAYERS,
        *options.WORLD,
        options.SHARD,
        *options.SAMPLING,
        options.METHOD,
        *options.GROWTH,
        CRITIC,
        options.PRM,
        options.ITERATION,
        *options.PACE,
        *options.MACHINES,
        *options.OUTPUT,
        *options.REPORTING,
    ),
    of_methods=growth_options,
    example=(
        "agentcli rollout --preset quickstart --model runs/sft/checkpoint --method "
        "spark --tasks 16 -o runs/x"
    ),
)

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


MERGE = Command(
    name="merge",
    body=merge,
    options=(SHARDS_ARGUMENT, options.OUT, options.OVERWRITE, *options.REPORTING),
    example="agentcli merge runs/part-1 runs/part-2 -o runs/whole",
)
