"""The tables that reproduce_small.sh ends with, as Markdown on stdout: what each method brought and what it cost, against grpo.

usage: reproduce_report.py OUT SEED... --methods NAME...      the first method is the reference
Reads OUT/SEED/{sft,METHOD}; a game of one seed is another task than that of another seed, so that all tests are paired by both.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from agentcli.errors import AgentCliError, DataError
from agentcli.evaluation.compare import over_benchmarks, side_by_side
from agentcli.evaluation.training import PARTS, course, training_cost
from agentcli.records.files import read_records
from agentcli.records.runs import RunDirectory
from agentcli.records.types import Episode
from agentcli.stages.compare_training import loop_folders, read_iteration

STARTS = {"sft": "", "sft, in several copies": "dpepo-"}
"""The policy before training, in its two forms, by the prefix of its labels."""


class Runs:
    """The runs of all seeds."""

    def __init__(self, out: Path, seeds: Sequence[str], methods: Sequence[str]) -> None:
        self.out, self.seeds, self.methods = out, seeds, methods

    def episodes(self, name: str, label: str, seeds: Iterable[str] | None = None) -> list[Episode]:
        """Of one row of the tables; task ids carry the seed."""
        prefix, folder = STARTS.get(name, ""), "sft" if name in STARTS else name
        return [
            msgspec.structs.replace(row, task=f"{seed}/{row.task}")
            for seed in seeds or self.seeds
            for row in read_records(RunDirectory(self.out / seed / folder).evaluation(prefix + label), Episode)
        ]

    def compared(self, label: str) -> dict[str, dict[str, Any]]:
        """Every row beside the reference."""
        return side_by_side({name: self.episodes(name, label) for name in (*self.methods, *STARTS)})

    def iterations(self, name: str) -> list[list[Path]]:
        """By seed, in order. Raises DataError where there is none."""
        found = [loop_folders(self.out / seed / name) for seed in self.seeds]
        if not all(found):
            raise DataError(f"{self.out}: no iterations of {name}; type the command again, it goes on")
        return found


def main(runs: Runs) -> None:
    """Print everything."""
    panels = {label: runs.compared(label) for label in ("L0", "L0-greedy", "L2")}
    games = panels["L0-greedy"][runs.methods[0]]["tasks"] // len(runs.seeds)
    print(f"Seeds {', '.join(runs.seeds)}; {games} games of L0. Reference: {runs.methods[0]}.\n")
    print("### Success in %, all seeds together\n")
    heads = ("L0 at T = 1", "gain", "L0 greedy", "gain", "McNemar p", "L2 at T = 1", "gain")
    table(("", *heads), [(name, *success(name, panels)) for name in (*STARTS, *runs.methods)])
    print("\n### L0 at T = 1 by seed, in %\n")
    by_seed(runs)
    print("\n### What training cost, all seeds together\n")
    cost(runs)
    print("\n### L0 at T = 1 by task type, in %\n")
    kinds = sorted(panels["L0"][runs.methods[0]]["kinds"])
    table(("", *kinds), [(name, *(of_kind(panels["L0"][name], kind) for kind in kinds)) for name in panels["L0"]])
    print(f"\n### Success of the sampled leaves over the loop, in %: means of {PARTS} equal parts\n")
    curves(runs)


def success(name: str, panels: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    """One row's cells of the first table."""
    cells = []
    for label, rows in panels.items():
        row = rows[name]
        against = row.get("against")
        cells += [rate(row["success"]), gain(against["success"]) if against else ""]
        if label == "L0-greedy":
            cells.append(f"{against['mcnemar']:.2g}" if against else "")
    return cells


def by_seed(runs: Runs) -> None:
    """Rates per seed, their mean, and the signed-rank test of the seeds against the reference."""
    rates = {}
    for name in (*runs.methods, *STARTS):
        own = [runs.episodes(name, "L0", [seed]) for seed in runs.seeds]
        rates[name] = [sum(row.outcome == "success" for row in rows) / len(rows) for rows in own]
    tests = over_benchmarks(rates)
    table(
        ("", *(f"seed {seed}" for seed in runs.seeds), "mean", "Wilcoxon p over seeds"),
        [
            (
                name,
                *map(percent, own),
                percent(sum(own) / len(own)),
                f"{tests[name]['p']:.2g}" if name in tests else "",
            )
            for name, own in rates.items()
        ],
    )


def cost(runs: Runs) -> None:
    """Sums over iterations and seeds. Updated: responses with an advantage other than 0, those that have a gradient."""
    rows, reference = [], None
    for name in runs.methods:
        row = training_cost([read_iteration(folder) for own in runs.iterations(name) for folder in own])
        share = row["responses"]["share"]
        reference = reference or share
        counts = (row["ledger"]["steps"], row["trees"], row["leaves"], row["ledger"]["generated_tokens"])
        shares = [percent(row["shared"]), percent(share), f"{share / reference:.2f}"]
        rows.append(
            (name, *map("{:,}".format, counts), *shares, f"{row['updates']:,}", f"{row['seconds']['train']:.0f}")
        )
    heads = ("environment steps", "trees", "leaves", "generated tokens", "prompt tokens shared, %")
    table(("", *heads, "responses updated, %", "of grpo's", "updates", "seconds in train"), rows)


def curves(runs: Runs) -> None:
    """A leaf of a branching method is no independent sample: rows compare with themselves."""
    rows = []
    for name in runs.methods:
        own = [[read_iteration(folder) for folder in folders] for folders in runs.iterations(name)]
        rows.append((name, *map(percent, course(*([done.success / done.leaves for done in seed] for seed in own)))))
    table(("", *(f"part {number}" for number in range(1, PARTS + 1))), rows)


def of_kind(row: dict[str, Any], kind: str) -> str:
    """Success in one task type."""
    return rate(row["kinds"][kind]["success"])


def rate(cell: dict[str, Any]) -> str:
    """A rate and its interval."""
    return f"{percent(cell['rate'])} ({percent(cell['low'])}-{percent(cell['high'])})"


def gain(cell: dict[str, Any]) -> str:
    """A difference and its interval, in points."""
    return f"{100 * cell['difference']:+.1f} ({100 * cell['low']:+.1f} to {100 * cell['high']:+.1f})"


def percent(share: float) -> str:
    """With one decimal."""
    return f"{100 * share:.1f}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """As Markdown."""
    for cells in (heads, ["---"] * len(heads), *rows):
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("seeds", nargs="+")
    parser.add_argument("--methods", nargs="+", required=True)
    chosen = parser.parse_args()
    try:
        main(Runs(chosen.out, chosen.seeds, chosen.methods))
    except AgentCliError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
