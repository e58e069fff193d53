"""agentcli rollout"""

from agentcli.cli.command import Call, Command
from agentcli.cli.dry_run import check_method, panel_size
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
    """Grow one tree of steps per task. Without --preset, -c or --model, go on from runs/latest."""
    settings, model = call.settings, call.model()

    def counts() -> dict[str, int]:
        check_method(settings)
        tasks = panel_size(settings)
        if settings.rollout.iteration is not None:
            tasks = min(tasks, settings.rollout.tasks_per_step)
        leaves = tasks * settings.rollout.leaves
        return {"tasks": tasks, "leaves_at_most": leaves, "steps_at_most": leaves * settings.environment.max_steps}

    if call.preview({"model": model}, counts):
        return
    out = call.new_run()
    from agentcli.stages.rollout import rollout as stage

    call.finish(stage(settings, out, call.invocation, model=model), out)


COMMAND = Command(
    name="rollout",
    body=rollout,
    inherits=True,
    fresh=True,
    options=(*LAYERS, *WORLD, *SAMPLING, METHOD, *GROWTH, ITERATION, *PACE, OUT, RESUME, OVERWRITE, *REPORTING),
    example="agentcli rollout --method spark --tasks 16",
)
