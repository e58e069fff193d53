"""agentcli demos"""

from agentcli.cli.command import Call, Command
from agentcli.cli.dry_run import panel_size
from agentcli.cli.options import LAYERS, OUT, OVERWRITE, PACE, POLICY, REPORTING, SAMPLING, WORLD, Option

COUNT = Option("count", ("--count",), int, "Demonstrations to write.", "demos.count", "Method", "N")


def demos(call: Call) -> None:
    """Write demonstrations: trajectories of an expert, or of any policy, one short sentence of reasoning per step."""
    import msgspec

    settings = call.settings
    demonstrator = msgspec.structs.replace(settings.policy, kind=settings.demos.policy)
    model = call.model(msgspec.structs.replace(settings, policy=demonstrator))
    if call.preview({"model": model}, lambda: {"tasks": panel_size(settings), "demonstrations": settings.demos.count}):
        return
    out = call.new_run()
    from agentcli.stages.demos import demos as stage

    call.finish(stage(settings, out, call.invocation, model=model), out)


COMMAND = Command(
    name="demos",
    body=demos,
    options=(
        *LAYERS,
        *WORLD,
        *(option.to("demos.policy") if option is POLICY else option for option in SAMPLING),
        COUNT,
        *PACE,
        OUT,
        OVERWRITE,
        *REPORTING,
    ),
    example="agentcli demos --preset quickstart -o runs/demos",
)
