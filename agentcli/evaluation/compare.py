"""Evaluations of the same tasks side by side, with paired tests against the first.

It reads only episodes. The caller checks that the panels match. If a budget ended an
evaluation early, the paired tests leave out the tasks that it did not play.
"""

from collections.abc import Mapping, Sequence
from operator import sub
from statistics import fmean

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict

from agentcli.evaluation import statistics
from agentcli.evaluation.growth import Growth
from agentcli.evaluation.record import Rate, Results, rated
from agentcli.evaluation.summary import (
    Episodes,
    by_kind,
    results_of,
    share,
    successes_by_task,
)
from agentcli.evaluation.training import LoopCost
from agentcli.records.study import SeedDifference
from agentcli.records.types import Episode, Ledger

Samples = list[list[bool]]
"""The success of every sample of each task."""
MOST_RANKED = 100
"""Tasks of the signed-rank test: beyond, the bootstrap is wide enough by itself."""


class Difference(Struct, kw_only=True):
    """A difference of two rates with its 95 % interval."""

    difference: float
    low: float
    high: float


class PairedTests(Struct, kw_only=True):
    """The change from the first evaluation to another one, over their common tasks."""

    tasks: int
    """Number of tasks that both evaluations played."""
    gained: int
    """Tasks whose share of success rose."""
    lost: int
    """Tasks whose share of success fell."""
    success: Difference
    mcnemar: float | None
    """Exact p-value over tasks. None if there is no task, or if an evaluation has
    several samples per task.
    """
    signed_rank: float | None = None
    """Exact p-value of the signed-rank test over the tasks' gains. None if there is no
    task, or more than 100.
    """
    tokens: float | None
    """Generated tokens as a multiple of the first's, from the ledgers. None where the
    first generated nothing.
    """
    steps: float | None
    """Executed steps as a multiple of the first's, from the ledgers. None where the
    first executed nothing.
    """

    @property
    def p(self) -> float | None:
        """McNemar's p-value, else that of the signed-rank test."""
        return self.signed_rank if self.mcnemar is None else self.mcnemar


class ComparedResults(Results, kw_only=True):
    """The results of some episodes, beside those of the first evaluation."""

    solved: Rate
    """Share of the tasks with a success among their samples."""
    ledger: Ledger
    against: PairedTests | UnsetType = UNSET
    """Unset for the first evaluation itself."""


class ComparedEvaluation(ComparedResults, kw_only=True):
    """The results of all episodes, and of each task kind by itself."""

    kinds: dict[str, ComparedResults]


class SignedRankTest(Struct, kw_only=True):
    """The Wilcoxon signed-rank test over benchmarks: their number and the p-value."""

    benchmarks: int
    p: float


class RunComparison(
    Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The whole of a comparison of runs, or of sides of several runs each.

    Inner mappings are keyed by run, or by side as it was typed. The episodes of a
    side are those of all its runs: samples of one task.
    """

    first: str
    """The run or side that the others are compared with."""
    evaluations: dict[str, dict[str, ComparedEvaluation]]
    """Their results by label."""
    benchmarks: list[str] = []
    """Labels that the signed-rank test uses."""
    wilcoxon: dict[str, SignedRankTest] = {}
    trees: dict[str, Growth] = {}
    training: dict[str, LoopCost] = {}
    sides: dict[str, list[str]] = {}
    """The runs of each side in the order of their seeds, where there are several."""
    differences: list[SeedDifference] = []
    """Gains of each side over the first, over seeds."""
    unlike: list[str] = []
    """What the sides' loops did not spend alike, in words."""


def side_by_side(evaluations: Mapping[str, Episodes]) -> dict[str, ComparedEvaluation]:
    """The results of each evaluation by name, overall and by task kind.

    All but the first are tested against the first.
    """
    compared: dict[str, ComparedEvaluation] = {}
    first: Episodes | None = None
    first_kinds: dict[str, list[Episode]] = {}
    for name, rows in evaluations.items():
        rows_by_kind = by_kind(rows)
        kinds = {}
        for kind, of_kind in rows_by_kind.items():
            reference = None
            if first is not None:
                reference = first_kinds.get(kind, [])
            kinds[kind] = _compared(of_kind, reference)
        overall = _compared(rows, first)
        compared[name] = ComparedEvaluation(**asdict(overall), kinds=kinds)
        if first is None:
            first = rows
            first_kinds = rows_by_kind
    return compared


def paired(first: Episodes, other: Episodes) -> PairedTests:
    """The change from `first` to `other`, over the tasks that both walked."""
    # A budget may have ended one of them early: only what both played is compared.
    tasks = {row.task for row in first} & {row.task for row in other}
    first = [row for row in first if row.task in tasks]
    other = [row for row in other if row.task in tasks]
    before = successes_by_task(first)
    after = successes_by_task(other)
    samples_before = list(before.values())
    samples_after = [after[task] for task in before]
    difference, low, high = statistics.paired_bootstrap(samples_before, samples_after)
    rates_before = map(fmean, samples_before)
    rates_after = map(fmean, samples_after)
    gains = list(map(sub, rates_after, rates_before))
    # The exact test costs the cube of the tasks.
    ranked = 0 < len(tasks) <= MOST_RANKED
    cost_before = charged(first)
    cost_after = charged(other)
    return PairedTests(
        tasks=len(tasks),
        gained=sum(gain > 0 for gain in gains),
        lost=sum(gain < 0 for gain in gains),
        success=Difference(difference=difference, low=low, high=high),
        mcnemar=_mcnemar(samples_before, samples_after),
        signed_rank=statistics.wilcoxon_exact(gains) if ranked else None,
        tokens=_ratio(cost_after.generated_tokens, cost_before.generated_tokens),
        steps=_ratio(cost_after.steps, cost_before.steps),
    )


def over_benchmarks(gains: Mapping[str, Sequence[float]]) -> dict[str, SignedRankTest]:
    """Exact Wilcoxon signed-rank test of every name's gains over the first run.

    gains: differences of success rates, one per benchmark (SPARK appendix C.6).
    """
    tests = {}
    for name, differences in gains.items():
        p = statistics.wilcoxon_exact(differences)
        tests[name] = SignedRankTest(benchmarks=len(differences), p=p)
    return tests


def charged(rows: Episodes) -> Ledger:
    """The cost of the episodes together."""
    ledgers = [row.ledger for row in rows if row.ledger is not None]
    return sum(ledgers, Ledger())


def _compared(rows: Episodes, reference: Episodes | None) -> ComparedResults:
    """The results of `rows`, tested against `reference` where there is one."""
    tasks = successes_by_task(rows)
    solved = sum(map(any, tasks.values()))
    interval = statistics.wilson(solved, len(tasks))
    compared = ComparedResults(
        **asdict(results_of(rows)),
        solved=rated(share(solved, len(tasks)), interval),
        ledger=charged(rows),
    )
    if reference is not None:
        compared.against = paired(reference, rows)
    return compared


def _mcnemar(before: Samples, after: Samples) -> float | None:
    """McNemar's p-value over tasks. None without any, and for several samples a task."""
    if not before:
        return None
    # The test counts tasks that turned: several samples have no single outcome.
    most = max(map(len, before + after))
    if most > 1:
        return None
    first = [won for (won,) in before]
    second = [won for (won,) in after]
    return statistics.mcnemar_exact(first, second)


def _ratio(part: int, whole: int) -> float | None:
    if whole == 0:
        return None
    return part / whole
