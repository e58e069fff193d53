"""The table that quickstart.sh ends with: success before and after, sampled and greedy,
by task kind, and where files lie.

Reads runs/{sft,rl}/evaluation/{sampled,greedy}.{json,jsonl} and runs/seconds.tsv;
computes nothing but the paired test.
"""

import sys
from pathlib import Path

from rich.console import Console

from agentcli.errors import AgentCliError, DataError
from agentcli.evaluation.record import EvaluationSummary
from agentcli.evaluation.statistics import mcnemar_exact
from agentcli.evaluation.summary import successes_by_task
from agentcli.records.files import read_json, read_records
from agentcli.records.runs import RunDirectory
from agentcli.records.types import Episode
from agentcli.reports.tables import comparison_table, ledger_table

WIDTH = 140
HONESTY = """The demonstrations are imperfect on purpose: in most episodes they leave out the tool step (cleaning) or the
second object, and they pass by closed places. What the loop gains is what it found beyond them."""


def main(runs: Path) -> None:
    """Print the report to stdout. Raises DataError for missing evaluations or
    evaluations of unlike panels.
    """
    before, after = RunDirectory(runs / "sft"), RunDirectory(runs / "rl")
    pairs: dict[str, tuple[EvaluationSummary, EvaluationSummary]] = {}
    for label in ("sampled", "greedy"):
        first, second = (summary(run, label) for run in (before, after))
        if first.panel.sha256 != second.panel.sha256:
            raise DataError(
                f"{label}: the evaluations before and after walked unlike panels; run "
                "both again"
            )
        pairs[label] = first, second
    p_values = {"greedy": greedy_p(before, after)}
    out = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    for label, pair in pairs.items():
        out.print(comparison_table({label: pair}, p_values))
    print(HONESTY)
    print(f"greedy gain by kind, in points: {gains(*pairs['greedy'])}")
    print(
        f"\nheld-out games: {pairs['greedy'][1].tasks}, panel "
        f"{pairs['greedy'][1].panel.name}"
    )
    for name, run in (("before", before), ("after", after)):
        print(
            f"{name}: checkpoint {run.checkpoint}, episodes "
            f"{run.evaluation('sampled')} and {run.evaluation('greedy')}"
        )
    print(
        f"demonstrations: {RunDirectory(runs / 'demos').trees}; trees and credit: "
        f"{runs}/rl/iteration_*/"
    )
    spark_against_chain(runs, out)
    print(
        f"orchestration (neither policy nor engines): {orchestration(runs):.1%} of "
        "the loop's rollout time"
    )
    rows = [
        line.split("\t")
        for line in (runs / "seconds.tsv").read_text(encoding="utf-8").splitlines()
    ]
    total = sum(int(seconds) for _, seconds in rows)
    print(
        f"seconds: {', '.join(f'{name} {seconds}' for name, seconds in rows)}; "
        f"{total} in all"
    )


def spark_against_chain(runs: Path, out: Console) -> None:
    """What runs/x (SPARK) cost beside runs/chain: the same tasks, model and leaf
    budget.
    """
    ledgers = {}
    for name, run in (("chain", "chain"), ("spark", "x")):
        record = RunDirectory(runs / run).finished("rollout")
        if record is None or record.ledger is None:
            raise DataError(
                f"{runs / run}/manifest.json: no finished rollout; run "
                "scripts/quickstart.sh again"
            )
        ledgers[name] = record.ledger
    out.print(ledger_table(ledgers, reference="chain"))
    tokens = {
        name: ledger.generated_tokens / ledger.leaves
        for name, ledger in ledgers.items()
    }
    print(
        f"generated tokens per leaf: chain {tokens['chain']:.1f}, spark "
        f"{tokens['spark']:.1f}"
    )


def orchestration(runs: Path) -> float:
    """Share of the loop's sampling time that was spent in neither the policy nor the
    engines.
    """
    folders = sorted((runs / "rl").glob("iteration_*"))
    records = [
        record
        for folder in folders
        if (record := RunDirectory(folder).finished("rollout"))
    ]
    rest, whole = (
        sum(record.seconds[name] for record in records)
        for name in ("orchestration", "sampling")
    )
    return rest / whole


def gains(before: EvaluationSummary, after: EvaluationSummary) -> str:
    """Every kind with what it gained, the largest gain first."""
    gained = {
        kind: after.kinds[kind].success.rate - row.success.rate
        for kind, row in before.kinds.items()
    }
    return ", ".join(
        f"{kind} {100 * gained[kind]:+.1f}"
        for kind in sorted(gained, key=lambda kind: -gained[kind])
    )


def summary(run: RunDirectory, label: str) -> EvaluationSummary:
    """One evaluation's summary."""
    return read_json(run.evaluation(label).with_suffix(".json"), EvaluationSummary)


def greedy_p(before: RunDirectory, after: RunDirectory) -> float:
    """Exact McNemar over the games, one greedy episode each."""
    first, second = (
        successes_by_task(read_records(run.evaluation("greedy"), Episode))
        for run in (before, after)
    )
    return mcnemar_exact(
        [first[task][0] for task in first], [second[task][0] for task in first]
    )


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs"))
    except AgentCliError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
