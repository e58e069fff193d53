"""A picture for each table of reproduce_report.py, as SVG, from results.json alone. The
same file gives the same bytes.

usage: plot_results.py --from RESULTS.json... -o FOLDER [--reference grpo] [--png]
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
from reproduce_results import load

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
Look = dict[str, Any]


def looks(regime: Regime) -> dict[str, Look]:
    """Colour and line of each method."""
    count = len(COLOURS)
    return {
        method: {
            "color": COLOURS[place % count],
            "linestyle": STYLES[place // count % len(STYLES)],
        }
        for place, method in enumerate(regime.methods)
    }


def curves(plt: Any, regime: Regime) -> Any:
    """Success of trajectories from scratch over environment steps."""
    figure, axes = plt.subplots(figsize=(WIDTH, 4.6))
    for method, look in looks(regime).items():
        line(axes, regime, method, "success", look, 100)
    starts = [
        scores.rate
        for seed in regime.seeds
        if (scores := regime.scores("start", "L0", seed))
    ]
    if starts:
        axes.axhline(100 * float(np.mean(starts)), color="grey", linewidth=0.8)
        axes.annotate(
            "start, on L0",
            (1, 100 * float(np.mean(starts))),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="bottom",
        )
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
    filled = np.array(
        [[np.nan if value is None else value for value in own] for own in values],
        dtype=float,
    )
    parts = np.lib.stride_tricks.sliding_window_view(filled, window, axis=1)
    known = ~np.isnan(parts)
    # The mean of what is known; an iteration in which nothing was trained has no
    # entropy.
    smooth = (
        factor
        * np.where(known, parts, 0).sum(axis=2)
        / np.maximum(1, known.sum(axis=2))
    )
    steps = np.mean([np.cumsum(run.iterations.steps[:length]) for run in runs], axis=0)[
        window - 1 :
    ]
    centre = smooth.mean(axis=0)
    axes.plot(
        steps,
        centre,
        label=method,
        linewidth=1.6,
        marker="o" if len(steps) == 1 else None,
        **look,
    )
    if len(runs) > 1:
        error = smooth.std(axis=0, ddof=1) / np.sqrt(len(runs))
        axes.fill_between(
            steps,
            centre - error,
            centre + error,
            color=look["color"],
            alpha=0.13,
            linewidth=0,
        )


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
    row[0].set_yticks(range(len(others)), others)
    row[0].set_ylim(len(others) - 0.5, -0.5)
    figure.suptitle(
        f"{regime.name}: differences to {regime.reference}; dots: seeds, bars: 95 % "
        "of a paired t test",
        fontsize=10,
    )
    return figure


def forest(axes: Any, regime: Regime, measure: Measure, methods: Sequence[str]) -> None:
    """One row for each method; a single seed has a dot and no interval."""
    axes.axvline(0, color="grey", linewidth=0.8)
    reference = by_seed(regime, measure, regime.reference)
    look = looks(regime)
    for place, method in enumerate(methods):
        own = by_seed(regime, measure, method)
        tested = compare(reference, own)
        if tested is None:
            continue
        seeds = [
            b - a
            for a, b in zip(reference, own, strict=True)
            if a is not None and b is not None
        ]
        axes.plot(
            seeds,
            [place + 0.22] * len(seeds),
            "o",
            markersize=3,
            alpha=0.6,
            color=look[method]["color"],
        )
        axes.plot(
            [tested.mean], [place], "D", markersize=5, color=look[method]["color"]
        )
        if tested.pairs > 1:
            axes.plot(
                [tested.low, tested.high],
                [place, place],
                color=look[method]["color"],
                linewidth=2,
            )


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
    for axes, measure in zip(row, chosen, strict=True):
        for place, method in enumerate(regime.methods):
            runs = len(regime.of(method))
            steps = [
                value for value in by_seed(regime, measure, method) if value is not None
            ]
            axes.plot(
                steps,
                [place] * len(steps),
                "o",
                alpha=0.75,
                color=look[method]["color"],
            )
            axes.annotate(
                f"{len(steps)} of {runs}",
                (1, place),
                xycoords=("axes fraction", "data"),
                ha="right",
                va="bottom",
                fontsize=7,
            )
        axes.set_title(measure.name.removeprefix("Environment steps to "))
        axes.set_xlabel("environment steps")
        axes.set_xlim(
            0, 1.3 * max(sum(run.iterations.steps) for run in regime.runs.values())
        )
        axes.tick_params(axis="x", labelrotation=30)
    row[0].set_yticks(range(len(regime.methods)), regime.methods)
    row[0].set_ylim(len(regime.methods) - 0.5, -0.7)
    figure.suptitle(
        f"{regime.name}: steps to a level; dots: the seeds that reached it, of how "
        "many",
        fontsize=10,
    )
    return figure


def success(plt: Any, regime: Regime) -> Any:
    """Held-out success of all seeds together."""
    labels = [
        label
        for label in ("L0", "L0-greedy", "L2")
        if any(label in run.evaluations for run in regime.runs.values())
    ]
    names = {"L0": "L0 at T = 1", "L0-greedy": "L0, greedy", "L2": "L2 at T = 1"}
    groups = [(names[label], label, None) for label in labels]
    return rates(plt, regime, groups, "held-out success, %; bars: 95 % over games")


def kinds(plt: Any, regime: Regime) -> Any:
    """L0 at T = 1 by task type."""
    panels = [
        run.evaluations["L0"].panel
        for run in regime.runs.values()
        if "L0" in run.evaluations
    ]
    found = sorted(
        {kind for panel in panels for kind in regime.results.panels[panel].kinds}
    )
    groups = [
        (kind.removesuffix("_then_place_in_recep").replace("_", " "), "L0", kind)
        for kind in found
    ]
    return rates(
        plt, regime, groups, "L0 at T = 1 by task type, %; bars: 95 % over games"
    )


def rates(
    plt: Any, regime: Regime, groups: Sequence[tuple[str, str, str | None]], title: str
) -> Any:
    """Axes for each (title, label, task type), at most three side by side; a row for
    each method and form of the start.
    """
    rows = [*STARTS, *regime.methods]
    look = {row: {"color": "grey"} for row in STARTS} | looks(regime)
    wide, high = min(3, max(1, len(groups))), -(-max(1, len(groups)) // 3)
    size = (WIDTH, 0.7 + high * (0.7 + 0.22 * len(rows)))
    figure, grid = plt.subplots(
        high, wide, figsize=size, sharey=True, sharex=True, squeeze=False
    )
    for axes in grid.flat[len(groups) :]:
        axes.set_visible(False)
    for axes, (name, label, kind) in zip(grid.flat, groups, strict=False):
        for place, row in enumerate(rows):
            samples = games(regime, row, label, kind)
            if samples:
                centre, low, high_end = rate(samples)
                axes.plot(
                    [low, high_end],
                    [place, place],
                    color=look[row]["color"],
                    linewidth=2,
                )
                axes.plot(
                    [centre], [place], "D", markersize=4.5, color=look[row]["color"]
                )
        axes.set_title(name, fontsize=7.5)
    grid[0][0].set_yticks(range(len(rows)), rows)
    grid[0][0].set_ylim(len(rows) - 0.5, -0.5)
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
        means = {
            method: float(np.mean([amount(run) for run in regime.of(method)]))
            for method in regime.methods
        }
        whole = means[regime.reference] or 1.0
        for place, method in enumerate(regime.methods):
            axes.barh(
                place, means[method] / whole, color=look[method]["color"], height=0.6
            )
        axes.axvline(1, color="grey", linewidth=0.8)
        axes.set_title(name)
    row[0].set_yticks(range(len(regime.methods)), regime.methods)
    row[0].set_ylim(len(regime.methods) - 0.5, -0.5)
    figure.suptitle(
        f"{regime.name}: cost of a run at equal environment steps, "
        f"{regime.reference}'s = 1",
        fontsize=10,
    )
    return figure


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
) -> list[Path]:
    """Those pictures of all regimes; returns their paths. Raises MissingError without
    matplotlib.
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
        for regime in regimes(load(files), reference):
            for name in names:
                if name == "differences" and len(regime.methods) == 1:
                    continue
                figure = PICTURES[name](plt, regime)
                written.append(folder / f"{regime.name}-{name}.svg")
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
    chosen = parser.parse_args()
    try:
        for path in draw(chosen.files, chosen.out, chosen.reference, chosen.png):
            print(path)
    except AgentCliError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
