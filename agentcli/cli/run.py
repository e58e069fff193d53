"""agentcli run"""

from agentcli.cli.command import Call, Command
from agentcli.cli.dry_run import iteration_size, panel_size
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
)
from agentcli.errors import UsageError

ITERATIONS = Option("iterations", ("--iterations",), int, "Times round the loop.", "run.iterations", "Method", "K")


def run(call: Call) -> None:
    """The loop rollout -> assign-credit -> train, one folder per iteration; PRESET names method and world."""
    from agentcli.exploration.registry import check
    from agentcli.records.runs import RunDirectory
    from agentcli.stages.loop import credit_of
    from agentcli.stages.train import refuse_adapter_beside_model, refuse_greedy, with_aggregate

    settings = call.settings
    check(settings)
    model = call.model()
    if model is None or settings.policy.kind == "openai":
        raise UsageError(
            f"run trains a policy that it loads itself, not {settings.policy.kind}; name one with --model DIR|ID"
        )

    def counts() -> dict[str, int]:
        credit_of(settings)
        refuse_adapter_beside_model(settings)
        refuse_greedy(settings)
        iterations, tasks = settings.run.iterations, iteration_size(settings, 0)
        return {
            "iterations": iterations,
            "panel_tasks": panel_size(settings),
            "tasks_per_iteration": tasks,
            "leaves_at_most": iterations * tasks * settings.rollout.leaves,
        }

    out = call.new_run()
    outputs = [out / "iteration_000", RunDirectory(out).checkpoint]
    if call.preview({"model": model}, counts, outputs, lambda: with_aggregate(settings, credit_of(settings))):
        return
    from agentcli.stages.loop import run_loop as stage

    call.finish(stage(settings, out, call.invocation, model=model), out)


COMMAND = Command(
    name="run",
    body=run,
    arguments=(PRESET_ARGUMENT,),
    inherits=True,
    fresh=True,
    options=(CONFIG, SET, ITERATIONS, *WORLD, *SAMPLING, *GROWTH, *PACE, TRACKER, OUT, RESUME, OVERWRITE, *REPORTING),
    example="agentcli run quickstart --model runs/sft/checkpoint -o runs/rl",
)
