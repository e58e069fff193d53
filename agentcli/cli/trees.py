"""The commands `agentcli demos`, `rollout`, `merge` and `import`: what writes trees."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.cli import options
from agentcli.cli.call import Call
from agentcli.cli.command import Command, Option, method_option
from agentcli.cli.completion import fixed
from agentcli.cli.method_options import growth_options
from agentcli.cli.options import OUT, OVERWRITE, REPORTING
from agentcli.errors import UsageError

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


DEMOS = Command(
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


CRITIC = method_option(
    "--critic",
    "Critic whose value of every step is recorded; credit ppo reads it.",
    str,
    "DIR",
    hidden=True,
    path="rollout.critic",
)


def rollout(call: Call) -> None:
    """Grow one tree of steps per task.

    Without --preset, -c or --model, settings and model are taken from runs/latest.
    """
    from agentcli.stages.rollout import perform, plan

    growth = plan(
        call.settings, call.place.new_run(), model=call.place.model(call.settings)
    )
    call.note(call.settings.rollout.remark)
    call.carry_out(growth, perform)


ROLLOUT = Command(
    name="rollout",
    body=rollout,
    inherits=True,
    fresh=True,
    options=(
        *options.LAYERS,
        *options.WORLD,
        options.SHARD,
        *options.SAMPLING,
        options.METHOD,
        *options.GROWTH,
        CRITIC,
        options.PRM,
        options.ITERATION,
        *options.PACE,
        *options.MACHINES,
        *options.OUTPUT,
        *options.REPORTING,
    ),
    of_methods=growth_options,
    example=(
        "agentcli rollout --preset quickstart --model runs/sft/checkpoint --method "
        "spark --tasks 16 -o runs/x"
    ),
)

SHARDS_ARGUMENT = Option(
    "shards", "The run directories of all shards.", list[Path], "SHARD"
)


def merge(call: Call) -> None:
    """Join the runs of all shards (--shard I/N).

    The result is the run that the unsharded command would have written.
    """
    from agentcli.stages.merge import perform, plan

    if not call.values["shards"]:
        raise UsageError(
            "name the run directories of all shards: agentcli merge SHARD... -o DIR"
        )
    # A shard may contain a rollout and evaluations: each stage is merged separately.
    for stage in plan(call.values["shards"], call.place.new_run()):
        call.carry_out(stage, perform, stage.settings)


MERGE = Command(
    name="merge",
    body=merge,
    options=(SHARDS_ARGUMENT, options.OUT, options.OVERWRITE, *options.REPORTING),
    example="agentcli merge runs/part-1 runs/part-2 -o runs/whole",
)


form_option = partial(Option, panel="Form")

FILE_ARGUMENT = Option("file", "File of trajectories.", Path)
FROM = form_option(
    "--from",
    "verifiers: traces.jsonl. messages: a chat a line, with `reward`, and if it has them "
    "`success` and `group`. inspect: a log, .eval or .json.",
    str,
    "FORMAT",
    fixed("verifiers", "messages", "inspect"),
)
STATES = form_option(
    "--states",
    "What stands for a state that the file lacks. none: nothing, and methods that "
    "compare states refuse. observation: a hash of the last observation.",
    str,
    "none|observation",
    fixed("none", "observation"),
)
SUCCESS = form_option(
    "--success",
    "The reward from which a trajectory without a verdict is a success; 1 without it.",
    float,
)
SCORE = form_option(
    "--score",
    "inspect: the score that is the reward; the first without it.",
    str,
    "NAME",
)


def import_file(call: Call) -> None:
    """Read trajectories that another program rolled out, as a run.

    To look at them, credit them, compare methods on them, export them, and train on
    them if they have token ids. Nothing can play their world.
    """
    from agentcli.stages.imports import perform, plan

    import_plan = plan(
        call.values["file"],
        call.values["from_"],
        call.place.new_run(),
        states=call.values["states"],
        success=call.values["success"],
        score=call.values["score"],
    )
    call.carry_out(import_plan, perform, import_plan.settings)


IMPORT = Command(
    name="import",
    body=import_file,
    options=(FILE_ARGUMENT, FROM, STATES, SUCCESS, SCORE, OUT, OVERWRITE, *REPORTING),
    example="agentcli import runs/x/export/conversations.jsonl --from messages -o runs/i",
)
