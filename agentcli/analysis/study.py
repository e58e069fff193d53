"""study: what its runs show, over seeds, beside the paper's figure.

Rates of an arm and of the reference are compared seed by seed, since both began with
the same policy and were evaluated on the same panel.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

import msgspec
from msgspec.structs import replace

from agentcli.analysis.advice import FromScratch, from_scratch
from agentcli.analysis.compare_training import read_iteration
from agentcli.analysis.tree_measures import (
    measure_steps,
    measure_trees,
)
from agentcli.errors import DataError, UsageError
from agentcli.evaluation import statistics
from agentcli.evaluation.record import EvaluationSummary
from agentcli.evaluation.training import Iteration, training_cost
from agentcli.records.files import read_json, read_records
from agentcli.records.grouping import grouped
from agentcli.records.runs import RunDirectory, loop_folders
from agentcli.records.study import (
    DROP,
    LOOP,
    TRAINING_TOKENS,
    ArmOutcome,
    Measured,
    SearchChoice,
    SeedDifference,
    Spent,
    Study,
    StudyResults,
    Summarised,
    TrainingMeasured,
    scale_of,
)
from agentcli.records.types import Tree
from agentcli.stages.layers import nest, overlay
from agentcli.stages.study import StudyPlan, plan

AREA = "area"
"""The mean success over all iterations."""
FEWEST_SEEDS = 6
"""Below, no signed-rank test reaches 0.05, and nothing is said of a paper's gain."""
ALIKE = 0.05
"""Arms that spend within this share of each other have spent alike."""
LEVELS = (10, 20, 30)
"""Points above the start."""
LACKED = {
    "entropy": "greedy, by a vote, or without log-probabilities",
    "call_entropy": "no tool was called",
    DROP: "without any success there is nothing to lose",
}
"""Measures that an evaluation may lack, and why."""
WINDOW = 5
"""Iterations whose mean counts: single ones scatter by ten points."""


def results(made: StudyPlan, rules: Sequence[str] = ()) -> StudyResults:
    """Everything that has ended. `rules` are its `rules`. Raises DataError for a damaged file."""
    outcomes = list(_outcomes(made))
    add_training_tokens(outcomes, made.study)
    reference = made.study.reference
    began = began_with(made, outcomes)
    gains = list(differences(outcomes, reference, began, made.study.equal))
    for one in gains:
        _add_paper(made.study, one)
    lacking = [*untold(made.study, gains), *unmeasured(made.study, outcomes)]
    return StudyResults(
        study=msgspec.to_builtins(made.study),
        outcomes=outcomes,
        differences=gains,
        unlike=list(unlike(outcomes, reference, made.study.equal)),
        rules=[*rules, *lacking, *unlike_tasks(made, outcomes)],
    )


def seeds_beside(made: StudyPlan) -> list[str]:
    """Seeds in the study's folder with loops of all arms that were not asked for."""
    seeds = [path for path in made.out.iterdir() if path.name.isdigit()]
    return [
        seed.name
        for seed in sorted(seeds, key=lambda path: int(path.name))
        if int(seed.name) not in made.seeds
        and all((seed / arm / "manifest.json").is_file() for arm in made.arms)
    ]


def _add_paper(study: Study, one: SeedDifference) -> None:
    """Adds the first figure of a paper for this gain, if any reports one."""
    for result in study.results:
        place = (study.panel_of(result), result.measure)
        base = result.figures.get(study.reference)
        figure = result.figures.get(one.arm)
        asked = place == (one.panel, one.measure) and one.paper is None
        if asked and base is not None and figure is not None:
            one.paper = f"{result.paper}, {result.table}"
            one.paper_gain = figure - base
            one.verdict = verdict_of(one, one.paper_gain)


def untold(study: Study, gains: Sequence[SeedDifference]) -> Iterator[str]:
    """The paper's figures that stand beside no gain, and why. Names arms if not all."""
    told = {(one.panel, one.measure, one.arm): one.paper for one in gains}
    for result in study.results:
        paper = f"{result.paper}, {result.table}"
        panel, measure = study.panel_of(result), result.measure
        arms = [arm for arm in result.figures if arm != study.reference]
        lacking: dict[str, list[str]] = {}
        # Figures of the reference alone stand beside no gain either.
        for arm in arms or [study.reference]:
            other = told.get((panel, measure, arm))
            if other == paper:
                continue
            if other is not None:
                why = f"{other} stands there"
            elif study.reference not in result.figures:
                why = f"it has no figure of {study.reference}"
            elif any((one.panel, one.arm) == (panel, arm) for one in gains):
                why = f"{measure} was not measured"
            else:
                why = "its arms were not compared"
            lacking.setdefault(why, []).append(arm)
        for why, of in lacking.items():
            named = "" if len(of) >= len(arms) else f" of {', '.join(of)}"
            yield f"no gain beside {paper} ({panel}: {measure}{named}): {why}"


def unmeasured(study: Study, outcomes: Sequence[ArmOutcome]) -> Iterator[str]:
    """What has no value: measures of panels, and those of the training."""
    for label, panel in study.panels.items():
        for measure, why in LACKED.items():
            asked = panel.drop_from if measure == DROP else measure in study.measures
            lacking = [one for one in outcomes if measure not in one.panels[label]]
            if asked and lacking:
                yield f"no {measure} on {label} of {_named(lacking)}: {why}"
    for measure in study.training:
        empty = [one for one in outcomes if set(one.courses.get(measure, ())) == {None}]
        if empty:
            yield f"no {measure} in the training of {_named(empty)}"


def unlike_tasks(made: StudyPlan, outcomes: Sequence[ArmOutcome]) -> Iterator[str]:
    """Which arms and starts played other tasks of a panel than the reference did."""
    reference = made.study.reference
    for label in made.study.panels:
        tasks = {}
        for one in outcomes:
            run = RunDirectory(made.out / str(one.seed) / one.arm)
            file = run.evaluation(label).with_suffix(".json")
            summary = read_json(file, EvaluationSummary)
            tasks[one.arm, one.seed] = summary.panel.sha256
        others = []
        for one in outcomes:
            own = tasks[one.arm, one.seed]
            if tasks.get((reference, one.seed), own) != own:
                others.append(one)
        if others:
            yield (
                f"{_named(others)} played other tasks of {label} than {reference}; "
                "evaluation.tasks and evaluation.budget decide which"
            )


def _named(outcomes: Iterable[ArmOutcome]) -> str:
    """Arms with their seeds, e.g. "grpo (seed 0, 3), sft (seed 1)"."""
    seeds = grouped((one.arm, str(one.seed)) for one in outcomes)
    return ", ".join(f"{arm} (seed {', '.join(of)})" for arm, of in seeds.items())


def _outcomes(made: StudyPlan) -> Iterator[ArmOutcome]:
    """Every start and arm of every seed that has ended, starts first.

    What ended with other settings than the file has now does not count.
    """
    starts = list(dict.fromkeys(made.study.start_of(arm) for arm in made.arms))
    ended = {chain.name for chain in made.chains if not chain.left}
    for arm in (*starts, *made.arms):
        for seed in made.seeds:
            if f"{arm} {seed}" not in ended:
                continue
            folder = made.out / str(seed) / arm
            try:
                outcome = _outcome(made.study, folder, arm, seed)
                if arm in made.arms:
                    add_loop(outcome, folder, made.study.training)
            except DataError as error:
                raise DataError(
                    f"{error}; if you cannot put it back, remove {folder}: the study "
                    "plays it again"
                ) from error
            yield outcome


def _outcome(study: Study, folder: Path, arm: str, seed: int) -> ArmOutcome:
    """What the evaluations of one arm say. Raises DataError for what cannot be read."""
    run = RunDirectory(folder)
    panels = {}
    for label, panel in study.panels.items():
        file = run.evaluation(label).with_suffix(".json")
        summary = read_json(file, EvaluationSummary)
        trees = _trees_in(run.evaluation_trees(label))
        panels[label] = measured(summary, study.measures, trees)
        if panel.by == "test-time-branch":
            # What won a vote is no draw of the policy.
            panels[label].pop("entropy", None)
    add_drops(panels, study)
    outcome = ArmOutcome(arm=arm, seed=seed, panels=panels)
    if study.by_step:
        trees = _trees_in(run.evaluation_trees(next(iter(panels))))
        outcome.by_step = measure_steps(trees, study.by_step)
    return outcome


def _trees_in(file: Path) -> Iterator[Tree]:
    """The trees of an evaluation. Raises DataError if there is none."""
    empty = True
    for tree in read_records(file, Tree):
        empty = False
        yield tree
    if empty:
        raise DataError(f"{file}: holds no tree")


def began_with(
    made: StudyPlan, outcomes: Sequence[ArmOutcome]
) -> dict[tuple[str, int], float]:
    """Success of what every arm of every seed started from, on the deciding panel.

    A model has none: it is that of its arms' first iterations, before any update.
    """
    study = made.study
    deciding = next(iter(study.panels))
    rates = []
    for one in outcomes:
        start = study.start_of(one.arm) if one.arm in study.arms else one.arm
        if one.arm == start and "success" in one.panels[deciding]:
            rates.append(((start, one.seed), one.panels[deciding]["success"]))
        elif one.course and not study.starts[start].demonstrations:
            rates.append(((start, one.seed), one.course[0]))
    return {
        (arm, seed): fmean(of_start)
        for (start, seed), of_start in grouped(rates).items()
        for arm in made.arms
        if study.start_of(arm) == start
    }


def measured(
    summary: EvaluationSummary, measures: Sequence[Measured], trees: Iterable[Tree] = ()
) -> dict[str, float]:
    """The measures of one evaluation, and pass@k where it has that.

    `trees` are read if a measure needs them.
    """
    values: dict[str, float] = {}
    for measure in measures:
        if measure in get_args(Summarised):
            value = getattr(summary, measure)
            values[measure] = value.rate if measure == "success" else float(value)
        elif measure == "tokens_per_step":
            values[measure] = summary.tokens / (summary.steps or 1)
    of_trees = {str(measure) for measure in measures} - values.keys()
    if of_trees:
        values |= measure_trees(trees, of_trees)
    for k, rate in (summary.pass_at_k or {}).items():
        values[f"pass@{k}"] = rate.rate
    return values


def add_drops(panels: Mapping[str, dict[str, float]], study: Study) -> None:
    """Adds the share of a panel's success that is lost on another (SPARK Table 3).

    Without any success there is nothing to lose, and no value.
    """
    for label, panel in study.panels.items():
        if panel.drop_from is None:
            continue
        base = panels[panel.drop_from]["success"]
        if base > 0:
            panels[label][DROP] = 1 - panels[label]["success"] / base


def add_training_tokens(outcomes: Sequence[ArmOutcome], study: Study) -> None:
    """Adds the tokens of each loop as a share of the reference's (SPARK Table 2).

    Only where a paper's figure is of them. A policy that is no model generates none.
    """
    if all(result.measure != TRAINING_TOKENS for result in study.results):
        return
    spent = {(one.arm, one.seed): one.totals.get("tokens", 0.0) for one in outcomes}
    for one in outcomes:
        base = spent.get((study.reference, one.seed), 0.0)
        if one.totals and base > 0:
            one.panels[LOOP] = {TRAINING_TOKENS: spent[one.arm, one.seed] / base}


def add_loop(
    outcome: ArmOutcome, folder: Path, followed: Sequence[TrainingMeasured] = ()
) -> None:
    """Adds the course of a loop, what is followed in it, and what it spent.

    Raises DataError where iterations were deleted: a course cannot have gaps.
    """
    folders = loop_folders(folder)
    if not holds_all(folder):
        raise DataError(f"{folder}: some of its iterations are gone")
    iterations = [read_iteration(one) for one in folders]
    scratch = [from_scratch(one) for one in folders]
    outcome.course = [one.success for one in scratch]
    outcome.steps = [one.rollout.ledger.steps for one in iterations]
    updated = [one.updated for one in iterations]
    if None not in updated:
        outcome.responses = [number for number in updated if number is not None]
    for measure in followed:
        pairs = zip(scratch, iterations, strict=True)
        outcome.courses[measure] = [_value_in(*pair, measure) for pair in pairs]
    cost = training_cost(iterations)
    outcome.totals = {
        "steps": cost.ledger.steps,
        "tokens": cost.ledger.generated_tokens,
        "trajectories": cost.leaves,
    }
    if cost.responses is not None:
        outcome.totals["responses"] = cost.responses.updated
    if cost.updates is not None:
        outcome.totals["updates"] = cost.updates


def holds_all(loop: Path) -> bool:
    """Whether this is a loop that has ended, with all of its iterations."""
    over = RunDirectory(loop).finished("run")
    return over is not None and over.counts["iterations"] == len(loop_folders(loop)) > 0


def _value_in(
    scratch: FromScratch, iteration: Iteration, measure: TrainingMeasured
) -> float | None:
    """A measure of one iteration of a loop; None where it has none."""
    if measure == "entropy":
        return scratch.entropy
    results = iteration.rollout.statistics.results
    return None if results is None else getattr(results, measure)


def differences(
    outcomes: Sequence[ArmOutcome],
    reference: str,
    began: Mapping[tuple[str, int], float],
    equal: Sequence[Spent] = (),
) -> Iterator[SeedDifference]:
    """Every measure of every arm against the reference, on the seeds that both have.

    began: (arm, seed) -> success at the start, above which the levels of loops lie.
    With "responses" in `equal` they are counted to these levels too.
    """
    values: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    for outcome in outcomes:
        for panel, measures in outcome.panels.items():
            for measure, value in measures.items():
                of_arm = values.setdefault((panel, measure), {})
                of_arm.setdefault(outcome.arm, {})[outcome.seed] = value
    for measure, of_arms in _of_loops(outcomes, began, equal).items():
        values[LOOP, measure] = of_arms
    for (panel, measure), of_arm in values.items():
        every = [value for by_seed in of_arm.values() for value in by_seed.values()]
        scale = scale_of(measure, every)
        base = of_arm.get(reference, {})
        for arm, by_seed in of_arm.items():
            seeds = sorted(by_seed.keys() & base.keys())
            if arm != reference and seeds:
                first = [scale * base[seed] for seed in seeds]
                second = [scale * by_seed[seed] for seed in seeds]
                found = difference(panel, measure, arm, seeds, first, second)
                found.in_points = measure == "score" and scale == 1
                yield found


def _of_loops(
    outcomes: Sequence[ArmOutcome],
    began: Mapping[tuple[str, int], float],
    equal: Sequence[Spent],
) -> dict[str, dict[str, dict[int, float]]]:
    """The measures of the loops: measure -> arm -> seed -> value.

    A level that was not reached has no value: nothing is put in for it.
    """
    found: dict[str, dict[str, dict[int, float]]] = {}
    for one in outcomes:
        if not one.course:
            continue
        measures = {AREA: fmean(one.course)}
        start = began.get((one.arm, one.seed))
        levels = {} if start is None else {n: start + n / 100 for n in LEVELS}
        paid = {"steps": one.steps}
        if "responses" in equal and one.responses:
            paid["responses"] = one.responses
        for points, level in levels.items():
            for name, numbers in paid.items():
                met = statistics.steps_to_level(one.course, numbers, level, WINDOW)
                if met is not None:
                    measures[f"{name} to +{points}"] = met
        for measure, values in one.courses.items():
            known = [value for value in values if value is not None]
            if known:
                measures[measure] = fmean(known)
        for measure, value in measures.items():
            found.setdefault(measure, {}).setdefault(one.arm, {})[one.seed] = value
    return found


def difference(
    panel: str,
    measure: str,
    arm: str,
    seeds: list[int],
    first: Sequence[float],
    second: Sequence[float],
) -> SeedDifference:
    """An arm (`second`) beside the reference (`first`), seed by seed."""
    gains = [after - before for before, after in zip(first, second, strict=True)]
    gain, low, high = statistics.paired_t(gains)
    several = len(gains) > 1
    return SeedDifference(
        panel=panel,
        measure=measure,
        arm=arm,
        seeds=seeds,
        reference_mean=fmean(first),
        mean=fmean(second),
        gain=gain,
        # The interval of a single gain is infinite, which JSON cannot write.
        low=low if several else None,
        high=high if several else None,
        p=statistics.wilcoxon_exact(gains),
    )


def verdict_of(found: SeedDifference, paper: float) -> str:
    """One word about a paper's gain, from our 95 % interval over six seeds or more.

    holds: it lies on the paper's side of 0. does not: it excludes the paper's gain and
    does not lie on its side of 0. cannot tell: otherwise, and where all seeds gave the
    same gain, which says nothing of others. A paper's gain of 0 has no side.
    """
    if found.low is None or found.high is None or len(found.seeds) < FEWEST_SEEDS:
        return "cannot tell"
    if found.low == found.high:
        return "cannot tell"
    if abs(paper) < statistics.ROUNDING:
        return "does not" if found.low > 0 or found.high < 0 else "cannot tell"
    sign = 1 if paper >= 0 else -1
    # Mirrored where the paper loses, so that its gain is above 0 in either case.
    low, high = sorted((sign * found.low, sign * found.high))
    if low > 0:
        return "holds"
    return "does not" if high < abs(paper) else "cannot tell"


def unlike(
    outcomes: Sequence[ArmOutcome], reference: str, equal: Sequence[Spent]
) -> Iterator[str]:
    """What the arms spent unequally, for instance "steps: carl 0.62 of grpo's".

    equal: what is looked at, over the seeds that an arm and the reference both have.
    """
    loops = grouped((one.arm, one) for one in outcomes if one.totals)
    bases = {one.seed: one.totals for one in loops.pop(reference, [])}
    for name in equal:
        if bases and not any(base.get(name) for base in bases.values()):
            yield f"{name}: {reference} has none, or it is not known"
            continue
        parts = []
        for arm, ended in loops.items():
            paired = [
                (one.totals, bases[one.seed]) for one in ended if one.seed in bases
            ]
            known = [pair for pair in paired if all(name in totals for totals in pair)]
            spent = sum(totals[name] for totals, _ in known)
            base = sum(totals[name] for _, totals in known)
            if paired and base == 0:
                yield f"{name}: of {arm} not known, or {reference} has none there"
            elif paired and abs(spent / base - 1) > ALIKE:
                parts.append(f"{arm} {spent / base:.2f}")
        if parts:
            yield f"{name}: {', '.join(parts)} of {reference}'s"


def refuse_counted(search: SearchChoice, counted: Sequence[int], most: int) -> None:
    """Raises UsageError where the seed of a search counts.

    Seeds may be added to `counted` until there are `most`.
    """
    further = max(0, most - len(counted))
    added = range(max(counted) + 1, max(counted) + further + 1)
    # A value that was chosen on a seed flatters its arm there.
    if search.seed in (*counted, *added):
        raise UsageError(f"search.seed: {search.seed} is among the seeds that count")


def one_seed_more(
    made: StudyPlan, most: int, narrower: float | None
) -> StudyPlan | None:
    """The study with a further seed; None if intervals are narrow or seeds enough.

    The arms stay those of `made`.
    """
    if narrower is None or len(made.seeds) >= most:
        return None
    if not too_wide(results(made), narrower):
        return None
    # Counted up from the largest: `refuse_counted` has cleared just these.
    seeds = ",".join(map(str, [*made.seeds, max(made.seeds) + 1]))
    return plan(made.study, made.out, only=made.arms, seeds=seeds)


def searched(study: Study, search: SearchChoice, played: Sequence[str]) -> Study:
    """The study that is played first: these arms with every value, on one seed."""
    arms = {}
    took = {name: cost for name, cost in study.took.items() if name not in study.arms}
    for arm in played:
        values = study.arms[arm]
        for value in search.values:
            name = f"{arm}-{value:g}"
            arms[name] = overlay(values, nest(search.path, value))
            if arm in study.took:
                took[name] = study.took[arm]
    return replace(
        study,
        arms=arms,
        took=took,
        # No arm has its old name any more; which one stands here decides nothing.
        reference=next(iter(arms)),
        # The paper's figures name arms that are not played here.
        results=[],
        seeds=str(search.seed),
        search=None,
    )


def settled(
    study: Study, search: SearchChoice, found: StudyResults, played: Sequence[str]
) -> tuple[Study, str]:
    """The study with the value that did best for each arm, and which these are.

    The best has the greatest success on the deciding panel; of several, the first.
    `played` are the arms that were searched; the others stay as they are. Raises
    DataError where the search has not ended.
    """
    deciding = next(iter(study.panels))
    # A search is played on one seed, so that an arm has one outcome.
    rates = {one.arm: one.panels[deciding]["success"] for one in found.outcomes}
    arms: dict[str, Mapping[str, Any]] = {**study.arms}
    chosen = []
    for arm in played:
        values = study.arms[arm]
        names = {value: f"{arm}-{value:g}" for value in search.values}
        if not all(name in rates for name in names.values()):
            raise DataError(f"{arm}: the search of {search.path} has not ended")
        best = max(search.values, key=lambda value: rates[names[value]])
        arms[arm] = overlay(values, nest(search.path, best))
        chosen.append(f"{arm} {best:g}")
    rule = f"{search.path}, searched on seed {search.seed}: {', '.join(chosen)}"
    return replace(study, arms=arms, search=None), rule


def too_wide(found: StudyResults, width: float) -> bool:
    """Whether a gain on the deciding panel has an interval that is not narrower."""
    deciding = next(iter(found.study["panels"]))
    for one in found.differences:
        # The width is in points, and only shares are.
        if one.panel != deciding or not one.is_share:
            continue
        if one.low is None or one.high is None:
            return True
        # Equal gains of a few seeds say nothing of others.
        equal = one.low == one.high and len(one.seeds) < FEWEST_SEEDS
        if equal or one.high - one.low >= width:
            return True
    return False
