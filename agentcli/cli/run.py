"""The command `agentcli run`."""

from agentcli.cli.command import Call, Command
from agentcli.cli.options import (
    CONFIG,
    GROWTH,
    OUT,
    OVERWRITE,
    PACE,
    PRESET_ARGUMENT,
    REPORTING,
    RESUME,
    SAMPLING,
    SET,
    TRACKER,
    WORLD,
    Option,
    method_options,
)

ITERATIONS = Option(
    "iterations",
    ("--iterations",),
    int,
    "Times round the loop.",
    "run.iterations",
    "Method",
    "K",
)


def run(call: Call) -> None:
    """The loop rollout -> assign-credit -> train, one folder per iteration; PRESET
    names method and world.
    """
    from agentcli.exploration.registry import check
    from agentcli.stages.loop import perform, plan

    check(call.settings)
    loop = plan(call.settings, call.new_run(), model=call.model())
    call.carry_out(loop, perform, loop.used)


COMMAND = Command(
    name="run",
    body=run,
    arguments=(PRESET_ARGUMENT,),
    inherits=True,
    fresh=True,
    options=(
        CONFIG,
        SET,
        ITERATIONS,
        *WORLD,
        *SAMPLING,
        *GROWTH,
        *PACE,
        TRACKER,
        OUT,
        RESUME,
        OVERWRITE,
        *REPORTING,
    ),
    of_methods=method_options,
    example="agentcli run quickstart --model runs/sft/checkpoint -o runs/rl",
)
