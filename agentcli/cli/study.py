"""The command `agentcli study`."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.cli.call import Call
from agentcli.cli.command import Command, Option, file_option, running_option
from agentcli.cli.options import DRY_RUN, JSON, MACHINES, QUIET
from agentcli.errors import AgentCliError, MissingError, UsageError

if TYPE_CHECKING:
    from agentcli.records.study import SearchChoice, Study
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
    "--only",
    "Play these arms and the reference, with commas; repeatable.",
    list[str],
    "ARM,...",
)
SEEDS = file_option(
    "--seeds", "Play these seeds, for instance 0-7; the file's without it."
)
MOST = 1000
"""Runs at a time, and seeds."""
WRITTEN = ("study.json", "study.md", "study.svg", "took.yaml", "loops.svg", "gains.svg")
"""The files beside the runs, and a picture for each measure of the training and by step."""
ADDED = file_option(
    "--add-seeds",
    "Add seeds after those of the file, up to N in all, until --narrower holds.",
    int,
    "N",
    least=1,
    most=MOST,
)
NARROWER = file_option(
    "--narrower",
    "With --add-seeds: points that the 95 % interval of every gain must be below.",
    float,
    "POINTS",
)
SHARD = running_option(
    "--shard",
    "Play only every N-th seed, from the I-th on, and leave the table to the command "
    "without it.",
    metavar="I/N",
)
# Where trees grow is no setting of a study: it changes no byte, and no file names it.
PLACES = tuple(replace(option, path=None) for option in MACHINES)
JOBS = running_option(
    "--jobs", "Runs at a time; 1 without it.", int, "N", least=1, most=MOST
)


def study(call: Call) -> None:
    """Play a study: arms from one start, over seeds, and what they show.

    Every start and arm is an ordinary run below DIR. What has ended is passed over, so
    the same command goes on after a kill, and adds seeds or arms. Writes study.json,
    study.md, study.svg, loops.svg and gains.svg. Without FILE the shipped studies are listed.
    """
    from agentcli.analysis.credit_quality import has_tunnels
    from agentcli.records.study import COUNTED
    from agentcli.stages.study import find_study, read_study, refuse_unseen

    _refuse_absurd(call)
    typed = call.values["file"]
    if typed is None:
        _list(call)
        return
    jobs = call.values["jobs"] or 1
    # Every run would inherit them, and the table would not tell.
    refuse_unseen(os.environ)
    file = find_study(typed)
    out = call.values["out"] or Path("runs") / file.stem
    # Another kind of file, whose keys `read_study` would refuse.
    if has_tunnels(file):
        _credit_quality(call, file, out, jobs)
        return
    rules: list[str] = []
    chosen = read_study(file, call.values["size"])
    if chosen.search is not None:
        after = _search(call, chosen, chosen.search, out, rules)
        if after is None:
            return
        chosen = after
    made = _plan(call, chosen, out)
    if call.dry:
        _preview(call, [made])
        return
    most, narrower = call.values["add_seeds"], call.values["narrower"]
    if most is not None:
        if not set(chosen.measures) - COUNTED:
            raise UsageError("--narrower: no measure of the file is in points")
        rules.append(
            f"stopping rule: seeds are added, to {most} at most, until every interval "
            f"on the first panel is narrower than {narrower:g} points"
        )
    _play_seeds(call, made, rules)


def _refuse_absurd(call: Call) -> None:
    """Raises UsageError for numbers that cannot be meant, and for half of a rule."""
    most, narrower = call.values["add_seeds"], call.values["narrower"]
    if narrower is not None and not 0 < narrower <= 100:
        raise UsageError(f"--narrower {narrower}: must be above 0, and 100 at most")
    if (most is None) != (narrower is None):
        raise UsageError("--add-seeds N and --narrower POINTS need each other")
    if most is not None and call.values["shard"] is not None:
        raise UsageError("--add-seeds looks at all seeds, and --shard plays some")
    _check_machines(call.values["on"], call.values["workers"])


def _check_machines(place: str | None, workers: int | None) -> None:
    """Raises UsageError and MissingError for machines that no run would be sent to."""
    from agentcli.records.section import read
    from agentcli.records.settings import ClusterSettings
    from agentcli.stages.sampling import check_cluster

    if place in (None, "local") and workers is not None:
        raise UsageError(f"--workers {workers}: needs --on ray")
    if place is not None:
        given = {} if workers is None else {"workers": workers}
        check_cluster(read({"on": place, **given}, ClusterSettings, "cluster."))


def _only(call: Call) -> list[str]:
    """The arms of --only, which takes several with commas too."""
    typed = call.values["only"]
    arms = [arm.strip() for arm in ",".join(typed or []).split(",") if arm.strip()]
    if typed and not arms:
        raise UsageError(f"--only {typed[0]!r}: names no arm; write ARM,...")
    return arms


def _where(call: Call) -> list[str]:
    """The words for the commands that sample: on which machines."""
    words = []
    for name in ("on", "workers"):
        if call.values[name] is not None:
            words += [f"--{name}", str(call.values[name])]
    return words


def _plan(call: Call, chosen: "Study", out: Path) -> "StudyPlan":
    from agentcli.stages.panels import parse_shard
    from agentcli.stages.study import plan

    shard = parse_shard(call.values["shard"], "--shard")
    seeds = call.values["seeds"]
    try:
        return plan(chosen, out, only=_only(call), seeds=seeds, shard=shard)
    except UsageError as error:
        if str(error).startswith("--"):
            raise
        raise UsageError(f"{call.values['file']}: {error}") from error


def _search(
    call: Call, chosen: "Study", search: "SearchChoice", out: Path, rules: list[str]
) -> "Study | None":
    """The study with the settings that were searched; adds which these are to `rules`.

    None after the preview of a search that is still to be played, and of the rest.
    """
    from agentcli.analysis.study import refuse_counted, results, searched, settled
    from agentcli.stages.study import plan

    if call.values["shard"] is not None:
        raise UsageError(
            f"--shard: the file searches {search.path} first, for all seeds; leave it out"
        )
    # What is searched changes settings of the rest, and neither parts nor folders.
    rest = _plan(call, chosen, out)
    arms = rest.arms
    file = call.values["file"]
    try:
        refuse_counted(search, rest.seeds, call.values["add_seeds"] or 0)
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from error
    try:
        trial = plan(searched(chosen, search, arms), out)
    except UsageError as error:
        # The rest is sound, so that only what is searched makes an arm's settings bad.
        fault = f"search.path or search.values: {error}"
        raise UsageError(f"{file}: {fault}") from error
    if trial.left and call.dry:
        _preview(call, [trial, rest])
        return None
    if trial.left:
        _play(call, trial)
    chosen, rule = settled(chosen, search, results(trial), arms)
    rules.append(rule)
    return chosen


def _play_seeds(call: Call, made: "StudyPlan", rules: list[str]) -> None:
    """Plays the seeds, and those that --add-seeds asks for; reports what has ended."""
    from agentcli.analysis.study import one_seed_more

    narrower = call.values["narrower"]
    further: StudyPlan | None = made
    try:
        while further is not None:
            made = further
            _play(call, made)
            further = one_seed_more(made, call.values["add_seeds"] or 0, narrower)
    except BaseException:
        # After Ctrl-C or a failed part, too, what has ended is worth a table; what
        # stopped the study says more than a fault of that.
        try:
            _report(call, made, rules)
        except AgentCliError as error:
            call.progress.note(f"no table: {error}")
        raise
    _report(call, made, rules)


def _play(call: Call, made: "StudyPlan") -> None:
    """Plays what is left, after saying how much that is."""
    from msgspec import to_builtins

    from agentcli.analysis.estimate import remaining, write_took
    from agentcli.reports.output import readable
    from agentcli.stages.study import perform

    jobs, left = call.values["jobs"] or 1, made.left
    expected = readable(to_builtins(remaining([made], jobs)))
    words = "".join(f"; {name} {value}" for name, value in expected.items())
    call.progress.note(f"{left} of {len(made.chains)} parts to play{words}")
    try:
        perform(made, jobs, call.progress, _where(call))
    finally:
        # Its yardstick is this machine's, which may not have played what had ended.
        if made.left < left:
            write_took(made)


def _list(call: Call) -> None:
    """Lists the shipped studies, each with the first line of its file."""
    from agentcli.reports.output import print_rows
    from agentcli.stages.layers import purpose_of
    from agentcli.stages.study import list_studies

    rows = [{"study": path.stem, "asks": purpose_of(path)} for path in list_studies()]
    print_rows("studies", rows, json=call.values["json"])


def _report(call: Call, made: "StudyPlan", rules: list[str]) -> None:
    """Writes and prints what has ended so far; of a shard, nothing."""
    if call.values["shard"] is not None:
        call.progress.note(
            "the table: type the command without --shard, once all ended"
        )
        return
    from agentcli.analysis.study import results, seeds_beside
    from agentcli.records.files import write_json
    from agentcli.reports.study import draw, print_study

    found = results(made, rules)
    if not found.outcomes:
        return
    write_json(made.out / "study.json", found)
    if further := seeds_beside(made):
        call.progress.note(
            f"seed {', '.join(further)} has all these arms too and is not in this "
            "table; name it with --seeds"
        )
    print_study(found, made.out, json=call.values["json"], quiet=call.values["quiet"])
    try:
        draw(found, made.out)
    except MissingError as error:
        call.progress.note(f"no pictures: {error}")


def _credit_quality(call: Call, file: Path, out: Path, jobs: int) -> None:
    """Measures the credit of a file of tunnels; writes credit-quality.* and a map."""
    from agentcli.analysis.credit_quality import perform, plan, preview
    from agentcli.records.files import write_json
    from agentcli.reports.credit_quality import draw_map, print_quality

    values = call.values
    for option in (SIZE, ADDED, NARROWER, SHARD, *PLACES):
        value = values[option.name]
        if value is not None:
            typed = f"{option.shown} {value}"
            raise UsageError(f"{typed}: a file of tunnels has none; leave it out")
    made = plan(file, out, only=_only(call), seeds=values["seeds"])
    if call.dry:
        preview(made, file, json=values["json"])
        return
    quality = perform(made, jobs, call.progress)
    write_json(out / "credit-quality.json", quality)
    print_quality(quality, out, json=values["json"], quiet=values["quiet"])
    picture = out / "credit-map.svg"
    # That of an earlier command may show more than was asked for now.
    picture.unlink(missing_ok=True)
    if quality.differences:
        try:
            draw_map(quality, picture)
        except MissingError as error:
            call.progress.note(f"no picture: {error}")


def _preview(call: Call, plans: Sequence["StudyPlan"]) -> None:
    """Prints what is left to do, a search and then the rest, and how long that takes."""
    from msgspec import to_builtins

    from agentcli.analysis.estimate import remaining
    from agentcli.records.study import BY_STEP
    from agentcli.reports.output import print_preview

    made = plans[-1]
    # The search's demonstrations are on a seed of its own: no part is in two plans.
    parts = [chain for one in plans for chain in one.chains if chain.commands]
    left = [command for chain in parts for command in chain.left]
    counts = {"parts": len(parts), "commands left": len(left)}
    if call.values["add_seeds"] is not None:
        counts["seeds at most"] = call.values["add_seeds"]
    # Several commands write into one folder, which is listed once.
    folders = dict.fromkeys(str(command.folder) for command in left)
    followed = [*made.study.training, *(name + BY_STEP for name in made.study.by_step)]
    written = [*WRITTEN, *(f"{name}.svg" for name in followed)]
    print_preview(
        "study",
        to_builtins(made.study),
        {"study": call.values["file"]},
        [*folders, *(str(made.out / name) for name in written)],
        counts,
        remaining(plans, call.values["jobs"] or 1),
        json=call.values["json"],
    )


COMMAND = Command(
    name="study",
    body=study,
    options=(
        FILE_ARGUMENT,
        FOLDER,
        SIZE,
        ONLY,
        SEEDS,
        ADDED,
        NARROWER,
        SHARD,
        JOBS,
        *PLACES,
        DRY_RUN,
        JSON,
        QUIET,
    ),
    example="agentcli study tunnel-credit --seeds 0-7 -o runs/credit --jobs 2",
)
