"""compare with several runs a side: gains over seeds, beside those over games.

A side is one way to train, played with several seeds. Runs of two sides are paired by
their seed, and must have the same panels. Gains over seeds are those of a study
(study.py). For gains over games the seeds of a side are samples of one policy.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import get_args

from agentcli.analysis import compare
from agentcli.analysis.study import add_loop, differences, holds_all, measured, unlike
from agentcli.errors import DataError, UsageError
from agentcli.evaluation.compare import RunComparison
from agentcli.records.grouping import grouped
from agentcli.records.runs import RunDirectory, loop_folders
from agentcli.records.study import ArmOutcome, Measured, Spent
from agentcli.records.types import Episode
from agentcli.reports.standing import Progress
from agentcli.reports.tables import is_graded


def compare_sides(
    sides: Sequence[compare.Side], labels: Sequence[str], progress: Progress
) -> RunComparison:
    """Compares every side with the first, seed by seed.

    Loops are compared if all runs are loops that ended, unless labels were requested.
    Notes list what only some runs have. Raises UsageError where seeds or panels do not
    match, DataError where a run is missing or damaged, or nothing can be compared.
    """
    if len(sides) < 2:
        raise UsageError(
            f"{sides[0].name} is one side; compare needs two or more: agentcli compare "
            "'runs/a-*' 'runs/b-*'"
        )
    compare.check_places([run for side in sides for run in side.runs])
    paired = {side.name: _by_seed(side) for side in sides}
    _refuse_unlike_seeds(paired)
    first = sides[0].name
    outcomes = {
        run: ArmOutcome(arm=name, seed=seed, panels={})
        for name, runs in paired.items()
        for seed, run in runs.items()
    }
    places = list(outcomes)
    notes: list[str] = []
    files = compare.evaluations_of(places, labels, notes)
    comparison = RunComparison(first=first, evaluations={})
    # Before `every`: the generator fills the panels of `outcomes` as it is read.
    compare.add_evaluations(
        comparison, _evaluations(paired, files, outcomes, notes), notes
    )
    if not labels and _are_loops(places, notes):
        for run, outcome in outcomes.items():
            add_loop(outcome, run)
    every = list(outcomes.values())
    comparison.sides = {
        name: list(map(str, runs.values())) for name, runs in paired.items()
    }
    comparison.differences = list(differences(every, first, _began(every)))
    comparison.unlike = list(unlike(every, first, get_args(Spent)))
    if not comparison.differences:
        raise compare.nothing_in_common(paired, "loops that ended", places, notes)
    # Only now: where nothing can be compared, they are part of the error.
    for note in notes:
        progress.note(note)
    return comparison


def _by_seed(side: compare.Side) -> dict[int, Path]:
    """The runs of a side by their seed, in its order.

    Raises UsageError for a seed that is there twice, and for what is no directory.
    """
    runs: dict[int, Path] = {}
    for run in side.runs:
        if not run.is_dir():
            raise UsageError(
                f"{run}: is an evaluation; a side of several runs names run directories"
            )
        seed = _seed_of(run)
        if seed in runs:
            raise UsageError(
                f"{run} has seed {seed} as {runs[seed]} has; runs are paired by their "
                "seed, so a side has one of each"
            )
        runs[seed] = run
    # By seed, so that the runs of the sides can be zipped.
    return dict(sorted(runs.items()))


def _seed_of(run: Path) -> int:
    """The seed that a run's first stage was begun with, evaluations last.

    Raises DataError where no stage has ended.
    """
    stages = RunDirectory(run).load_manifest().stages
    # An evaluation may have been given a seed of its own.
    own = [name for name in stages if not name.startswith("evaluation/")]
    for name in (*own, *stages):
        return stages[name].seed
    raise DataError(
        f"{run}: no stage of this run has ended, so its seed is not known; go on with "
        "the command that began it and --resume"
    )


def _refuse_unlike_seeds(paired: Mapping[str, Mapping[int, Path]]) -> None:
    """Raises UsageError unless every side has the seeds of the first."""
    first, *others = paired
    for name in others:
        if paired[name].keys() != paired[first].keys():
            raise UsageError(
                f"{name}: seeds {_listed(paired[name])}, not the "
                f"{_listed(paired[first])} of {first}; runs are paired by their seed: "
                "name one run of each seed on every side"
            )


def _listed(seeds: Mapping[int, Path]) -> str:
    return ", ".join(map(str, seeds))


def _evaluations(
    paired: Mapping[str, Mapping[int, Path]],
    files: Mapping[str, Sequence[Path]],
    outcomes: Mapping[Path, ArmOutcome],
    notes: list[str],
) -> Iterator[tuple[str, dict[str, list[Episode]]]]:
    """Every label with the episodes of each side; adds the measures to `outcomes`.

    files: label -> the episodes of each run, in the order of `outcomes`. Raises
    UsageError where the runs of one seed did not play the same tasks.
    """
    for label, paths in files.items():
        read = {
            run: compare.read_whole(path)
            for run, path in zip(outcomes, paths, strict=True)
        }
        for runs in zip(
            *(of_side.values() for of_side in paired.values()), strict=True
        ):
            # Rates of a part of the panel are not compared with those of the whole.
            walked = {
                str(run): compare.WalkedTasks(read[run].tasks, cut=False)
                for run in runs
            }
            compare.refuse_unlike(walked, f"evaluation {label}", len(files) > 1)
        summaries = {
            str(path): one.summary
            for path, one in zip(paths, read.values(), strict=True)
        }
        notes.extend(compare.unlike_play(summaries))
        measures: list[Measured] = ["success"]
        if any(is_graded(one.summary) for one in read.values()):
            measures.append("score")
        for run, one in read.items():
            outcomes[run].panels[label] = measured(one.summary, measures)
        pooled = {}
        for name, of_side in paired.items():
            pooled[name] = [row for run in of_side.values() for row in read[run].rows]
        yield label, pooled


def _are_loops(places: Sequence[Path], notes: list[str]) -> bool:
    """Whether all are loops that ended; a note says which is not, if some are."""
    lacking = [place for place in places if not holds_all(place)]
    if lacking and any(map(loop_folders, places)):
        notes.append(f"loops are left out: {lacking[0]} holds no loop that has ended")
    return not lacking


def _began(outcomes: Sequence[ArmOutcome]) -> dict[tuple[str, int], float]:
    """The success that levels lie above: (side, seed) -> share.

    It is that of the first iterations of all sides with this seed: they sample from the
    policies that were begun with, before any update.
    """
    firsts = grouped((one.seed, one.course[0]) for one in outcomes if one.course)
    return {
        (one.arm, one.seed): fmean(firsts[one.seed]) for one in outcomes if one.course
    }
