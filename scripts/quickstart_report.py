"""The table that quickstart.sh ends with: success before and after, by task kind.

Reads runs/{sft,rl}/evaluation/{sampled,greedy}.{json,jsonl} and runs/seconds.tsv;
computes nothing but the paired test.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from agentcli.errors import AgentCliError, DataError
from agentcli.evaluation.record import EvaluationSummary, Results, ResultsByKind
from agentcli.evaluation.statistics import mcnemar_exact
from agentcli.evaluation.summary import successes_by_task
from agentcli.records.files import read_json, read_records
from agentcli.records.runs import RunDirectory
from agentcli.records.types import Episode, Ledger
from agentcli.reports.blocks import Blocks
from agentcli.reports.tables import rate

WIDTH = 140
HONESTY = """The demonstrations are imperfect on purpose: in most episodes they leave out a step that the task needs (the
preset's first lines say which). What the loop gains is what it found beyond them."""


def main(runs: Path) -> None:
    """Prints the report. Raises DataError for missing or unlike evaluations."""
    before = RunDirectory(runs / "sft")
    after = RunDirectory(runs / "rl")
    pairs = {label: summaries(before, after, label) for label in ("sampled", "greedy")}
    out = Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH)
    out.print(success_table("sampled", *pairs["sampled"]))
    out.print(success_table("greedy", *pairs["greedy"], greedy_p(before, after)))
    print(HONESTY)
    print(f"greedy gain by kind, in points: {gains(*pairs['greedy'])}")
    _, greedy = pairs["greedy"]
    print(f"\nheld-out games: {greedy.tasks}, panel {greedy.panel.name}")
    for name, run in (("before", before), ("after", after)):
        files = f"{run.evaluation('sampled')} and {run.evaluation('greedy')}"
        print(f"{name}: checkpoint {run.checkpoint}, episodes {files}")
    demonstrations = RunDirectory(runs / "demos").trees
    iterations = f"{runs}/rl/iteration_*/"
    print(f"demonstrations: {demonstrations}; trees and credit: {iterations}")
    spark_against_chain(runs, out)
    print(
        f"orchestration (neither policy nor engines): {orchestration(runs):.1%} of "
        "the loop's rollout time"
    )
    print(f"seconds: {durations(runs)}")


def summaries(
    before: RunDirectory, after: RunDirectory, label: str
) -> tuple[EvaluationSummary, EvaluationSummary]:
    """One evaluation before and after. Raises DataError for unlike panels."""
    first, second = (
        read_json(run.evaluation(label).with_suffix(".json"), EvaluationSummary)
        for run in (before, after)
    )
    if first.panel.sha256 != second.panel.sha256:
        raise DataError(
            f"{label}: the evaluations before and after walked unlike panels; run "
            "both again"
        )
    return first, second


def success_table(
    label: str, before: ResultsByKind, after: ResultsByKind, p: float | None = None
) -> Blocks:
    """Success before and after, by task kind; gains are in percentage points.

    `p` is the p-value of the paired test over tasks, shown in the row of all kinds.
    """
    heads = [f"{label}: before", "after", "gain"]
    if p is not None:
        heads.append("McNemar p")
    table = Blocks("success % (95 %)", ["kind"], heads)
    for kind in sorted({*before.kinds, *after.kinds}):
        cells = gain_cells(before.kinds.get(kind), after.kinds.get(kind))
        table.add([kind, *cells, *([] if p is None else [""])])
    cells = gain_cells(before, after)
    table.add(["all", *cells, *([] if p is None else [f"{p:.2g}"])], style="bold")
    return table


def gain_cells(before: Results | None, after: Results | None) -> list[str]:
    """Before, after and gain; "-" for what is not there."""
    shown = [rate(results.success) if results else "-" for results in (before, after)]
    if before is None or after is None:
        return [*shown, "-"]
    return [*shown, f"{100 * (after.success.rate - before.success.rate):+.1f}"]


def spark_against_chain(runs: Path, out: Console) -> None:
    """Prints what runs/x (SPARK) cost beside runs/chain.

    Both grew trees of the same tasks, with the same model and leaf budget.
    """
    ledgers = {"chain": ledger(runs / "chain"), "spark": ledger(runs / "x")}
    out.print(ledgers_table(ledgers))
    tokens = []
    for name, spent in ledgers.items():
        tokens.append(f"{name} {spent.generated_tokens / spent.leaves:.1f}")
    print(f"generated tokens per leaf: {', '.join(tokens)}")


def ledger(run: Path) -> Ledger:
    """The ledger of a finished rollout. Raises DataError where there is none."""
    record = RunDirectory(run).finished("rollout")
    if record is None or record.ledger is None:
        raise DataError(
            f"{run}/manifest.json: no finished rollout; run scripts/quickstart.sh again"
        )
    return record.ledger


def ledgers_table(ledgers: Mapping[str, Ledger]) -> Blocks:
    """The cost of two rollouts, and of the second as a share of the first."""
    first, second = ledgers
    table = Blocks("ledger", ["count"], [first, second, f"{second} / {first}"])
    for name in Ledger.__struct_fields__:
        base, other = (getattr(spent, name) for spent in ledgers.values())
        share = f"{other / base:.2f}" if base else "-"
        table.add([name.replace("_", " "), f"{base:,}", f"{other:,}", share])
    return table


def orchestration(runs: Path) -> float:
    """Share of the loop's sampling time spent in neither the policy nor the engines."""
    rest = 0.0
    whole = 0.0
    for folder in sorted((runs / "rl").glob("iteration_*")):
        record = RunDirectory(folder).finished("rollout")
        if record is not None:
            rest += record.seconds["orchestration"]
            whole += record.seconds["sampling"]
    return rest / whole


def durations(runs: Path) -> str:
    """The seconds of every part of the script, and their sum."""
    lines = (runs / "seconds.tsv").read_text(encoding="utf-8").splitlines()
    parts = [line.replace("\t", " ") for line in lines]
    total = sum(int(line.split("\t")[1]) for line in lines)
    return f"{', '.join(parts)}; {total} in all"


def gains(before: EvaluationSummary, after: EvaluationSummary) -> str:
    """Every kind with what it gained, the largest gain first."""
    gained = {
        kind: after.kinds[kind].success.rate - results.success.rate
        for kind, results in before.kinds.items()
    }
    kinds = sorted(gained, key=lambda kind: -gained[kind])
    return ", ".join(f"{kind} {100 * gained[kind]:+.1f}" for kind in kinds)


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
