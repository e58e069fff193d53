"""The command `agentcli rollout`."""

from agentcli.cli.call import Call
from agentcli.cli.command import Command
from agentcli.cli.method_options import growth_options
from agentcli.cli.option import method_option
from agentcli.cli.options import (
    GROWTH,
    ITERATION,
    LAYERS,
    MACHINES,
    METHOD,
    OUTPUT,
    PACE,
    PRM,
    REPORTING,
    SAMPLING,
    SHARD,
    WORLD,
)

CRITIC = method_option(
    "--critic",
    "rollout.critic",
    "Critic whose value of every step is recorded; credit ppo reads it.",
    str,
    "DIR",
    hidden=True,
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
        *LAYERS,
        *WORLD,
        SHARD,
        *SAMPLING,
        METHOD,
        *GROWTH,
        CRITIC,
        PRM,
        ITERATION,
        *PACE,
        *MACHINES,
        *OUTPUT,
        *REPORTING,
    ),
    of_methods=growth_options,
    example=(
        "agentcli rollout --preset quickstart --model runs/sft/checkpoint --method "
        "spark --tasks 16 -o runs/x"
    ),
)
