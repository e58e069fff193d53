"""study: what its runs show, over seeds, beside the paper's figure.

Rates of an arm and of the reference are compared seed by seed, since both began with
the same policy and were evaluated on the same panel.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

import msgspec

from agentcli.analysis.compare_training import read_iteration
from agentcli.credit.carl import first_phase
from agentcli.credit.survey import ROOT
from agentcli.evaluation.record import EvaluationSummary
from agentcli.evaluation.seeds import area_under, paired_t
from agentcli.evaluation.statistics import wilcoxon_exact
from agentcli.evaluation.training import training_cost
from agentcli.records.files import read_json, read_records
from agentcli.records.runs import RunDirectory, loop_folders
from agentcli.records.study import ArmOutcome, SeedDifference, StudyResults
from agentcli.records.trees import leaves
from agentcli.records.types import Outcome, Tree
from agentcli.stages.study import START, StudyPlan

AREA = "area"
"""The measure of a whole loop: the mean over its iterations."""
FEWEST_SEEDS = 6
"""Below, no signed-rank test can reach 0.05, and nothing is said of the paper's gain.
"""
ALIKE = 0.05
"""Arms that spend within this share of each other have spent alike."""
SPENT = ("steps", "generated_tokens", "leaves", "updates")


def results(made: StudyPlan) -> StudyResults:
    """Everything that has ended. Raises DataError for a damaged file."""
    outcomes = list(_outcomes(made))
    differences = list(_differences(made, outcomes))
    study = made.study
    verdict = None
    if study.result is not None:
        deciding = next(iter(study.panels))
        for one in differences:
            if (one.measure, one.arm) == (deciding, study.result.arm):
                verdict = verdict_of(one, study.result.gain)
    return StudyResults(
        study=msgspec.to_builtins(study),
        outcomes=outcomes,
        differences=differences,
        verdict=verdict,
        unlike=list(_unlike(made, outcomes)),
    )


def _outcomes(made: StudyPlan) -> Iterator[ArmOutcome]:
    """Every arm of every seed whose evaluations have ended, the starts first."""
    for arm in (START, *made.arms):
        for seed in made.seeds:
            folder = made.out / str(seed) / arm
            stages = RunDirectory(folder).load_manifest().stages
            panels = {}
            for label in made.study.panels:
                if f"evaluation/{label}" in stages:
                    file = RunDirectory(folder).evaluation(label).with_suffix(".json")
                    panels[label] = read_json(file, EvaluationSummary).success.rate
            if len(panels) < len(made.study.panels):
                continue
            outcome = ArmOutcome(arm=arm, seed=seed, panels=panels)
            if arm != START:
                _add_loop(outcome, folder)
            yield outcome


def _add_loop(outcome: ArmOutcome, folder: Path) -> None:
    """Adds the course of a loop, and what it spent."""
    folders = loop_folders(folder)
    outcome.course = [success_from_scratch(one) for one in folders]
    cost = training_cost([read_iteration(one) for one in folders])
    spent = cost.ledger
    outcome.totals = {
        "steps": spent.steps,
        "generated_tokens": spent.generated_tokens,
        "leaves": cost.leaves,
        "updates": cost.updates or 0,
    }


def success_from_scratch(folder: Path) -> float:
    """Success among an iteration's trajectories that are draws of the policy.

    They are all leaves of a tree without forks, else those of its first phase: a leaf
    behind a fork is not an independent draw. Errored ones are left out.
    """
    ends = []
    for tree in read_records(RunDirectory(folder).existing_trees(), Tree):
        drawn = None
        if tree.roots is not None:
            parents = [
                ROOT if step.parent is None else step.parent for step in tree.steps
            ]
            drawn = first_phase(parents, tree.roots)
        for leaf in leaves(tree):
            if leaf.outcome is not Outcome.ERRORED and (
                drawn is None or leaf.id in drawn
            ):
                ends.append(leaf.outcome is Outcome.SUCCESS)
    return sum(ends) / max(1, len(ends))


def _differences(
    made: StudyPlan, outcomes: Sequence[ArmOutcome]
) -> Iterator[SeedDifference]:
    """Every measure of every arm against the reference, on the seeds that both have."""
    reference = made.study.reference
    for measure in (*made.study.panels, AREA):
        values: dict[str, dict[int, float]] = {}
        for outcome in outcomes:
            if measure == AREA and not outcome.course:
                continue
            rate = (
                area_under(outcome.course)
                if measure == AREA
                else outcome.panels[measure]
            )
            values.setdefault(outcome.arm, {})[outcome.seed] = 100 * rate
        for arm in (START, *made.arms):
            seeds = sorted(
                values.get(arm, {}).keys() & values.get(reference, {}).keys()
            )
            if arm != reference and seeds:
                first = [values[reference][seed] for seed in seeds]
                second = [values[arm][seed] for seed in seeds]
                yield difference(measure, arm, seeds, first, second)


def difference(
    measure: str,
    arm: str,
    seeds: list[int],
    first: Sequence[float],
    second: Sequence[float],
) -> SeedDifference:
    """An arm (`second`) beside the reference (`first`), seed by seed, in points."""
    gains = [after - before for before, after in zip(first, second, strict=True)]
    gain, low, high = paired_t(gains)
    several = len(gains) > 1
    return SeedDifference(
        measure=measure,
        arm=arm,
        seeds=seeds,
        reference_mean=fmean(first),
        mean=fmean(second),
        gain=gain,
        low=low if several else None,
        high=high if several else None,
        p=wilcoxon_exact(gains),
    )


def verdict_of(found: SeedDifference, paper: float) -> str:
    """One word about a paper's gain, from the 95 % interval of ours over six seeds.

    holds: it lies on the paper's side of 0. does not: it excludes the paper's gain and
    does not lie on its side of 0. cannot tell: otherwise.
    """
    if found.low is None or found.high is None or len(found.seeds) < FEWEST_SEEDS:
        return "cannot tell"
    sign = 1 if paper >= 0 else -1
    low, high = sorted((sign * found.low, sign * found.high))
    if low > 0:
        return "holds"
    return "does not" if high < abs(paper) else "cannot tell"


def _unlike(made: StudyPlan, outcomes: Sequence[ArmOutcome]) -> Iterator[str]:
    """What the arms spent unequally, for instance "steps: carl 0.62 of grpo's"."""
    reference = made.study.reference
    for name in SPENT:
        means = {}
        for arm in made.arms:
            spent = [one.totals[name] for one in outcomes if one.arm == arm]
            if spent:
                means[arm] = fmean(spent)
        base = means.get(reference)
        if not base:
            continue
        parts = []
        for arm, mean in means.items():
            if abs(mean / base - 1) > ALIKE:
                parts.append(f"{arm} {mean / base:.2f}")
        if parts:
            yield f"{name}: {', '.join(parts)} of {reference}'s"
