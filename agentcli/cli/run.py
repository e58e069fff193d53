"""agentcli run"""

from agentcli.cli.command import Call, Command
from agentcli.cli.dry_run import check_credit, check_method, panel_size
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
    WORLD,
    Option,
)

ITERATIONS = Option("iterations", ("--iterations",), int, "Times round the loop.", "run.iterations", "Method", "K")


def run(call: Call) -> None:
    """The loop rollout -> assign-credit -> train, one folder per iteration; PRESET names method and world."""
    settings, model = call.settings, call.model()

    def counts() -> dict[str, int]:
        check_method(settings)
        check_credit(settings)
        iterations, tasks = settings.run.iterations, settings.rollout.tasks_per_step
        return {
            "iterations": iterations,
            "panel_tasks": panel_size(settings),
            "tasks_per_iteration": tasks,
            "leaves_at_most": iterations * tasks * settings.rollout.leaves,
        }

    if call.preview({"model": model}, counts):
        return
    out = call.new_run()
    from agentcli.stages.loop import run_loop as stage

    call.finish(stage(settings, out, call.invocation, model=model), out)


COMMAND = Command(
    name="run",
    body=run,
    argument=PRESET_ARGUMENT,
    inherits=True,
    fresh=True,
    options=(CONFIG, SET, ITERATIONS, *WORLD, *SAMPLING, *GROWTH, *PACE, OUT, RESUME, OVERWRITE, *REPORTING),
    example="agentcli run quickstart --model runs/sft/checkpoint --iterations 28 -o runs/rl",
)
