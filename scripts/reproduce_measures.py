"""The numbers behind the tables and pictures of one regime, from results.json alone.

Pure functions; shares become percent here.

Seeds are paired: a seed means the same start and the same order of tasks for every
method. So a method is compared with the reference seed by seed, and the test is over
seeds; over games it only says whether these very policies differ.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple, TypeAlias

from reproduce_results import Results, Run, Scores, Start

from agentcli.evaluation.seeds import (
    area_under,
    least_signed_rank_p,
    paired_t,
    steps_to_level,
)
from agentcli.evaluation.statistics import (
    clustered_bootstrap,
    mcnemar_exact,
    paired_bootstrap,
    wilcoxon_exact,
    wilson,
)

LEVELS = (5, 10, 15)
"""Points above the start."""
WINDOW = 5
"""Iterations whose mean counts: single ones scatter by ten points."""
STARTS = {"start": "", "start, in several copies": "dpepo-"}
"""The policy before training in its two forms, by the prefix of its labels."""

Games: TypeAlias = dict[tuple[int, int], list[float]]
"""The samples of every game, by (seed, place in the panel): a game of one seed is
another task than that of another seed.
"""


class Interval(NamedTuple):
    """A value with its 95 % interval, in percent or points."""

    value: float
    low: float
    high: float


class GamesTest(NamedTuple):
    """The difference over the games of two policies."""

    gain: Interval
    mcnemar: float | None
    """None where a game has several samples."""


@dataclass(frozen=True)
class Regime:
    """The runs of one regime; the first method is the reference."""

    name: str
    results: Results
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    runs: dict[tuple[str, int], Run]
    starts: dict[int, Start]

    @property
    def reference(self) -> str:
        """The method that all others are compared with."""
        return self.methods[0]

    @property
    def kinds(self) -> list[str]:
        """The task types of L0, sorted."""
        kinds: set[str] = set()
        for run in self.runs.values():
            if "L0" in run.evaluations:
                kinds.update(self.results.panels[run.evaluations["L0"].panel].kinds)
        return sorted(kinds)

    def of(self, method: str) -> list[Run]:
        """The runs of a method, by seed."""
        runs = [self.runs.get((method, seed)) for seed in self.seeds]
        return [run for run in runs if run is not None]

    def scores(self, row: str, label: str, seed: int) -> Scores | None:
        """The scores of a method, or of one form of the start."""
        policy: Run | Start | None = self.runs.get((row, seed))
        if row in STARTS:
            policy = self.starts.get(seed)
            label = STARTS[row] + label
        return None if policy is None else policy.evaluations.get(label)


@dataclass(frozen=True)
class Measure:
    """One number of a run."""

    name: str
    unit: str
    of: Callable[[Regime, Run], float | None]
    """None: there is none, for instance because a level was not reached."""


@dataclass(frozen=True)
class Comparison:
    """Paired differences over seeds, other minus reference."""

    pairs: int
    mean: float
    low: float
    high: float
    p: float
    least_p: float
    """The smallest that so many pairs can give."""


def regimes(results: Results, reference: str = "grpo") -> list[Regime]:
    """The regimes in the order in which they appear.

    `reference` leads where it is among the methods, else the first does.
    """
    return [
        _regime(name, results, reference)
        for name in dict.fromkeys(run.regime for run in results.runs)
    ]


def _regime(name: str, results: Results, reference: str) -> Regime:
    starts = [start for start in results.starts if start.regime == name]
    runs = [run for run in results.runs if run.regime == name]
    methods = dict.fromkeys(run.method for run in runs)
    return Regime(
        name=name,
        results=results,
        methods=tuple(sorted(methods, key=lambda method: method != reference)),
        seeds=tuple(sorted({run.seed for run in runs})),
        runs={(run.method, run.seed): run for run in runs},
        starts={start.seed: start for start in starts},
    )


def measures() -> list[Measure]:
    """The measures that are compared over seeds."""
    return [
        held_out("Held-out success, sampled at T = 1", "L0"),
        held_out("Held-out success, greedy", "L0-greedy"),
        Measure(
            "Area under the curve: mean success of trajectories from scratch", "%", area
        ),
        *(to_level(points) for points in LEVELS),
    ]


def held_out(name: str, label: str) -> Measure:
    """The rate of an evaluation, in percent."""

    def percent(regime: Regime, run: Run) -> float | None:
        scores = run.evaluations.get(label)
        return None if scores is None else 100 * scores.rate

    return Measure(name, "%", percent)


def area(regime: Regime, run: Run) -> float:
    """Mean over iterations, in percent."""
    return 100 * area_under(run.iterations.success)


def to_level(points: int) -> Measure:
    """Environment steps until the mean success of WINDOW iterations is at a level.

    The level is `points` above the start's success on L0 at T = 1, in the form that the
    loop samples in.
    """

    def reached(regime: Regime, run: Run) -> float | None:
        start = regime.scores(start_of(run), "L0", run.seed)
        if start is None:
            return None
        level = start.rate + points / 100
        course = run.iterations
        return steps_to_level(course.success, course.steps, level, WINDOW)

    return Measure(f"Environment steps to start + {points} points", "steps", reached)


def start_of(run: Run) -> str:
    """The row of the start in the form that a loop samples in."""
    # dpepo acts in several copies of the environment.
    return "start, in several copies" if run.method.startswith("dpepo") else "start"


def by_seed(regime: Regime, measure: Measure, method: str) -> list[float | None]:
    """One value for each seed of the regime; None where there is no run, or no value."""
    runs = [regime.runs.get((method, seed)) for seed in regime.seeds]
    return [None if run is None else measure.of(regime, run) for run in runs]


def compare(
    reference: Sequence[float | None], other: Sequence[float | None]
) -> Comparison | None:
    """Compares over the seeds where both have a value; None where there is none."""
    differences = []
    for before, after in zip(reference, other, strict=True):
        if before is not None and after is not None:
            differences.append(after - before)
    if not differences:
        return None
    mean, low, high = paired_t(differences)
    pairs = len(differences)
    return Comparison(
        pairs=pairs,
        mean=mean,
        low=low,
        high=high,
        p=wilcoxon_exact(differences),
        least_p=least_signed_rank_p(pairs),
    )


def games(regime: Regime, row: str, label: str, kind: str | None = None) -> Games:
    """The samples of a method, or of one form of the start, on all games of a kind."""
    samples = {}
    for seed in regime.seeds:
        scores = regime.scores(row, label, seed)
        if scores is None:
            continue
        for place, task_kind in enumerate(regime.results.panels[scores.panel].kinds):
            if kind in (None, task_kind):
                won = scores.successes[place]
                lost = scores.samples - won
                samples[seed, place] = [1.0] * won + [0.0] * lost
    return samples


def rate(samples: Games) -> Interval:
    """The rate over games: Wilson where each has one sample, else a bootstrap by game."""
    values = list(samples.values())
    total = sum(map(len, values))
    won = int(sum(map(sum, values)))
    low, high = wilson(won, total) if single(values) else clustered_bootstrap(values)
    return Interval(100 * won / max(1, total), 100 * low, 100 * high)


def over_games(reference: Games, other: Games) -> GamesTest | None:
    """The gain over the games of both, tested by game; None without any."""
    common = [game for game in reference if game in other]
    if not common:
        return None
    before = [reference[game] for game in common]
    after = [other[game] for game in common]
    gain = Interval(*(100 * value for value in paired_bootstrap(before, after)))
    mcnemar = None
    if single(before + after):
        solved_before = [samples[0] > 0 for samples in before]
        solved_after = [samples[0] > 0 for samples in after]
        mcnemar = mcnemar_exact(solved_before, solved_after)
    return GamesTest(gain, mcnemar)


def single(values: Sequence[Sequence[float]]) -> bool:
    """Whether every game has one sample."""
    return all(len(samples) == 1 for samples in values)


def quarters(values: Sequence[float | None], parts: int = 4) -> list[float | None]:
    """Means of equal parts of a loop, of the iterations that have a value.

    There are at most as many parts as iterations.
    """
    count = min(parts, len(values))
    means: list[float | None] = []
    for part in range(count):
        begin = len(values) * part // count
        end = len(values) * (part + 1) // count
        known = [value for value in values[begin:end] if value is not None]
        means.append(fmean(known) if known else None)
    return means
