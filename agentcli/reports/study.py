"""The results of a study, as tables for terminal and Markdown."""

from collections.abc import Iterator, Sequence
from functools import partial
from io import StringIO
from math import isnan, nan
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, get_args

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME
from rich.text import Text

from agentcli.records.files import write_atomic
from agentcli.records.grouping import grouped
from agentcli.records.study import (
    BY_STEP,
    SeedDifference,
    StepMeasured,
    StudyResults,
    TrainingMeasured,
    scale_of,
)
from agentcli.reports.blocks import Blocks
from agentcli.reports.output import print_answer
from agentcli.reports.tables import markdown_page

if TYPE_CHECKING:
    from agentcli.reports.plots.figures import Loops

LOOPS = "loops"
"""The picture of the success in training; other measures' bear their names."""
PICTURES = {
    LOOPS,
    "gains",
    *get_args(TrainingMeasured),
    *(name + BY_STEP for name in get_args(StepMeasured)),
}
"""Names of all pictures that a study may have."""
STEP_UNITS = {
    "actions": "actions of a response",
    "call_entropy": "entropy of the tools that are called, nats",
}
HEADS = ("arm", "seeds", "mean", "gain (95 %)", "p", "paper")
WINDOW = 5
"""Iterations of the mean that is drawn."""
SVG = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font: {char_height}px/{line_height}px monospace }}
.{unique_id}-title {{ font: bold 18px sans-serif }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})"
   clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""Rich's own form would load fonts from the network."""
COLUMNS = 110
"""Width of the table as a picture, in characters."""


def print_study(found: StudyResults, out: Path, *, json: bool, quiet: bool) -> None:
    """Prints the results and writes OUT/study.md and the tables as study.svg."""
    write_atomic(out / "study.md", markdown(found).encode())
    write_atomic(out / "study.svg", svg(found).encode())
    if quiet and not json:
        print(out / "study.json")
        return
    print_answer(found, partial(_shown, out=out), json=json)


def _shown(found: StudyResults, out: Path) -> Iterator[Blocks | Text]:
    yield from _seed_tables(found)
    for line in (*remarks(found), page_hint(found, out)):
        yield Text(line)


def _seed_tables(found: StudyResults) -> Iterator[Blocks]:
    for measure, rows in tables(found.differences, found.study["reference"]):
        yield seed_table(measure, rows)


def svg(found: StudyResults) -> str:
    """The tables as a picture, for pages that show no Markdown."""
    # Rich prints what it records, so the print goes nowhere.
    paper = Console(record=True, file=StringIO(), width=COLUMNS)
    for table in _seed_tables(found):
        paper.print(table)
    title = found.study["title"]
    return paper.export_svg(title=title, theme=DEFAULT_TERMINAL_THEME, code_format=SVG)


def page_hint(found: StudyResults, out: Path) -> str:
    """The command that puts the runs of the first seed beside each other on a page."""
    seed = found.outcomes[0].seed
    runs = []
    for one in found.outcomes:
        if one.seed == seed:
            run = out / str(seed) / one.arm
            runs.append(str(run))
    page = out / "view.html"
    # Accounts of several runs would make the page large and slow to write.
    words = ["view", *runs, "--no-accounts", "-o", str(page)]
    return f"the runs of seed {seed} as one page: agentcli {join(words)}"


def draw(found: StudyResults, out: Path) -> list[Path]:
    """Draws the loops, what is followed in them and by step, and the gains.

    Returns the pictures; earlier ones of other measures are removed. Raises
    MissingError without matplotlib.
    """
    from agentcli.evaluation.record import Rate
    from agentcli.reports.plots.figures import (
        SUCCESS,
        Rates,
        evaluations_figure,
        save,
        training_figure,
    )

    gains: Rates = {}
    for one in found.differences:
        if one.low is not None and one.high is not None and one.is_share:
            of_arms = gains.setdefault(f"{one.panel}: {one.measure}", {})
            of_arms[one.arm] = Rate(
                rate=one.gain / 100,
                low=one.low / 100,
                high=one.high / 100,
            )
    figures = {}
    loops, by_step = _courses(found)
    units = {LOOPS: SUCCESS, "entropy": "entropy of the policy, nats a token"}
    for measure, courses in loops.items():
        share = f"{measure} of sampled trajectories, %"
        unit = units.get(measure, share)
        figures[measure] = training_figure(courses, window=WINDOW, unit=unit)
    for measure, courses in by_step.items():
        name = measure + BY_STEP
        unit = STEP_UNITS[measure]
        figures[name] = training_figure(courses, window=1, unit=unit, over="step")
    if gains:
        unit = f"gain over {found.study['reference']}, points"
        figures["gains"] = evaluations_figure(gains, unit)
    for name in PICTURES - figures.keys():
        picture = out / f"{name}.svg"
        picture.unlink(missing_ok=True)
    pictures = []
    for name, figure in figures.items():
        picture = out / f"{name}.svg"
        save(figure, picture)
        pictures.append(picture)
    return pictures


Courses = dict[str, "Loops"]
"""Measure -> arm -> a course for each seed."""


def _courses(found: StudyResults) -> tuple[Courses, Courses]:
    """What is drawn over the steps of the training, and over those of trajectories."""
    loops: Courses = {}
    by_step: Courses = {}
    # One seed whose trajectories are short must not hide the later steps of others.
    longest = 0
    for one in found.outcomes:
        for values in one.by_step.values():
            longest = max(longest, len(values))
    for one in found.outcomes:
        _add(loops, LOOPS, one.arm, one.steps, one.course)
        for measure, values in one.courses.items():
            _add(loops, measure, one.arm, one.steps, values)
        for measure, values in one.by_step.items():
            missing = [None] * (longest - len(values))
            _add(by_step, measure, one.arm, [1] * longest, [*values, *missing])
    return loops, by_step


def _add(
    courses: Courses,
    measure: str,
    arm: str,
    steps: list[int],
    values: Sequence[float | None],
) -> None:
    """Adds a course, unless it has no value at all."""
    from agentcli.reports.plots.figures import Course

    scale = scale_of(measure)
    shown = [nan if value is None else scale * value for value in values]
    if not all(map(isnan, shown)):
        of_arms = courses.setdefault(measure, {})
        of_arms.setdefault(arm, []).append(Course(steps=steps, values=shown))


def markdown(found: StudyResults) -> str:
    """The tables and remarks as Markdown."""
    every = tables(found.differences, found.study["reference"])
    shown = ((measure, HEADS, rows) for measure, rows in every)
    return markdown_page(found.study["title"], shown, remarks(found))


def tables(
    differences: Sequence[SeedDifference], reference: str
) -> Iterator[tuple[str, list[list[str]]]]:
    """Every measure with its rows: the reference first, then each arm beside it."""
    for widest, alike in _measures(differences):
        seeds = str(len(widest.seeds))
        mean = f"{widest.reference_mean:.{_decimals(widest)}f}"
        first = [reference, seeds, mean, "", "", ""]
        rows = [_row(one, widest.seeds) for one in alike]
        yield f"{widest.panel}: {widest.measure}", [first, *rows]


def _measures(
    differences: Sequence[SeedDifference],
) -> Iterator[tuple[SeedDifference, list[SeedDifference]]]:
    """The arms of each measure, and the one whose reference is shown."""
    measured = grouped(((one.panel, one.measure), one) for one in differences)
    for alike in measured.values():
        # An arm may have seeds that another lacks; the widest one speaks here.
        yield max(alike, key=lambda one: len(one.seeds)), alike


def seed_table(title: str, rows: Sequence[Sequence[str]]) -> Blocks:
    """A table of such rows for the terminal; a paper has a column where it has a figure."""
    table = Blocks(title, HEADS[:1], HEADS[1:])
    for row in rows:
        table.add(row)
    if not any(row[-1] for row in rows):
        table.leave_out(HEADS[-1])
    return table


def _row(one: SeedDifference, shown: Sequence[int]) -> list[str]:
    """The row of an arm; `shown` are the seeds of the reference's."""
    digits = _decimals(one)
    mean = f"{one.mean:.{digits}f}"
    if one.seeds != shown:
        mean += f" (of {one.reference_mean:.{digits}f})"
    gain = f"{one.gain:+.{digits}f}"
    if one.low is not None and one.high is not None:
        low = f"{one.low:+.{digits}f}"
        gain += f" ({low} to {one.high:+.{digits}f})"
    paper = ""
    if one.paper_gain is not None:
        paper = f"{one.paper_gain:+.{digits}f}: {one.verdict}"
    return [
        one.arm,
        str(len(one.seeds)),
        mean,
        gain,
        f"{one.p:.3f}" if one.p >= 0.001 else f"{one.p:.1g}",
        paper,
    ]


def _decimals(one: SeedDifference) -> int:
    """Decimals of a row: a gain of 0.02 nats is one, of 0.02 points none."""
    return 1 if one.is_share or abs(one.reference_mean) >= 10 else 3


def remarks(found: StudyResults) -> Iterator[str]:
    """Whose figures stand beside ours, and what the arms did not spend alike."""
    papers = [one.paper for one in found.differences]
    for paper in filter(None, dict.fromkeys(papers)):
        yield f"paper: {paper}; its gain, and whether ours agrees"
    yield from found.rules
    yield from over_seeds(found.unlike, found.differences)


def over_seeds(
    unlike: Sequence[str], differences: Sequence[SeedDifference]
) -> Iterator[str]:
    """What the arms did not spend alike, and how gains over seeds are tested."""
    for line in unlike:
        yield f"not spent alike: {line}"
    of_others = [
        one
        for widest, alike in _measures(differences)
        for one in alike
        if one.seeds != widest.seeds
    ]
    if of_others:
        yield "mean (of N): N is the reference's mean over the seeds that the arm has"
    yield (
        "gain: mean over seeds with the interval of paired t; p: exact signed-rank "
        "test over seeds"
    )
