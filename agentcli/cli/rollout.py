"""The command `agentcli rollout`."""

from agentcli.cli import options
from agentcli.cli.call import Call
from agentcli.cli.command import Command
from agentcli.cli.method_options import growth_options
from agentcli.cli.option import method_option

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
