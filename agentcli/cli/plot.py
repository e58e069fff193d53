"""The command `agentcli plot`."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from agentcli.cli.call import Call
from agentcli.cli.command import Command, Option, file_option
from agentcli.cli.options import OVERWRITE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Subject = Literal["training", "kinds", "evaluations", "pass-at-k"]
OF_LOOPS = ("training", "kinds")

picture_option = partial(Option, panel="Picture")
USUAL_WINDOW = 5

RUNS_ARGUMENT = Option(
    "runs",
    "Run directories. Loops that differ in their seed become one line with a band.",
    list[Path],
    "RUN...",
)
SUBJECT = picture_option(
    "--of",
    "What is drawn; kinds: training by kind of task. Without it: training for loops, "
    "evaluations for other runs.",
    Subject,
    "SUBJECT",
)
LABEL = picture_option(
    "--label",
    "Draw these evaluations; repeatable. All of them without it.",
    list[str],
    "NAME",
)
WINDOW = picture_option(
    "--window",
    f"Iterations of the trailing mean of a loop's success; {USUAL_WINDOW} without it.",
    int,
    "N",
    least=1,
)
PICTURE = file_option(
    "--out -o", "The picture: .svg, .png or .pdf. Without it, plot.svg.", Path, "FILE"
)


def plot(call: Call) -> None:
    """Draw success over training, whole or by kind, evaluations, or pass@k.

    The picture is suitable for a paper, and the same input always gives the same file.
    The band over several seeds is one standard error of their mean.
    """
    from agentcli.reports.output import print_path
    from agentcli.reports.plots.figures import check_suffix, save

    runs = call.values["runs"] or [call.place.run]
    out = call.values["out"] or Path("plot.svg")
    check_suffix(out)
    call.refuse_existing(out)
    save(_figure(call, runs), out)
    print_path(out)


def _figure(call: Call, runs: list[Path]) -> "Figure":
    from agentcli.records.runs import loop_folders
    from agentcli.reports.plots import figures, groups
    from agentcli.stages.resolve import find_run

    runs = [find_run(run) for run in runs]
    usual: Subject = "training" if all(map(loop_folders, runs)) else "evaluations"
    subject = call.values["of"] or usual
    if subject not in OF_LOOPS:
        call.refuse_typed((WINDOW,), f"on {subject}; add --of training")
    if subject != "evaluations":
        call.refuse_typed((LABEL,), f"on {subject}; add --of evaluations")
    if subject in OF_LOOPS:
        loops = groups.loops_by_group(runs)
        for line in groups.unequal_lengths(loops):
            call.progress.note(line)
        window = call.values["window"] or USUAL_WINDOW
        if subject == "training":
            return figures.training_figure(loops, window=window)
        return figures.kinds_figure(groups.by_kind(loops), window=window)
    if subject == "evaluations":
        labels = call.values["label"] or []
        return figures.evaluations_figure(groups.rates_by_label(runs, labels))
    return figures.pass_at_k_figure(groups.chances_by_run(runs))


COMMAND = Command(
    name="plot",
    body=plot,
    options=(RUNS_ARGUMENT, SUBJECT, LABEL, WINDOW, PICTURE, OVERWRITE),
    example="agentcli plot runs/rl -o success.svg",
)
