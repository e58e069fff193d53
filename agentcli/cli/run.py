"""The command `agentcli run`."""

from agentcli.cli.call import Call
from agentcli.cli.command import Command
from agentcli.cli.method_options import growth_options
from agentcli.cli.option import method_option
from agentcli.cli.options import (
    CONFIG,
    GROWTH,
    OUTPUT,
    PACE,
    PRESET_ARGUMENT,
    REPORTING,
    SAMPLING,
    SET,
    TRACKER,
    WORLD,
)

ITERATIONS = method_option(
    "--iterations", "run.iterations", "Times round the loop.", int, "K"
)


def run(call: Call) -> None:
    """Repeat rollout -> assign-credit -> train, one folder per iteration.

    PRESET names method and world.
    """
    from agentcli.exploration.registry import check
    from agentcli.stages.loop import perform, plan

    check(call.settings)
    loop = plan(call.settings, call.new_run(), model=call.model())
    call.carry_out(loop, perform, loop.used)


COMMAND = Command(
    name="run",
    body=run,
    inherits=True,
    fresh=True,
    options=(
        PRESET_ARGUMENT,
        CONFIG,
        SET,
        ITERATIONS,
        *WORLD,
        *SAMPLING,
        *GROWTH,
        *PACE,
        TRACKER,
        *OUTPUT,
        *REPORTING,
    ),
    of_methods=growth_options,
    example="agentcli run quickstart --model runs/sft/checkpoint -o runs/rl",
)
