"""agentcli demos"""

from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.cli.command import Call, Command
from agentcli.cli.dry_run import check_policy, panel_size
from agentcli.cli.options import ENV, LAYERS, OUT, OVERWRITE, PACE, POLICY, REPORTING, RESUME, SAMPLING, WORLD, Option
from agentcli.errors import UsageError

if TYPE_CHECKING:
    from agentcli.records.settings import Settings

COUNT = Option("count", ("--count",), int, "Demonstrations to write.", "demos.count", "Method", "N")
ANNOTATE = Option(
    "annotate",
    ("--annotate",),
    Path,
    "Play nothing: let --policy add reasoning to the trajectories of RUN.",
    None,
    "Method",
    "RUN",
)
PLAYS = (*(option for option in WORLD if option is not ENV), COUNT)
"""What has no effect where nothing is played."""


def demos(call: Call) -> None:
    """Write demonstrations: trajectories of an expert, or of any policy, one short sentence of reasoning per step."""
    import msgspec

    from agentcli.records.runs import RunDirectory

    settings = call.settings
    demonstrator = msgspec.structs.replace(settings.policy, kind=settings.demos.policy)
    model = call.model(msgspec.structs.replace(settings, policy=demonstrator))
    out = call.new_run()
    if call.values["annotate"] is not None:
        _annotate(call, settings, out, model)
        return

    def counts() -> dict[str, int]:
        check_policy(settings, demonstrator.kind)
        return {"tasks": panel_size(settings), "demonstrations": settings.demos.count}

    if call.preview({"model": model}, counts, [RunDirectory(out).trees]):
        return
    from agentcli.stages.demos import demos as stage

    call.finish(stage(settings, out, call.invocation, model=model), out)


def _annotate(call: Call, settings: "Settings", out: Path, model: str | None) -> None:
    from agentcli.environments.registry import make_world
    from agentcli.records.runs import RunDirectory
    from agentcli.stages.annotate import annotate, check_teacher, given_trees
    from agentcli.stages.resolve import find_run

    typed = next((option for option in PLAYS if call.values[option.name] is not None), None)
    if typed is not None:
        raise UsageError(
            f"{typed.names[0]} has no effect with --annotate, which plays nothing; leave one of the two out"
        )
    source = find_run(call.values["annotate"])
    trees = RunDirectory(source).existing_trees()
    check_teacher(settings, source, out)

    def counts() -> dict[str, int]:
        check_policy(settings, settings.demos.policy)
        return {"trees": sum(1 for _ in given_trees(trees, make_world(settings.environment)))}

    if call.preview({"annotate": trees, "model": model}, counts, [RunDirectory(out).trees]):
        return
    call.finish(annotate(settings, source, out, call.invocation, model=model), out)


COMMAND = Command(
    name="demos",
    body=demos,
    options=(
        *LAYERS,
        *WORLD,
        *(option.to("demos.policy") if option is POLICY else option for option in SAMPLING),
        COUNT,
        ANNOTATE,
        *PACE,
        OUT,
        RESUME,
        OVERWRITE,
        *REPORTING,
    ),
    example="agentcli demos --preset quickstart -o runs/demos",
)
