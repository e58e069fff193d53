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

FILE_ARGUMENT = Option(
    "file", "The study: a shipped one by its name, or a YAML file.", str, "FILE"
)
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
WRITTEN = ("study.json", "study.md", "loops.svg", "gains.svg")
JOBS = running_option("--jobs", "Runs at a time; 1 without it.", int, "N")


def study(call: Call) -> None:
    """Play a study: arms from one start, over seeds, and what they show.

    Every start and arm is an ordinary run below DIR. What has ended is passed over, so
    the same command goes on after a kill, and adds seeds or arms. Writes study.json,
    study.md, loops.svg and gains.svg. Without FILE the shipped studies are listed.
    """
    from agentcli.stages.study import find_study, perform, plan, read_study

    typed = call.values["file"]
    if typed is None:
        _list(call)
        return
    jobs = call.values["jobs"] or 1
    if jobs < 1:
        raise UsageError(f"--jobs {jobs}: must be at least 1")
    file = find_study(typed)
    made = plan(
        read_study(file, call.values["size"]),
        call.values["out"] or Path("runs") / file.stem,
        only=call.values["only"] or [],
        seeds=call.values["seeds"],
    )
    if call.dry:
        _preview(call, made, file, jobs)
        return
    _announce(call, made, jobs)
    try:
        perform(made, jobs, call.progress)
    finally:
        _report(call, made)


def _list(call: Call) -> None:
    """Lists the shipped studies, each with the first line of its file."""
    from agentcli.reports.output import print_rows
    from agentcli.stages.study import list_studies

    rows = []
    for path in list_studies():
        first_line = path.read_text(encoding="utf-8").partition("\n")[0]
        rows.append({"study": path.stem, "asks": first_line.lstrip("# ")})
    print_rows("studies", rows, json=call.values["json"])


def _announce(call: Call, made: "StudyPlan", jobs: int) -> None:
    """Says what is left, and how long it takes where that is known."""
    from msgspec import to_builtins

    from agentcli.reports.output import readable
    from agentcli.stages.study import remaining

    left = sum(bool(chain.left) for chain in made.chains)
    expected = readable(to_builtins(remaining(made, jobs)))
    words = "".join(f"; {name} {value}" for name, value in expected.items())
    call.progress.note(f"{left} of {len(made.chains)} parts to play{words}")


def _report(call: Call, made: "StudyPlan") -> None:
    """Writes and prints what has ended so far."""
    from agentcli.analysis.study import results
    from agentcli.errors import MissingError
    from agentcli.records.files import write_json
    from agentcli.reports.study import draw, print_study

    found = results(made)
    if not found.outcomes:
        return
    write_json(made.out / "study.json", found)
    print_study(found, made.out, json=call.values["json"], quiet=call.values["quiet"])
    try:
        draw(found, made.out)
    except MissingError as error:
        call.progress.note(f"no pictures: {error}")


def _preview(call: Call, made: "StudyPlan", file: Path, jobs: int) -> None:
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
        {"study": file},
        [*folders, *(str(made.out / name) for name in WRITTEN)],
        counts,
        remaining(made, jobs),
        json=call.values["json"],
    )


COMMAND = Command(
    name="study",
    body=study,
    options=(FILE_ARGUMENT, FOLDER, SIZE, ONLY, SEEDS, JOBS, DRY_RUN, JSON, QUIET),
    example="agentcli study tunnel-credit --seeds 0-7 -o runs/credit --jobs 2",
)
