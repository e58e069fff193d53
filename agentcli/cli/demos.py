"""The command `agentcli demos`."""

from pathlib import Path

from agentcli.cli.command import Call, Command
from agentcli.cli.options import (
    ENV,
    LAYERS,
    OUT,
    OVERWRITE,
    PACE,
    POLICY,
    REPORTING,
    RESUME,
    SAMPLING,
    WORLD,
    Option,
)
from agentcli.errors import UsageError

COUNT = Option(
    "count", ("--count",), int, "Demonstrations to write.", "demos.count", "Method", "N"
)
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
"""Options that have no effect where nothing is played."""


def demos(call: Call) -> None:
    """Write demonstrations: trajectories of an expert, or of any policy, one short
    sentence of reasoning per step.
    """
    import msgspec

    settings = call.settings
    demonstrator = msgspec.structs.replace(settings.policy, kind=settings.demos.policy)
    model = call.model(msgspec.structs.replace(settings, policy=demonstrator))
    out = call.new_run()
    if call.values["annotate"] is not None:
        _annotate(call, out, model)
        return
    from agentcli.stages.demos import perform, plan

    call.carry_out(plan(settings, out, model=model), perform)


def _annotate(call: Call, out: Path, model: str | None) -> None:
    from agentcli.stages.annotate import perform, plan
    from agentcli.stages.resolve import find_run

    typed = next(
        (option for option in PLAYS if call.values[option.name] is not None), None
    )
    if typed is not None:
        raise UsageError(
            f"{typed.names[0]} has no effect with --annotate, which plays nothing; "
            "leave one of the two out"
        )
    source = find_run(call.values["annotate"])
    call.carry_out(plan(call.settings, source, out, model=model), perform)


COMMAND = Command(
    name="demos",
    body=demos,
    options=(
        *LAYERS,
        *WORLD,
        *(
            option.to("demos.policy") if option is POLICY else option
            for option in SAMPLING
        ),
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
