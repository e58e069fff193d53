"""A picture for each table of reproduce_report.py, as SVG, from results.json alone.

The same file gives the same bytes.

usage: plot_results.py --from RESULTS.json... -o FOLDER [--reference grpo] [--png]
       [--methods NAME...] [--seeds N...] [--pictures NAME...] [--as NAME]
Writes FOLDER/REGIME-{curves,differences,levels,success,kinds,cost,diagnosis}.svg.
Needs: pip install 'agentcli[plots]'
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from reproduce_measures import (
    STARTS,
    WINDOW,
    Measure,
    Regime,
    by_seed,
    compare,
    games,
    measures,
    rate,
    regimes,
)
from reproduce_results import Selection, load

from agentcli.errors import AgentCliError, MissingError

WIDTH = 7.0
"""Inches at 100 dots each: readable at 700 pixels."""
COLOURS = ("#000000", "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7")
"""Okabe and Ito's, told apart by colour-blind readers; their yellow is too pale on
white. The reference is black.
"""
STYLES = ("-", "--", ":")
"""One for each time round the colours."""
STYLE = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "svg.hashsalt": "agentcli",
    "svg.fonttype": "path",
    "figure.dpi": 100,
}
THIN = {"color": "grey", "linewidth": 0.8}
Look = dict[str, Any]


def looks(regime: Regime) -> dict[str, Look]:
    """Colour and line of each method."""
    chosen = {}
    for place, method in enumerate(regime.methods):
        rounds, colour = divmod(place, len(COLOURS))
        chosen[method] = {
            "color": COLOURS[colour],
            "linestyle": STYLES[rounds % len(STYLES)],
        }
    return chosen


def curves(plt: Any, regime: Regime) -> Any:
    """Success of trajectories from scratch over environment steps."""
    figure, axes = plt.subplots(figsize=(WIDTH, 4.6))
    for method, look in looks(regime).items():
        line(axes, regime, method, "success", look, 100)
    scores = [regime.scores("start", "L0", seed) for seed in regime.seeds]
    starts = [100 * start.rate for start in scores if start is not None]
    if starts:
        height = float(np.mean(starts))
        axes.axhline(height, **THIN)
        note_at_the_right(axes, "start, on L0", height)
    axes.set(
        xlabel="environment steps", ylabel="success of trajectories from scratch, %"
    )
    axes.set_title(
        f"{regime.name}: success while training, mean of {WINDOW} iterations; band: "
        "one standard error over seeds"
    )
    axes.legend(ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.14))
    return figure


def line(
    axes: Any, regime: Regime, method: str, field: str, look: Look, factor: float = 1
) -> None:
    """Trailing means of WINDOW iterations, with a band over seeds."""
    runs = regime.of(method)
    length = min(len(run.iterations.steps) for run in runs)
    window = min(WINDOW, length)
    values = [getattr(run.iterations, field)[:length] for run in runs]
    # (runs, windows, iterations of a window); None becomes NaN.
    parts = np.lib.stride_tricks.sliding_window_view(
        np.array(values, dtype=float), window, axis=1
    )
    known = ~np.isnan(parts)
    # The mean of what is known; an iteration in which nothing was trained has no
    # entropy.
    sums = np.where(known, parts, 0).sum(axis=2)
    means = factor * sums / np.maximum(1, known.sum(axis=2))
    totals = [np.cumsum(run.iterations.steps[:length]) for run in runs]
    steps = np.mean(totals, axis=0)[window - 1 :]
    centre = means.mean(axis=0)
    marker = "o" if len(steps) == 1 else None
    axes.plot(steps, centre, label=method, linewidth=1.6, marker=marker, **look)
    if len(runs) > 1:
        error = means.std(axis=0, ddof=1) / np.sqrt(len(runs))
        band = {"color": look["color"], "alpha": 0.13, "linewidth": 0}
        axes.fill_between(steps, centre - error, centre + error, **band)


def differences(plt: Any, regime: Regime) -> Any:
    """Paired differences to the reference over seeds."""
    names = ("sampled at T = 1", "greedy", "area under the curve")
    others = regime.methods[1:]
    figure, row = plt.subplots(
        1, 3, figsize=(WIDTH, 1.5 + 0.33 * len(others)), sharey=True
    )
    for axes, measure, name in zip(row, measures(), names, strict=False):
        forest(axes, regime, measure, others)
        axes.set_title(name)
        axes.set_xlabel("points")
    name_rows(row[0], others)
    figure.suptitle(
        f"{regime.name}: differences to {regime.reference}; dots: seeds, bars: 95 % "
        "of a paired t test",
        fontsize=10,
    )
    return figure


def forest(axes: Any, regime: Regime, measure: Measure, methods: Sequence[str]) -> None:
    """One row for each method; a single seed has a dot and no interval."""
    axes.axvline(0, **THIN)
    references = by_seed(regime, measure, regime.reference)
    look = looks(regime)
    for place, method in enumerate(methods):
        values = by_seed(regime, measure, method)
        tested = compare(references, values)
        if tested is None:
            continue
        colour = look[method]["color"]
        seeds = []
        for reference, value in zip(references, values, strict=True):
            if reference is not None and value is not None:
                seeds.append(value - reference)
        heights = [place + 0.22] * len(seeds)
        axes.plot(seeds, heights, "o", markersize=3, alpha=0.6, color=colour)
        axes.plot([tested.mean], [place], "D", markersize=5, color=colour)
        if tested.pairs > 1:
            ends = [tested.low, tested.high]
            axes.plot(ends, [place, place], color=colour, linewidth=2)


def levels(plt: Any, regime: Regime) -> Any:
    """Steps to fixed levels: one dot for each seed that got there."""
    chosen = [measure for measure in measures() if measure.unit == "steps"]
    figure, row = plt.subplots(
        1,
        len(chosen),
        figsize=(WIDTH, 1.5 + 0.33 * len(regime.methods)),
        sharey=True,
        sharex=True,
    )
    look = looks(regime)
    longest = max(sum(run.iterations.steps) for run in regime.runs.values())
    for axes, measure in zip(row, chosen, strict=True):
        for place, method in enumerate(regime.methods):
            values = by_seed(regime, measure, method)
            steps = [value for value in values if value is not None]
            colour = look[method]["color"]
            axes.plot(steps, [place] * len(steps), "o", alpha=0.75, color=colour)
            reached = f"{len(steps)} of {len(regime.of(method))}"
            note_at_the_right(axes, reached, place, fontsize=7)
        axes.set_title(measure.name.removeprefix("Environment steps to "))
        axes.set_xlabel("environment steps")
        axes.set_xlim(0, 1.3 * longest)
        axes.tick_params(axis="x", labelrotation=30)
    name_rows(row[0], regime.methods, top=-0.7)
    figure.suptitle(
        f"{regime.name}: steps to a level; dots: the seeds that reached it, of how "
        "many",
        fontsize=10,
    )
    return figure


def success(plt: Any, regime: Regime) -> Any:
    """Held-out success of all seeds together."""
    names = {"L0": "L0 at T = 1", "L0-greedy": "L0, greedy", "L2": "L2 at T = 1"}
    groups = []
    for label, name in names.items():
        if any(label in run.evaluations for run in regime.runs.values()):
            groups.append((name, label, None))
    return rates(plt, regime, groups, "held-out success, %; bars: 95 % over games")


def kinds(plt: Any, regime: Regime) -> Any:
    """L0 at T = 1 by task type."""
    groups = []
    for kind in regime.kinds:
        name = kind.removesuffix("_then_place_in_recep").replace("_", " ")
        groups.append((name, "L0", kind))
    title = "L0 at T = 1 by task type, %; bars: 95 % over games"
    return rates(plt, regime, groups, title)


def rates(
    plt: Any, regime: Regime, groups: Sequence[tuple[str, str, str | None]], title: str
) -> Any:
    """Axes for each (title, label, task type), at most three side by side.

    They have a row for each method and each form of the start.
    """
    rows = [*STARTS, *regime.methods]
    look = {row: {"color": "grey"} for row in STARTS} | looks(regime)
    wide = min(3, max(1, len(groups)))
    high = -(-max(1, len(groups)) // 3)
    size = (WIDTH, 0.7 + high * (0.7 + 0.22 * len(rows)))
    figure, grid = plt.subplots(
        high, wide, figsize=size, sharey=True, sharex=True, squeeze=False
    )
    for axes in grid.flat[len(groups) :]:
        axes.set_visible(False)
    for axes, (name, label, kind) in zip(grid.flat, groups, strict=False):
        for place, row in enumerate(rows):
            samples = games(regime, row, label, kind)
            if not samples:
                continue
            colour = look[row]["color"]
            centre, *ends = rate(samples)
            axes.plot(ends, [place, place], color=colour, linewidth=2)
            axes.plot([centre], [place], "D", markersize=4.5, color=colour)
        axes.set_title(name, fontsize=7.5)
    name_rows(grid[0][0], rows)
    figure.suptitle(f"{regime.name}: {title}", fontsize=10)
    return figure


def cost(plt: Any, regime: Regime) -> Any:
    """What a run cost, relative to the reference's runs."""
    amounts: dict[str, Callable[[Any], float]] = {
        "leaves": lambda run: run.ledger["leaves"],
        "generated tokens": lambda run: run.ledger["generated_tokens"],
        "responses updated": lambda run: run.updated,
        "updates": lambda run: run.updates,
    }
    figure, row = plt.subplots(
        1, len(amounts), figsize=(WIDTH, 1.3 + 0.28 * len(regime.methods)), sharey=True
    )
    look = looks(regime)
    for axes, (name, amount) in zip(row, amounts.items(), strict=True):
        whole = mean_amount(regime, regime.reference, amount) or 1.0
        for place, method in enumerate(regime.methods):
            share = mean_amount(regime, method, amount) / whole
            axes.barh(place, share, color=look[method]["color"], height=0.6)
        axes.axvline(1, **THIN)
        axes.set_title(name)
    name_rows(row[0], regime.methods)
    figure.suptitle(
        f"{regime.name}: cost of a run at equal environment steps, "
        f"{regime.reference}'s = 1",
        fontsize=10,
    )
    return figure


def mean_amount(regime: Regime, method: str, amount: Callable[[Any], float]) -> float:
    """The mean over a method's runs."""
    return float(np.mean([amount(run) for run in regime.of(method)]))


def diagnosis(plt: Any, regime: Regime) -> Any:
    """Entropy and idle moves over the loop."""
    fields = {
        "entropy": "entropy, nats a token",
        "repetitive": "repetitive moves, %",
        "inadmissible": "inadmissible moves, %",
    }
    figure, row = plt.subplots(1, len(fields), figsize=(WIDTH, 3.6))
    for axes, (field, name) in zip(row, fields.items(), strict=True):
        for method, look in looks(regime).items():
            line(axes, regime, method, field, look, 1 if field == "entropy" else 100)
        axes.set_title(name)
        axes.set_xlabel("environment steps")
        axes.set_ylim(bottom=0)
        axes.tick_params(axis="x", labelrotation=30)
    figure.legend(
        *row[0].get_legend_handles_labels(), ncols=4, loc="outside lower center"
    )
    figure.suptitle(
        f"{regime.name}: why runs rise or stand still, mean of {WINDOW} iterations",
        fontsize=10,
    )
    return figure


def name_rows(axes: Any, names: Sequence[str], top: float = -0.5) -> None:
    """Names the rows at the left, the first at the top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, top)


def note_at_the_right(axes: Any, text: str, height: float, **font: float) -> None:
    """Writes a text above `height`, at the right end of the axes."""
    place = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "bottom"}
    axes.annotate(text, (1, height), **place, **font)


PICTURES = {
    "curves": curves,
    "differences": differences,
    "levels": levels,
    "success": success,
    "kinds": kinds,
    "cost": cost,
    "diagnosis": diagnosis,
}


def draw(
    files: Sequence[Path],
    folder: Path,
    reference: str = "grpo",
    png: bool = False,
    names: Sequence[str] = tuple(PICTURES),
    part: Selection | None = None,
    title: str | None = None,
) -> list[Path]:
    """Draws the pictures `names` of all regimes and returns their paths.

    File names begin with `title`, else with the regime's name. Raises MissingError
    without matplotlib.
    """
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise MissingError(
            "pictures need matplotlib: pip install 'agentcli[plots]'"
        ) from error
    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    written = []
    folder.mkdir(parents=True, exist_ok=True)
    with plt.rc_context(STYLE | {"figure.constrained_layout.use": True}):
        results = (part or Selection()).of(load(files))
        for regime in regimes(results, reference):
            for name in names:
                if name == "differences" and len(regime.methods) == 1:
                    continue
                figure = PICTURES[name](plt, regime)
                written.append(folder / f"{title or regime.name}-{name}.svg")
                figure.savefig(written[-1], metadata={"Date": None})
                if png:
                    figure.savefig(written[-1].with_suffix(".png"))
                plt.close(figure)
    return written


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--from", dest="files", nargs="+", type=Path, required=True)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--reference", default="grpo")
    parser.add_argument(
        "--png", action="store_true", help="beside each SVG, the same as PNG"
    )
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("--seeds", nargs="+", type=int)
    parser.add_argument(
        "--pictures", nargs="+", choices=PICTURES, default=list(PICTURES)
    )
    parser.add_argument("--as", dest="title", help="what file names begin with")
    chosen = parser.parse_args()
    try:
        for path in draw(
            chosen.files,
            chosen.out,
            chosen.reference,
            chosen.png,
            chosen.pictures,
            Selection(chosen.methods, chosen.seeds),
            chosen.title,
        ):
            print(path)
    except AgentCliError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
