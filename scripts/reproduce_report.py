"""The tables of reproduce_small.sh as Markdown on stdout, from results.json alone.

They say what each method brought and what it cost.

usage: reproduce_report.py --from RESULTS.json... [--reference grpo]
Several files are merged: other seeds, methods or regimes, from other machines.
"""

import argparse
import itertools
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
    Interval,
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
from agentcli.evaluation.seeds import least_signed_rank_p
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
QUARTERS = """Entropy in nats per trained token. Advantages: the least and the greatest of the whole loop.
Repetitive and inadmissible: shares of the moves of the sampled leaves, in %.
"""


def report(regime: Regime) -> None:
    """Everything of one regime."""
    seeds = ", ".join(map(str, regime.seeds))
    print(f"## Regime {regime.name}\n")
    print(
        f"Seeds {seeds}. Reference: {regime.reference}. A seed means the same start and "
        "the same order of tasks for all methods.\n"
    )
    print(f"Measured: {measured(regime)}.\n")
    missing = []
    for method, seed in itertools.product(regime.methods, regime.seeds):
        if (method, seed) not in regime.runs:
            missing.append(f"{method} {seed}")
    if missing:
        print(f"Not there: {', '.join(missing)}.\n")
    seed_tables(regime)
    success_over_games(regime)
    by_kind(regime)
    cost(regime)
    courses(regime)
    diagnosis(regime)
    settings(regime)


def measured(regime: Regime) -> str:
    """Commits, days and machines of the runs; `-` where a run does not say."""
    runs = regime.runs.values()
    commits = {(run.git_commit or NONE)[:7] for run in runs}
    days = {run.day or NONE for run in runs}
    machines = {run.machine or NONE for run in runs}
    parts = [("commit", commits), ("day", days), ("machine", machines)]
    return "; ".join(f"{name} {', '.join(sorted(names))}" for name, names in parts)


def seed_tables(regime: Regime) -> None:
    """One table for each measure: the value of every seed, and the test over seeds."""
    count = len(regime.seeds)
    print(f"### Over seeds, against {regime.reference}\n")
    print(OVER_SEEDS.format(seeds=count, least=f"{least_signed_rank_p(count):.2g}"))
    for measure in measures():
        values = {method: by_seed(regime, measure, method) for method in regime.methods}
        is_rate = measure.unit == "%"
        # A level that nobody reached is a result, an evaluation that nobody made is not.
        anything = any(set(row) != {None} for row in values.values())
        if is_rate and not anything:
            continue
        print(f"#### {measure.name}{', in %' if is_rate else ''}\n")
        seeds = [f"seed {seed}" for seed in regime.seeds]
        heads = ["", *seeds, "mean", "difference", "seeds", "p", "least p"]
        rows = [seed_row(regime, measure, method, values) for method in regime.methods]
        table(heads, rows)
        print()


def seed_row(
    regime: Regime, measure: Measure, method: str, values: dict[str, list[float | None]]
) -> list[str]:
    """A method's row of one table."""
    row = values[method]
    cells = []
    for seed, value in zip(regime.seeds, row, strict=True):
        if value is not None:
            cells.append(number(value, measure))
        elif measure.unit == "steps" and has_level(regime, method, seed):
            cells.append("not reached")
        else:
            cells.append(NONE)
    # Means and differences over the seeds that reached a level would favour methods
    # that seldom do.

    average = NONE if None in row else number(fmean(known(row)), measure)
    reference = values[regime.reference]
    missed = measure.unit == "steps" and None in (*row, *reference)
    tested = None if method == regime.reference or missed else compare(reference, row)
    return [method, *cells, average, *test_cells(tested, measure)]


def has_level(regime: Regime, method: str, seed: int) -> bool:
    """Whether a run could have reached a level: without the start's score is none."""
    start = regime.scores("start", "L0", seed)
    return (method, seed) in regime.runs and start is not None


def test_cells(tested: Comparison | None, measure: Measure) -> list[str]:
    """Difference, number of seeds, p and the least p of so many."""
    if tested is None:
        return [NONE] * 4
    form = "+.1f" if measure.unit == "%" else "+,.0f"
    difference = f"{tested.mean:{form}}"
    if tested.pairs > 1:
        difference += f" ({tested.low:{form}} to {tested.high:{form}})"
    return [
        difference,
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
        cells = [row]
        for label in LABELS:
            samples = games(regime, row, label)
            cells.append(interval(rate(samples)) if samples else NONE)
            tested = None
            if row != regime.reference:
                tested = over_games(games(regime, regime.reference, label), samples)
            cells.append(NONE if tested is None else gain(tested.gain))
            if label == "L0-greedy":
                cells.append(decimals(tested and tested.mcnemar, ".2g"))
        rows.append(cells)
    greedy = ("L0 greedy", "gain", "McNemar p")
    table(("", "L0 at T = 1", "gain", *greedy, "L2 at T = 1", "gain"), rows)
    print()


def by_kind(regime: Regime) -> None:
    """L0 at T = 1 by task type."""
    if not regime.kinds:
        return
    print("### L0 at T = 1 by task type, in %\n")
    rows = []
    for row in (*STARTS, *regime.methods):
        cells = [row]
        for kind in regime.kinds:
            samples = games(regime, row, "L0", kind)
            cells.append(interval(rate(samples)) if samples else NONE)
        rows.append(cells)
    table(("", *regime.kinds), rows)
    print()


def cost(regime: Regime) -> None:
    """Sums over iterations and seeds."""
    print(
        "### What training cost, all seeds together\n\nUpdated: responses with an "
        "advantage other than 0.\n"
    )
    rows = [cost_row(method, regime.of(method)) for method in regime.methods]
    counts = ("runs", "environment steps", "trees", "leaves", "generated tokens")
    shares = (
        "prompt tokens shared, %",
        "distinct among siblings, %",
        "responses updated, %",
    )
    table(("", *counts, *shares, "updates", "seconds in train"), rows)
    print()


def cost_row(method: str, runs: Sequence[Run]) -> list[str]:
    """The sums over a method's runs."""
    ledger = {name: sum(run.ledger[name] for run in runs) for name in runs[0].ledger}
    trees = sum(run.trees for run in runs)
    updates = sum(run.updates for run in runs)
    updated = sum(run.updated for run in runs) / max(1, sum(run.given for run in runs))
    shared = ledger["shared_prompt_tokens"] / max(1, ledger["prompt_tokens"])
    distinct = None
    if ledger["siblings"]:
        distinct = ledger["distinct_siblings"] / ledger["siblings"]
    return [
        method,
        str(len(runs)),
        f"{ledger['steps']:,}",
        f"{trees:,}",
        f"{ledger['leaves']:,}",
        f"{ledger['generated_tokens']:,}",
        share(shared),
        share(distinct),
        share(updated),
        f"{updates:,}",
        seconds(runs),
    ]


def courses(regime: Regime) -> None:
    """Success of the sampled leaves, means of equal parts of the loop over all seeds."""
    print(
        f"### Success of the sampled leaves over the loop, in %: means of {PARTS} "
        "equal parts, all seeds\n"
    )
    rows = []
    for method in regime.methods:
        parts = [quarters(run.iterations.success, PARTS) for run in regime.of(method)]
        means = map(mean, zip(*parts, strict=True))
        rows.append([method, *map(share, means)])
    table(("", *(f"part {part}" for part in range(1, len(rows[0])))), rows)
    print()


def diagnosis(regime: Regime) -> None:
    """Why a run rises or stands still: means over seeds, then every run."""
    print("### First and last quarter of the loop: entropy, advantages, moves\n")
    print(QUARTERS)
    pairs = ("entropy", "success, %", "repetitive, %", "inadmissible, %")
    ends = [f"{name}: first, last" for name in pairs]
    heads = ["", "seed", *ends, "least advantage", "greatest"]
    rows = []
    for method in regime.methods:
        rows.append([method, "all", *diagnosis_cells(regime.of(method))])
    for method in regime.methods:
        for run in regime.of(method):
            rows.append([method, str(run.seed), *diagnosis_cells([run])])
    table(heads, rows)
    print()


def diagnosis_cells(runs: Sequence[Run]) -> list[str]:
    """The figures of one or several runs."""
    cells = []
    for name in ("entropy", "success", "repetitive", "inadmissible"):
        parts = [quarters(getattr(run.iterations, name)) for run in runs]
        ends = [mean(part[0] for part in parts), mean(part[-1] for part in parts)]
        if name == "entropy":
            cells.append(", ".join(decimals(end, ".3f") for end in ends))
        else:
            cells.append(", ".join(map(share, ends)))
    least = known(value for run in runs for value in run.iterations.advantage_min)
    greatest = known(value for run in runs for value in run.iterations.advantage_max)
    cells.append(decimals(min(least, default=None), ".1f"))
    cells.append(decimals(max(greatest, default=None), ".1f"))
    return cells


def settings(regime: Regime) -> None:
    """What is not the same in all runs, and the commits that made them."""
    print("### Settings that are not the same in all runs\n")
    rows = []
    for method in regime.methods:
        runs = regime.of(method)
        variants = dict.fromkeys(written(run.settings) for run in runs)
        commits = dict.fromkeys((run.git_commit or "unknown")[:7] for run in runs)
        rows.append([method, "; or ".join(variants) or NONE, ", ".join(commits)])
    table(("", "settings", "commit"), rows)
    print()


def written(values: dict[str, object]) -> str:
    """Settings as --set takes them."""
    words = []
    for path, value in sorted(values.items()):
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        words.append(f"`{path}={text}`")
    return " ".join(words)


def seconds(runs: Sequence[Run]) -> str:
    """The seconds in training of all runs; unknown where one does not say."""
    durations = known(run.train_seconds for run in runs)
    return f"{sum(durations):.0f}" if len(durations) == len(runs) else NONE


def known(values: Iterable[float | None]) -> list[float]:
    """The values that are not None."""
    return [value for value in values if value is not None]


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of the values that are known."""
    numbers = known(values)
    return fmean(numbers) if numbers else None


def number(value: float, measure: Measure) -> str:
    """A value in the measure's unit."""
    return f"{value:.1f}" if measure.unit == "%" else f"{value:,.0f}"


def share(value: float | None) -> str:
    """A share in percent."""
    return NONE if value is None else f"{100 * value:.1f}"


def decimals(value: float | None, form: str) -> str:
    """A number in this form, if there is one."""
    return NONE if value is None else f"{value:{form}}"


def interval(rate: Interval) -> str:
    """A rate and its interval."""
    return f"{rate.value:.1f} ({rate.low:.1f}-{rate.high:.1f})"


def gain(difference: Interval) -> str:
    """A difference and its interval, in points."""
    return f"{difference.value:+.1f} ({difference.low:+.1f} to {difference.high:+.1f})"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints a table in Markdown."""
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
