"""agentcli rollout"""

from agentcli.cli.command import Call, Command
from agentcli.cli.dry_run import check_policy, iteration_size, panel_size
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
    WORLD,
)


def rollout(call: Call) -> None:
    """Grow one tree of steps per task. Without --preset, -c or --model, with the settings and the model of runs/latest."""
    from agentcli.exploration.budget import highest
    from agentcli.exploration.registry import check
    from agentcli.records.runs import RunDirectory

    settings = call.settings
    check(settings)
    model = call.model()

    def counts() -> dict[str, int]:
        check_policy(settings, settings.policy.kind)
        iteration = settings.rollout.iteration
        tasks = panel_size(settings) if iteration is None else iteration_size(settings, iteration)
        leaves, steps = (tasks * highest(unit, settings) for unit in ("leaves", "steps"))
        return {"tasks": tasks, "leaves_at_most": leaves, "steps_at_most": steps}

    out = call.new_run()
    if call.preview({"model": model}, counts, [RunDirectory(out).trees]):
        return
    from agentcli.stages.rollout import rollout as stage

    call.finish(stage(settings, out, call.invocation, model=model), out)


COMMAND = Command(
    name="rollout",
    body=rollout,
    inherits=True,
    fresh=True,
    options=(*LAYERS, *WORLD, *SAMPLING, METHOD, *GROWTH, ITERATION, *PACE, OUT, RESUME, OVERWRITE, *REPORTING),
    example="agentcli rollout --preset quickstart --model runs/sft/checkpoint --method spark --tasks 16 -o runs/x",
)
