"""The command `agentcli study`."""

from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.cli.call import Call
from agentcli.cli.command import Command
from agentcli.cli.option import Option, file_option, running_option
from agentcli.cli.options import DRY_RUN, JSON, QUIET
from agentcli.errors import UsageError

if TYPE_CHECKING:
    from agentcli.stages.study import StudyPlan

FILE_ARGUMENT = Option("file", "The study: a YAML file.", Path, "FILE")
FOLDER = file_option(
    "--out -o", "Folder of all its runs. Without it, runs/NAME.", Path, "DIR"
)
SIZE = file_option(
    "--size", "One of the sizes in the file; without it the first.", str, "NAME"
)
ONLY = file_option(
    "--only", "Play these arms and the reference; repeatable.", list[str], "ARM"
)
SEEDS = file_option(
    "--seeds", "Play these seeds, for instance 0-7; the file's without it."
)
JOBS = running_option("--jobs", "Runs at a time; 1 without it.", int, "N")


def study(call: Call) -> None:
    """Play a study: arms from one start, over seeds, and what they show.

    Every start and arm is an ordinary run below DIR. What has ended is passed over, so
    the same command goes on after a kill, and adds seeds or arms. Writes study.json.
    """
    from agentcli.analysis.study import results
    from agentcli.records.files import write_json
    from agentcli.reports.study import print_study
    from agentcli.stages.study import perform, plan, read_study

    file = call.values["file"]
    if file is None:
        raise UsageError("name a study: agentcli study FILE.yaml")
    jobs = call.values["jobs"] or 1
    if jobs < 1:
        raise UsageError(f"--jobs {jobs}: must be at least 1")
    out = call.values["out"] or Path("runs") / file.stem
    made = plan(
        read_study(file, call.values["size"]),
        out,
        only=call.values["only"] or [],
        seeds=call.values["seeds"],
    )
    if call.dry:
        _preview(call, made, jobs)
        return
    try:
        perform(made, jobs, call.progress)
    finally:
        found = results(made)
        if found.outcomes:
            write_json(out / "study.json", found)
            print_study(
                found, out, json=call.values["json"], quiet=call.values["quiet"]
            )


def _preview(call: Call, made: "StudyPlan", jobs: int) -> None:
    """Prints what is left to do, and how long that takes."""
    from msgspec import to_builtins

    from agentcli.reports.output import print_preview
    from agentcli.stages.study import remaining

    parts = [chain for chain in made.chains if chain.commands]
    left = [command for chain in parts for command in chain.left]
    counts = {"parts": len(parts), "commands left": len(left)}
    folders = dict.fromkeys(str(command.folder) for command in left)
    print_preview(
        "study",
        to_builtins(made.study),
        {"study": call.values["file"]},
        [*folders, str(made.out / "study.json"), str(made.out / "study.md")],
        counts,
        remaining(made, jobs),
        json=call.values["json"],
    )


COMMAND = Command(
    name="study",
    body=study,
    options=(FILE_ARGUMENT, FOLDER, SIZE, ONLY, SEEDS, JOBS, DRY_RUN, JSON, QUIET),
    example="agentcli study studies/rewardflow-sokoban.yaml -o runs/study --jobs 2",
)
