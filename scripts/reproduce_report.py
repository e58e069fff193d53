"""The tables of reproduce_small.sh as Markdown on stdout, from results.json alone: what
each method brought and what it cost.

usage: reproduce_report.py --from RESULTS.json... [--reference grpo] Several files are
merged: other seeds, methods or regimes, from other sessions or machines.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

import msgspec
from reproduce_measures import (
    LEVELS,
    STARTS,
    WINDOW,
    Comparison,
    Measure,
    Regime,
    by_seed,
    compare,
    games,
    measures,
    over_games,
    quarters,
    rate,
    regimes,
)
from reproduce_results import Run, load

from agentcli.errors import AgentCliError
from agentcli.evaluation.statistics import least_signed_rank_p
from agentcli.evaluation.training import PARTS

LABELS = ("L0", "L0-greedy", "L2")
NONE = "-"
OVER_SEEDS = f"""Difference: mean of the paired differences, with the 95 % interval of a paired t test.
p: exact signed-rank test; with {{seeds}} seeds it cannot fall below {{least}}.
The curve is that of the training policy on training games: it says how fast loops rise, not what they end with. It counts
trajectories from scratch, the draws of the policy: of a tree that forks the first M or N0, without their forks.
A level is reached when the mean of {WINDOW} consecutive iterations is there. Levels are fixed for each seed: the start's success
on L0 at T = 1 plus {", ".join(map(str, LEVELS))} points. Nothing is put in for what was not reached.
"""
OVER_GAMES = """Gains are paired by game and seed. They say whether these policies differ on more games, not what another
training of the same method would give.
"""
QUARTERS = """Entropy in nats per token. Advantages: the least and the greatest of the whole loop.
Repetitive and inadmissible: shares of the moves of the sampled leaves, in %.
"""


def report(regime: Regime) -> None:
    """Everything of one regime."""
    seeds = ", ".join(map(str, regime.seeds))
    print(
        f"## Regime {regime.name}\n\nSeeds {seeds}. Reference: {regime.reference}. ",
        end="",
    )
    print("A seed means the same start and the same order of tasks for all methods.\n")
    missing = [
        f"{method} {seed}"
        for method in regime.methods
        for seed in regime.seeds
        if (method, seed) not in regime.runs
    ]
    if missing:
        print(f"Not there: {', '.join(missing)}.\n")
    seed_tables(regime)
    success_over_games(regime)
    by_kind(regime)
    cost(regime)
    courses(regime)
    diagnosis(regime)
    settings(regime)


def seed_tables(regime: Regime) -> None:
    """One table for each measure: the value of every seed, and the test over seeds."""
    count = len(regime.seeds)
    print(f"### Over seeds, against {regime.reference}\n")
    print(OVER_SEEDS.format(seeds=count, least=f"{least_signed_rank_p(count):.2g}"))
    for measure in measures():
        values = {method: by_seed(regime, measure, method) for method in regime.methods}
        if (
            all(value is None for own in values.values() for value in own)
            and measure.unit == "%"
        ):
            continue
        print(f"#### {measure.name}{', in %' if measure.unit == '%' else ''}\n")
        heads = (
            "",
            *(f"seed {seed}" for seed in regime.seeds),
            "mean",
            "difference",
            "seeds",
            "p",
            "least p",
        )
        table(
            heads,
            [seed_row(regime, measure, method, values) for method in regime.methods],
        )
        print()


def seed_row(
    regime: Regime, measure: Measure, method: str, values: dict[str, list[float | None]]
) -> list[str]:
    """A method's row of one table."""
    absent = [
        # Without the start's score there is no level.
        "not reached"
        if measure.unit == "steps"
        and (method, seed) in regime.runs
        and regime.scores("start", "L0", seed)
        else NONE
        for seed in regime.seeds
    ]
    own = values[method]
    cells = [
        nothing if value is None else number(value, measure)
        for value, nothing in zip(own, absent, strict=True)
    ]
    whole = [value for value in own if value is not None]
    # Means and differences over the seeds that reached a level would favour methods
    # that seldom do.
    mean = number(fmean(whole), measure) if len(whole) == len(own) else NONE
    reference = values[regime.reference]
    missed = measure.unit == "steps" and None in (*own, *reference)
    tested = None if method == regime.reference or missed else compare(reference, own)
    return [method, *cells, mean, *test_cells(tested, measure)]


def test_cells(tested: Comparison | None, measure: Measure) -> list[str]:
    """Difference, number of seeds, p and the least p of so many."""
    if tested is None:
        return [NONE] * 4
    form = "+.1f" if measure.unit == "%" else "+,.0f"
    interval = (
        f" ({tested.low:{form}} to {tested.high:{form}})" if tested.pairs > 1 else ""
    )
    return [
        f"{tested.mean:{form}}{interval}",
        str(tested.pairs),
        f"{tested.p:.2g}",
        f"{tested.least_p:.2g}",
    ]


def success_over_games(regime: Regime) -> None:
    """The rates of all seeds together, tested by game."""
    print("### Over games, all seeds together, in %\n")
    print(OVER_GAMES)
    rows = []
    for row in (*STARTS, *regime.methods):
        cells = []
        for label in LABELS:
            own, reference = (
                games(regime, row, label),
                games(regime, regime.reference, label),
            )
            cells.append(interval(rate(own)) if own else NONE)
            tested = None if row == regime.reference else over_games(reference, own)
            cells.append(NONE if tested is None else gain(tested[:3]))
            if label == "L0-greedy":
                cells.append(
                    NONE if tested is None or tested[3] is None else f"{tested[3]:.2g}"
                )
        rows.append((row, *cells))
    table(
        (
            "",
            "L0 at T = 1",
            "gain",
            "L0 greedy",
            "gain",
            "McNemar p",
            "L2 at T = 1",
            "gain",
        ),
        rows,
    )
    print()


def by_kind(regime: Regime) -> None:
    """L0 at T = 1 by task type."""
    panels = [
        run.evaluations["L0"].panel
        for run in regime.runs.values()
        if "L0" in run.evaluations
    ]
    kinds = sorted(
        {kind for panel in panels for kind in regime.results.panels[panel].kinds}
    )
    if not kinds:
        return
    print("### L0 at T = 1 by task type, in %\n")
    rows = []
    for row in (*STARTS, *regime.methods):
        samples = [games(regime, row, "L0", kind) for kind in kinds]
        rows.append((row, *(interval(rate(own)) if own else NONE for own in samples)))
    table(("", *kinds), rows)
    print()


def cost(regime: Regime) -> None:
    """Sums over iterations and seeds."""
    print(
        "### What training cost, all seeds together\n\nUpdated: responses with an "
        "advantage other than 0.\n"
    )
    rows = []
    for method in regime.methods:
        runs = regime.of(method)
        ledger = {
            name: sum(run.ledger[name] for run in runs) for name in runs[0].ledger
        }
        share = sum(run.updated for run in runs) / max(
            1, sum(run.given for run in runs)
        )
        siblings = ledger["siblings"]
        rows.append(
            (
                method,
                str(len(runs)),
                f"{ledger['steps']:,}",
                f"{sum(run.trees for run in runs):,}",
                f"{ledger['leaves']:,}",
                f"{ledger['generated_tokens']:,}",
                f"{100 * ledger['shared_prompt_tokens'] / max(1, ledger['prompt_tokens']):.1f}",
                f"{100 * ledger['distinct_siblings'] / siblings:.1f}"
                if siblings
                else NONE,
                f"{100 * share:.1f}",
                f"{sum(run.updates for run in runs):,}",
                seconds(runs),
            )
        )
    counts = ("runs", "environment steps", "trees", "leaves", "generated tokens")
    shares = (
        "prompt tokens shared, %",
        "distinct among siblings, %",
        "responses updated, %",
    )
    table(("", *counts, *shares, "updates", "seconds in train"), rows)
    print()


def courses(regime: Regime) -> None:
    """Success of the sampled leaves, means of equal parts of the loop over all seeds."""
    print(
        f"### Success of the sampled leaves over the loop, in %: means of {PARTS} "
        "equal parts, all seeds\n"
    )
    rows = []
    for method in regime.methods:
        parts = [quarters(run.iterations.success, PARTS) for run in regime.of(method)]
        rows.append((method, *(share(mean(part)) for part in zip(*parts, strict=True))))
    table(("", *(f"part {part}" for part in range(1, len(rows[0])))), rows)
    print()


def diagnosis(regime: Regime) -> None:
    """Why a run rises or stands still: means over seeds, then every run."""
    print("### First and last quarter of the loop: entropy, advantages, moves\n")
    print(QUARTERS)
    pairs = ("entropy", "success, %", "repetitive, %", "inadmissible, %")
    heads = (
        "",
        "seed",
        *(f"{name}: first, last" for name in pairs),
        "least advantage",
        "greatest",
    )
    rows = [
        (method, "all", *diagnosis_cells(regime.of(method)))
        for method in regime.methods
    ]
    rows += [
        (run.method, str(run.seed), *diagnosis_cells([run]))
        for method in regime.methods
        for run in regime.of(method)
    ]
    table(heads, rows)
    print()


def diagnosis_cells(runs: Sequence[Run]) -> list[str]:
    """Of one or several runs."""
    cells = []
    for name in ("entropy", "success", "repetitive", "inadmissible"):
        ends = [quarters(getattr(run.iterations, name)) for run in runs]
        first, last = mean(own[0] for own in ends), mean(own[-1] for own in ends)
        if name == "entropy":
            cells.append(f"{decimal(first, 3)}, {decimal(last, 3)}")
        else:
            cells.append(f"{share(first)}, {share(last)}")
    least = [
        value
        for run in runs
        for value in run.iterations.advantage_min
        if value is not None
    ]
    greatest = [
        value
        for run in runs
        for value in run.iterations.advantage_max
        if value is not None
    ]
    return [
        *cells,
        decimal(min(least, default=None), 1),
        decimal(max(greatest, default=None), 1),
    ]


def settings(regime: Regime) -> None:
    """What is not the same in all runs, and the commits that made them."""
    print("### Settings that are not the same in all runs\n")
    rows = []
    for method in regime.methods:
        variants = dict.fromkeys(written(run.settings) for run in regime.of(method))
        commits = dict.fromkeys(
            (run.git_commit or "unknown")[:7] for run in regime.of(method)
        )
        rows.append((method, "; or ".join(variants) or NONE, ", ".join(commits)))
    table(("", "settings", "commit"), rows)
    print()


def written(values: dict[str, object]) -> str:
    """As --set takes them."""
    return " ".join(
        f"`{path}={plain(value)}`" for path, value in sorted(values.items())
    )


def plain(value: object) -> str:
    """A name as it is, else JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def seconds(runs: Sequence[Run]) -> str:
    """In training, of all runs; unknown where one does not tell."""
    known = [run.train_seconds for run in runs if run.train_seconds is not None]
    return f"{sum(known):.0f}" if len(known) == len(runs) else NONE


def mean(values: Iterable[float | None]) -> float | None:
    """Of those that are known."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def number(value: float, measure: Measure) -> str:
    """In the measure's unit."""
    return f"{value:.1f}" if measure.unit == "%" else f"{value:,.0f}"


def share(value: float | None) -> str:
    """In percent."""
    return NONE if value is None else f"{100 * value:.1f}"


def decimal(value: float | None, places: int) -> str:
    """With so many decimals."""
    return NONE if value is None else f"{value:.{places}f}"


def interval(cell: tuple[float, float, float]) -> str:
    """A rate and its interval."""
    return f"{cell[0]:.1f} ({cell[1]:.1f}-{cell[2]:.1f})"


def gain(cell: tuple[float, ...]) -> str:
    """A difference and its interval, in points."""
    return f"{cell[0]:+.1f} ({cell[1]:+.1f} to {cell[2]:+.1f})"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """As Markdown."""
    for cells in (heads, ["---"] * len(heads), *rows):
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--from", dest="files", nargs="+", type=Path, required=True)
    parser.add_argument("--reference", default="grpo")
    chosen = parser.parse_args()
    try:
        for one in regimes(load(chosen.files), chosen.reference):
            report(one)
    except AgentCliError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
