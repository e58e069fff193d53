"""The command `agentcli rollout`."""

from agentcli.cli.command import Call, Command
from agentcli.cli.options import (
    GROWTH,
    ITERATION,
    LAYERS,
    METHOD,
    OUT,
    OVERWRITE,
    PACE,
    REPORTING,
    RESUME,
    SAMPLING,
    SHARD,
    WORLD,
    method_options,
)


def rollout(call: Call) -> None:
    """Grow one tree of steps per task. Without --preset, -c or --model, with the
    settings and the model of runs/latest.
    """
    from agentcli.exploration.registry import check
    from agentcli.stages.rollout import perform, plan

    check(call.settings)
    model = call.model()
    call.carry_out(plan(call.settings, call.new_run(), model=model), perform)


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
        ITERATION,
        *PACE,
        OUT,
        RESUME,
        OVERWRITE,
        *REPORTING,
    ),
    of_methods=method_options,
    example=(
        "agentcli rollout --preset quickstart --model runs/sft/checkpoint --method "
        "spark --tasks 16 -o runs/x"
    ),
)
