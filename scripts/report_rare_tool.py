"""The table of scripts/reproduce_rare_tool.sh: OUT/results.json, and Markdown on stdout.

usage: python scripts/report_rare_tool.py OUT SEED...
"""

import sys
from pathlib import Path
from typing import Any

import msgspec

from agentcli.evaluation.calls import CallShares, call_shares
from agentcli.evaluation.seeds import paired_t
from agentcli.evaluation.statistics import mcnemar_exact, wilson
from agentcli.evaluation.summary import successes_by_task
from agentcli.records.files import read_records, write_json
from agentcli.records.runs import RunDirectory
from agentcli.records.types import Episode, Tree

VARIANTS = {
    "base, closed book": ("start", "closed"),
    "base with tools": ("start", "tools"),
    "SFT, closed book": ("sft", "closed"),
    "PPO, greedy tools": ("greedy", "tools"),
    "PPO, random tools": ("random", "tools"),
    "PPO, rarity first": ("rarity", "tools"),
    "PPO, greedy tools, higher rate": ("greedy-whole", "tools"),
    "PPO, random tools, higher rate": ("random-whole", "tools"),
    "PPO, rarity first, higher rate": ("rarity-whole", "tools"),
}
"""Name -> folder of the run, and label of its evaluation (Rare-tool Table 2)."""
REFERENCES = ("base with tools", "PPO, greedy tools")
"""What the others are compared with."""


class Measured(msgspec.Struct, kw_only=True):
    """One variant over all seeds."""

    name: str
    accuracy: list[float]
    """By seed."""
    low: float
    """95 % interval (Wilson) of all questions of all seeds together, and its other end."""
    high: float
    calls: CallShares
    """Calls of all seeds and steps together."""
    outcomes: list[bool]
    """Of every question, seed after seed."""


def measured(out: Path, seeds: list[str], name: str) -> Measured:
    """What a variant's evaluations hold."""
    folder, label = VARIANTS[name]
    rates = []
    outcomes: list[bool] = []
    trees: list[Tree] = []
    for seed in seeds:
        run = RunDirectory(out / seed / folder)
        answers = successes_by_task(read_records(run.evaluation(label), Episode))
        right = [success for samples in answers.values() for success in samples]
        rates.append(sum(right) / len(right))
        outcomes += right
        trees += read_records(run.evaluation_trees(label), Tree)
    low, high = wilson(sum(outcomes), len(outcomes))
    return Measured(
        name=name,
        accuracy=rates,
        low=low,
        high=high,
        calls=call_shares(trees)[0],
        outcomes=outcomes,
    )


def accuracy_table(rows: list[Measured], seeds: list[str]) -> list[str]:
    """Accuracy by seed with its interval, and the entropy of the calls."""
    lines = [
        f"| | {' | '.join(f'seed {seed}' for seed in seeds)} | mean (95 % by question) | entropy of calls, nats |",
        "| --- " * (len(seeds) + 3) + "|",
    ]
    for row in rows:
        by_seed = " | ".join(f"{100 * rate:.1f}" for rate in row.accuracy)
        mean = 100 * sum(row.accuracy) / len(row.accuracy)
        interval = f"{mean:.1f} ({100 * row.low:.1f}-{100 * row.high:.1f})"
        lines.append(
            f"| {row.name} | {by_seed} | {interval} | {row.calls.entropy:.2f} |"
        )
    return lines


def gains_table(rows: list[Measured]) -> list[str]:
    """Gains over the references: paired t over seeds, exact McNemar over questions."""
    lines = [
        "| | against | points (95 % over seeds) | McNemar p |",
        "| --- | --- | --- | --- |",
    ]
    by_name = {row.name: row for row in rows}
    for reference in REFERENCES:
        base = by_name[reference]
        for row in rows:
            if row is base or not row.name.startswith("PPO"):
                continue
            pairs = zip(row.accuracy, base.accuracy, strict=True)
            gain, low, high = paired_t([100 * (new - old) for new, old in pairs])
            p = mcnemar_exact(base.outcomes, row.outcomes)
            lines.append(
                f"| {row.name} | {reference} | {gain:+.1f} ({low:+.1f} to {high:+.1f}) | {p:.2g} |"
            )
    return lines


def calls_table(rows: list[Measured]) -> list[str]:
    """The share of each tool in all calls, in % (Rare-tool Figures 4 and 5)."""
    names = sorted({name for row in rows for name in row.calls.calls})
    lines = [f"| | {' | '.join(names)} |", "| --- " * (len(names) + 1) + "|"]
    for row in rows:
        total = sum(row.calls.calls.values())
        shares = [100 * row.calls.calls.get(name, 0) / total for name in names]
        lines.append(
            f"| {row.name} | {' | '.join(f'{share:.1f}' for share in shares)} |"
        )
    return lines


def main(words: list[str]) -> None:
    """Reads the runs, writes the JSON, prints the tables."""
    out, seeds = Path(words[0]), words[1:]
    rows = [measured(out, seeds, name) for name in VARIANTS]
    kept: list[dict[str, Any]] = [msgspec.to_builtins(row) for row in rows]
    for row in kept:
        del row["outcomes"]
    write_json(out / "results.json", {"seeds": seeds, "variants": kept})
    for table in (accuracy_table(rows, seeds), gains_table(rows), calls_table(rows)):
        print("\n".join(table), end="\n\n")


if __name__ == "__main__":
    main(sys.argv[1:])
