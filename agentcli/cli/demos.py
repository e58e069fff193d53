"""The command `agentcli demos`."""

from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.cli import options
from agentcli.cli.call import Call
from agentcli.cli.command import Command, method_option

if TYPE_CHECKING:
    from agentcli.records.settings import Settings

COUNT = method_option("--count", "Demonstrations to write.", int, path="demos.count")
ANNOTATE = method_option(
    "--annotate",
    "Play nothing: let --policy add reasoning to the trajectories of RUN.",
    Path,
    "RUN",
)
HABITS = ("forget", "overlook")
"""Settings of `demos` that only the searching expert follows."""
PLAYS = (*(option for option in options.WORLD if option is not options.ENV), COUNT)
"""Options that have no effect if nothing is played."""


def demos(call: Call) -> None:
    """Write demonstrations: trajectories of an expert, or of any policy.

    Each step has one short sentence of reasoning.
    """
    import msgspec

    settings = _without_habits(call)
    demonstrator = msgspec.structs.replace(settings.policy, kind=settings.demos.policy)
    model = call.place.model(msgspec.structs.replace(settings, policy=demonstrator))
    out = call.place.new_run()
    if call.values["annotate"] is not None:
        _annotate(call, out, model)
        return
    from agentcli.stages.demos import perform, plan

    call.carry_out(plan(settings, out, model=model), perform, settings)


def _without_habits(call: Call) -> "Settings":
    """The settings, without a preset's habits if --policy cannot have them.

    A habit that was typed is kept, and refused later.
    """
    from agentcli.stages.plan import with_changes

    settings = call.settings
    typed = call.values["policy"]
    words = " ".join(call.values["set"] or [])
    if typed in (None, "search") or any(f"demos.{name}=" in words for name in HABITS):
        return settings
    dropped = [f"demos.{name}" for name in HABITS if getattr(settings.demos, name)]
    if dropped:
        call.progress.note(
            f"without {' and '.join(dropped)}: --policy {typed} has no such habits"
        )
    return with_changes(settings, demos=dict.fromkeys(HABITS, 0.0))


def _annotate(call: Call, out: Path, model: str | None) -> None:
    from agentcli.stages.annotate import perform, plan
    from agentcli.stages.resolve import find_run

    call.refuse_typed(
        PLAYS, "with --annotate, which plays nothing; leave one of the two out"
    )
    source = find_run(call.values["annotate"])
    call.carry_out(plan(call.settings, source, out, model=model), perform)


COMMAND = Command(
    name="demos",
    body=demos,
    options=(
        *options.LAYERS,
        *options.WORLD,
        options.POLICY.to(
            "demos.policy",
            "Who demonstrates, or with --annotate teaches: search, expert, "
            "transformers, openai or random.",
        ),
        *(option for option in options.SAMPLING if option is not options.POLICY),
        COUNT,
        ANNOTATE,
        *options.PACE,
        *options.OUTPUT,
        *options.REPORTING,
    ),
    example="agentcli demos --preset quickstart -o runs/demos",
)
