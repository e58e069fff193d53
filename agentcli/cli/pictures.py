"""The commands `agentcli view` and `plot`: runs as a page, and as a picture."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from agentcli.cli import completion
from agentcli.cli.call import Call
from agentcli.cli.command import Command, Option, file_option
from agentcli.cli.options import OVERWRITE, REPORTING
from agentcli.cli.show import runs_here
from agentcli.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from agentcli.analysis.page.pack import PageOptions

RUNS_ARGUMENT = Option(
    "runs",
    "Run directories; without any, all below runs/. A loop brings its iterations.",
    list[Path],
    "RUN...",
)
CREDIT = Option(
    "--credit",
    "Show the credit of this method, computed where a run holds none; repeatable. "
    "Without it: all that the runs hold.",
    list[str],
    "NAME",
    completion.credit_methods,
)
NO_ACCOUNTS = Option(
    "--no-accounts",
    "Leave out why each step has its advantage: a smaller page, sooner.",
    bool,
)
OPEN = Option("--open", "Open the page in the browser.", bool)
WATCH = Option(
    "--watch",
    "Write the page again whenever the runs have changed, until Ctrl-C or until no "
    "loop goes on.",
    bool,
)
PAGE = file_option(
    "--out -o",
    "The page, without it view.html. An older page is replaced.",
    Path,
    "FILE",
)


def view(call: Call) -> None:
    """Write runs as one web page: trees, credit, state graphs, comparisons.

    The page opens in any browser, also from disk or as a mail attachment, and loads
    nothing from a network. Above 64 MB its data is in a folder next to it.
    """
    from agentcli.reports.page.document import is_page

    page = call.values["out"] or Path("view.html")
    if page.suffix != ".html":
        raise UsageError(f"-o {page}: write a page, for instance {page.stem}.html")
    # Before the imports, which take seconds. A page can be written again from its runs.
    if not is_page(page):
        call.refuse_existing(page)

    from agentcli.analysis.compare_credit import in_full
    from agentcli.analysis.page.pack import PageOptions, refuse_others
    from agentcli.credit.registry import make
    from agentcli.records.runs import RunDirectory

    runs = _runs(call)
    refuse_others(runs)
    methods = call.values["credit"] or []
    for run in runs:
        methods = in_full(RunDirectory(run), methods)
    for method in methods:
        make({"method": method})
    options = PageOptions(methods=methods, accounts=not call.values["no_accounts"])
    if call.dry:
        _preview(call, runs, options, page)
    else:
        _write(call, runs, options, page)


def _preview(call: Call, runs: list[Path], options: "PageOptions", page: Path) -> None:
    """Prints what the page would contain, after reading all inputs."""
    from msgspec import to_builtins

    from agentcli.analysis.page.overview import page_run
    from agentcli.analysis.page.pack import short_names, sources_of
    from agentcli.records.trees import read_trees
    from agentcli.reports.output import print_preview

    files: dict[str, Path | None] = {}
    for run, name in short_names(runs).items():
        page_run(run, name)
        files |= {source.name: source.trees for source in sources_of(run, name)}
    trees = sum(1 for file in files.values() if file for _ in read_trees(file))
    counts = {"runs": len(runs), "trees": trees}
    settings = to_builtins(options)
    json = call.values["json"]
    print_preview("view", settings, files, [str(page)], counts, json=json)


def _runs(call: Call) -> list[Path]:
    from agentcli.stages.resolve import find_run

    typed = call.values["runs"]
    if typed:
        return [find_run(run) for run in typed]
    return [Path(run.path) for run in runs_here()]


def _write(call: Call, runs: list[Path], options: "PageOptions", page: Path) -> None:
    import webbrowser

    from agentcli.analysis.page.pack import write_pages

    watch = call.values["watch"]
    pages = write_pages(runs, options, page, call.progress, watch=watch)
    for number, written in enumerate(pages):
        if number == 0:
            _print_page(written, json=call.values["json"])
            if call.values["open"]:
                webbrowser.open(written.absolute().as_uri())
        else:
            call.progress.note(f"written again: {written}")


def _print_page(page: Path, *, json: bool) -> None:
    """Prints the path of the page at once, because a watched page keeps updating."""
    from agentcli.reports.output import print_json, print_path

    if json:
        print_json({"stage": "view", "out": str(page)})
    else:
        print_path(page)
    sys.stdout.flush()


VIEW = Command(
    name="view",
    body=view,
    options=(
        RUNS_ARGUMENT,
        CREDIT,
        NO_ACCOUNTS,
        WATCH,
        OPEN,
        PAGE,
        OVERWRITE,
        *REPORTING,
    ),
    example="agentcli view runs/x runs/rl -o look.html",
)


Subject = Literal["training", "kinds", "evaluations", "pass-at-k"]
OF_LOOPS = ("training", "kinds")

picture_option = partial(Option, panel="Picture")
USUAL_WINDOW = 5

DRAWN_ARGUMENT = Option(
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


PLOT = Command(
    name="plot",
    body=plot,
    options=(DRAWN_ARGUMENT, SUBJECT, LABEL, WINDOW, PICTURE, OVERWRITE),
    example="agentcli plot runs/rl -o success.svg",
)
