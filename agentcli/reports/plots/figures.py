"""The figures of `agentcli plot`: success over a loop, by kind, evaluations, pass@k.

Every function takes plain numbers and returns a matplotlib figure. The same numbers
give the same bytes.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from agentcli.errors import MissingError, UsageError
from agentcli.evaluation.record import Rate
from agentcli.records.faults import printable
from agentcli.records.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".png", ".pdf")
SUCCESS = "success of sampled trajectories, %"
MOST_COLUMNS = 3
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#000000")
"""Okabe and Ito's, told apart by colour-blind readers; their yellow is too pale."""
DATES = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
"""The key of the date by format; PNG has none."""
STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "figure.constrained_layout.use": True,
    # With it and without a date, one input gives one file.
    "svg.hashsalt": "agentcli",
}


class Course(msgspec.Struct, kw_only=True):
    """One loop: environment steps and a measure of each iteration."""

    steps: list[int]
    values: list[float]
    """Shares are in percent. NaN where there were no trajectories."""
    kinds: dict[str, list[float]] = {}
    """The same by kind of task."""


Loops = dict[str, list[Course]]
"""Name of a group -> its loops, which differ in their seed."""
Rates = dict[str, dict[str, Rate]]


def training_figure(
    loops: Loops,
    *,
    window: int,
    unit: str = SUCCESS,
    over: str = "environment steps",
) -> "Figure":
    """A measure over environment steps: the mean of each group of loops.

    The band is one standard error of their mean. window: iterations of a trailing mean.
    unit: what is measured. over: what the steps of a course are.
    """
    figure, axes = _new_figure()
    _draw_loops(axes, loops, _colours_of(loops), window)
    axes.set_xlabel(over)
    axes.set_ylabel(unit)
    axes.legend(frameon=False)
    return figure


def kinds_figure(kinds: Mapping[str, Loops], *, window: int) -> "Figure":
    """Success over environment steps, with a panel for each kind of task.

    A line has a gap where no task of its kind was sampled in a window.
    """
    columns = min(len(kinds), MOST_COLUMNS)
    rows = math.ceil(len(kinds) / columns)
    height = 0.6 + 2.1 * rows
    figure, panels = _new_figure(rows, columns, height)
    for axes in panels[len(kinds) :]:
        axes.remove()
    # A name has one colour, whatever kinds it met.
    names_of_all = chain.from_iterable(kinds.values())
    colours = _colours_of(names_of_all)
    legend = dict[str, Any]()
    for axes, (kind, loops) in zip(panels, kinds.items(), strict=False):
        _draw_loops(axes, loops, colours, window)
        axes.set_title(plain(kind), fontsize="x-small")
        # A line at 0 or 100 would otherwise be cut in half.
        axes.set_ylim(-2, 102)
        axes.locator_params(axis="x", nbins=4)
        lines, names = axes.get_legend_handles_labels()
        legend |= dict(zip(names, lines, strict=True))
    figure.supxlabel("environment steps", fontsize="medium")
    figure.supylabel(SUCCESS, fontsize="medium")
    handles = list(legend.values())
    # Constrained layout (STYLE) makes room for a legend outside.
    figure.legend(handles, list(legend), loc="outside upper center", frameon=False)
    return figure


def _draw_loops(
    axes: Any,
    loops: Loops,
    colours: Mapping[str, str],
    window: int,
) -> None:
    """A line for each name, with its band."""
    for name, courses in loops.items():
        colour = colours[name]
        steps, mean, error = _mean_course(courses, window)
        label = plain(name)
        if len(courses) > 1:
            label += f" ({len(courses)} runs)"
        # A single point is not a line.
        marker = "o" if len(steps) == 1 else None
        axes.plot(steps, mean, color=colour, marker=marker, label=label)
        if error is not None:
            low = mean - error
            high = mean + error
            axes.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)


def _mean_course(
    courses: Sequence[Course], window: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Steps, mean and standard error, as far as the shortest loop goes; each of shape
    (iterations - window + 1,).

    They are of the loops that have a value there; NaN where none has one.
    """
    length = min(len(course.steps) for course in courses)
    window = min(window, length)
    smooth = []
    walked = []
    for course in courses:
        values = course.values[:length]
        smooth.append(_trailing_mean(values, window))
        steps = np.cumsum(course.steps[:length])
        # The mean of a window stands at its last iteration.
        walked.append(steps[window - 1 :])
    steps = np.mean(walked, axis=0)
    known = np.ma.masked_invalid(smooth)
    mean = known.mean(axis=0).filled(np.nan)
    if len(courses) == 1:
        return steps, mean, None
    counts = known.count(axis=0)
    error = known.std(axis=0, ddof=1) / np.sqrt(counts)
    return steps, mean, error.filled(np.nan)


def _trailing_mean(values: Sequence[float], window: int) -> np.ndarray:
    """The mean of each window over the numbers in it; NaN where there is none."""
    windows = sliding_window_view(np.asarray(values), window)
    is_number = ~np.isnan(windows)
    counts = is_number.sum(axis=-1)
    empty = np.full(len(windows), np.nan)
    # np.nanmean would warn at a window without numbers.
    sums = np.nansum(windows, axis=-1)
    means: np.ndarray = np.divide(sums, counts, out=empty, where=counts > 0)
    return means


def evaluations_figure(rates: Rates, unit: str = "success, %") -> "Figure":
    """Success with its 95 % interval: a panel for each label, a row for each run.

    rates: label -> run -> success, or a difference of it.
    """
    names = chain.from_iterable(rates.values())
    runs = list(dict.fromkeys(names))
    columns = min(len(rates), MOST_COLUMNS)
    rows = math.ceil(len(rates) / columns)
    height = 0.5 + (0.7 + 0.3 * len(runs)) * rows
    figure, panels = _new_figure(rows, columns, height)
    for axes in panels[len(rates) :]:
        axes.remove()
    for axes, (label, row) in zip(panels, rates.items(), strict=False):
        for place, run in enumerate(runs):
            if run in row:
                _interval(axes, place, row[run])
        axes.set_title(plain(label))
    figure.supxlabel(unit, fontsize="medium")
    first = panels[0]
    labels = list(map(plain, runs))
    first.set_yticks(range(len(runs)), labels)
    # Upside down, so that the first run stands on top.
    first.set_ylim(len(runs) - 0.5, -0.5)
    return figure


def _interval(axes: Any, place: int, rate: Rate) -> None:
    """A dot with its interval, in percent."""
    # errorbar refuses a negative length, which rounding can give.
    below = 100 * max(0.0, rate.rate - rate.low)
    above = 100 * max(0.0, rate.high - rate.rate)
    axes.errorbar(
        100 * rate.rate,
        place,
        xerr=[[below], [above]],
        color=COLOURS[0],
        fmt="o",
        capsize=3,
    )


def pass_at_k_figure(chances: Rates) -> "Figure":
    """pass@k over k with its interval over tasks. chances: run -> k -> chance."""
    figure, axes = _new_figure()
    colours = _colours_of(chances)
    for run, row in chances.items():
        colour = colours[run]
        attempts = list(map(int, row))
        rates = []
        low = []
        high = []
        for chance in row.values():
            rates.append(100 * chance.rate)
            low.append(100 * chance.low)
            high.append(100 * chance.high)
        axes.plot(attempts, rates, color=colour, marker="o", label=plain(run))
        axes.fill_between(attempts, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.set_xscale("log", base=2)
    axes.set_xlabel("k")
    axes.set_ylabel("pass@k, %")
    axes.legend(frameon=False)
    return figure


def map_figure(
    gains: Mapping[tuple[str, str], float],
    sure: Collection[tuple[str, str]],
    panels: Mapping[str, Mapping[str, str]],
    unit: str,
) -> "Figure":
    """A coloured field for each (row, column): blue is a gain, red a loss.

    sure: the fields with a dot. panels: title -> what is shown of a column -> column.
    """
    rows = list(dict.fromkeys(row for row, _ in gains))
    names = list(map(plain, rows))
    lines = math.ceil(len(panels) / MOST_COLUMNS)
    beside = min(len(panels), MOST_COLUMNS)
    height = 1.5 + 0.25 * len(rows) * lines
    figure, every = _new_figure(lines, beside, height)
    # The same bounds on both sides put white, the middle of the colours, at 0.
    most = max(map(abs, gains.values()), default=0.0) or 1.0
    for axes, (title, columns) in zip(every, panels.items(), strict=False):
        field = np.full((len(rows), len(columns)), np.nan)
        middles = np.arange(0.5, len(columns))
        heights = np.arange(0.5, len(rows))
        for y, row in enumerate(rows):
            dots = []
            for x, column in enumerate(columns.values()):
                place = (row, column)
                field[y, x] = gains.get(place, np.nan)
                if place in sure:
                    dots.append(middles[x])
            level = [heights[y]] * len(dots)
            axes.plot(dots, level, "k.", markersize=3)
        drawn = axes.pcolormesh(field, cmap="RdBu", vmin=-most, vmax=most)
        axes.set_title(plain(title))
        axes.set_xticks(middles, list(columns))
        axes.set_yticks(heights, names)
        axes.set_ylim(len(rows), 0)
        axes.grid(visible=False)
    for axes in every[len(panels) :]:
        axes.set_axis_off()
    figure.colorbar(drawn, ax=every, label=unit)
    return figure


def plain(name: str) -> str:
    """A name as a label that is shown as it is.

    matplotlib typesets what stands between $, and leaves a name that begins with _ out
    of the legend.
    """
    text = printable(name).replace("$", r"\$")
    if text.startswith("_"):
        return f" {text}"
    return text


def check_suffix(path: Path) -> None:
    """Raises UsageError for a file that is not a picture."""
    if path.suffix not in SUFFIXES:
        raise UsageError(
            f"-o {path}: write a picture, for instance {path.with_suffix('.svg')} "
            f"(also {', '.join(SUFFIXES[1:])})"
        )


def save(figure: "Figure", path: Path) -> None:
    """Write the picture. Raises WriteError."""
    import matplotlib

    metadata = DATES.get(path.suffix)
    with replacing(path) as file, matplotlib.rc_context(STYLE):
        figure.savefig(file, format=path.suffix[1:], metadata=metadata, dpi=150)


def _new_figure(
    rows: int = 1, columns: int = 0, height: float = 3.6
) -> tuple["Figure", Any]:
    """A figure with one pair of axes, or with rows of `columns` panels.

    Raises MissingError.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingError(
            "pictures need matplotlib: pip install 'agentcli[plots]'"
        ) from error
    with matplotlib.rc_context(STYLE):
        # Not pyplot, which keeps every figure and may look for a display.
        figure = Figure(figsize=(6.4, height))
        if columns == 0:
            return figure, figure.subplots()
        panels = figure.subplots(rows, columns, sharey=True, squeeze=False)
        return figure, list(panels.flat)


def _colours_of(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name; after the last colour they begin anew."""
    return dict(zip(dict.fromkeys(names), cycle(COLOURS), strict=False))
