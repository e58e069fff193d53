"""What the tables and pictures of one regime show, computed from results.json alone.
Pure functions; shares become percent here.

Seeds are paired: a seed means the same start and the same order of tasks for every
method. So a method is compared with the reference seed by seed, and the test is over
seeds; over games it only says whether these very policies differ.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from reproduce_results import Results, Run, Scores, Start

from agentcli.evaluation.statistics import (
    area_under,
    clustered_bootstrap,
    least_signed_rank_p,
    mcnemar_exact,
    paired_bootstrap,
    paired_t,
    steps_to_level,
    wilcoxon_exact,
    wilson,
)

LEVELS = (5, 10, 15)
"""Points above the start."""
WINDOW = 5
"""Iterations whose mean counts: single ones scatter by ten points."""
STARTS = {"start": "", "start, in several copies": "dpepo-"}
"""The policy before training in its two forms, by the prefix of its labels."""


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
        """What all others are compared with."""
        return self.methods[0]

    def of(self, method: str) -> list[Run]:
        """Its runs, by seed."""
        return [
            self.runs[method, seed]
            for seed in self.seeds
            if (method, seed) in self.runs
        ]

    def scores(self, row: str, label: str, seed: int) -> Scores | None:
        """Of a method, or of one form of the start."""
        if row in STARTS:
            start = self.starts.get(seed)
            return start.evaluations.get(STARTS[row] + label) if start else None
        run = self.runs.get((row, seed))
        return run.evaluations.get(label) if run else None


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
    """In the order in which they appear. `reference` leads where it is among the
    methods, else the first does.
    """
    found = []
    for name in dict.fromkeys(run.regime for run in results.runs):
        runs = {
            (run.method, run.seed): run for run in results.runs if run.regime == name
        }
        methods = list(dict.fromkeys(method for method, _ in runs))
        methods.sort(key=lambda method: method != reference)
        starts = {start.seed: start for start in results.starts if start.regime == name}
        found.append(
            Regime(
                name,
                results,
                tuple(methods),
                tuple(sorted({seed for _, seed in runs})),
                runs,
                starts,
            )
        )
    return found


def measures() -> list[Measure]:
    """Those that are compared over seeds."""
    return [
        Measure(
            "Held-out success, sampled at T = 1",
            "%",
            lambda regime, run: percent(run.evaluations.get("L0")),
        ),
        Measure(
            "Held-out success, greedy",
            "%",
            lambda regime, run: percent(run.evaluations.get("L0-greedy")),
        ),
        Measure(
            "Area under the curve: mean success of trajectories from scratch", "%", area
        ),
        *(to_level(points) for points in LEVELS),
    ]


def percent(scores: Scores | None) -> float | None:
    """A rate in percent."""
    return None if scores is None else 100 * scores.rate


def area(regime: Regime, run: Run) -> float:
    """Mean over iterations, in percent."""
    return 100 * area_under(run.iterations.success)


def to_level(points: int) -> Measure:
    """Environment steps until the mean success of WINDOW iterations is `points` above
    the start's on L0 at T = 1, in the form that the loop samples in.
    """

    def reached(regime: Regime, run: Run) -> float | None:
        start = regime.scores(start_of(run), "L0", run.seed)
        if start is None:
            return None
        level = start.rate + points / 100
        return steps_to_level(
            run.iterations.success, run.iterations.steps, level, WINDOW
        )

    return Measure(f"Environment steps to start + {points} points", "steps", reached)


def start_of(run: Run) -> str:
    """The row of the start in the form that a loop samples in: dpepo acts in several
    copies.
    """
    return "start, in several copies" if run.method.startswith("dpepo") else "start"


def by_seed(regime: Regime, measure: Measure, method: str) -> list[float | None]:
    """One value for each seed of the regime; None where there is no run, or no value."""
    found = (regime.runs.get((method, seed)) for seed in regime.seeds)
    return [None if run is None else measure.of(regime, run) for run in found]


def compare(
    reference: Sequence[float | None], other: Sequence[float | None]
) -> Comparison | None:
    """Over the seeds where both have a value; None where there is no such seed."""
    pairs = [
        (a, b)
        for a, b in zip(reference, other, strict=True)
        if a is not None and b is not None
    ]
    if not pairs:
        return None
    differences = [b - a for a, b in pairs]
    mean, low, high = paired_t(differences)
    return Comparison(
        len(pairs),
        mean,
        low,
        high,
        wilcoxon_exact(differences),
        least_signed_rank_p(len(pairs)),
    )


def games(
    regime: Regime, row: str, label: str, kind: str | None = None
) -> dict[tuple[int, int], list[float]]:
    """The samples of every game, by (seed, place in the panel): a game of one seed is
    another task than that of another seed.
    """
    found = {}
    for seed in regime.seeds:
        scores = regime.scores(row, label, seed)
        if scores is None:
            continue
        for place, task_kind in enumerate(regime.results.panels[scores.panel].kinds):
            if kind in (None, task_kind):
                won = scores.successes[place]
                found[seed, place] = [1.0] * won + [0.0] * (scores.samples - won)
    return found


def rate(samples: dict[tuple[int, int], list[float]]) -> tuple[float, float, float]:
    """(rate, low, high) over games in percent: Wilson where each has one sample, else a
    bootstrap by game.
    """
    values = list(samples.values())
    total, won = sum(map(len, values)), int(sum(map(sum, values)))
    single = all(len(own) == 1 for own in values)
    low, high = wilson(won, total) if single else clustered_bootstrap(values)
    return 100 * won / max(1, total), 100 * low, 100 * high


def over_games(
    reference: dict[tuple[int, int], list[float]],
    other: dict[tuple[int, int], list[float]],
) -> tuple[float, float, float, float | None] | None:
    """(difference, low, high) in points over the games of both, and McNemar's p where
    each has one sample; None without any.
    """
    common = [game for game in reference if game in other]
    if not common:
        return None
    before, after = (
        [reference[game] for game in common],
        [other[game] for game in common],
    )
    difference, low, high = paired_bootstrap(before, after)
    single = all(len(own) == 1 for own in before + after)
    p = (
        mcnemar_exact([own[0] > 0 for own in before], [own[0] > 0 for own in after])
        if single
        else None
    )
    return 100 * difference, 100 * low, 100 * high, p


def quarters(values: Sequence[float | None], parts: int = 4) -> list[float | None]:
    """Means of equal parts of a loop, of the iterations that have a value; as many
    parts as iterations at most.
    """
    count = min(parts, len(values))
    cut = [
        values[len(values) * part // count : len(values) * (part + 1) // count]
        for part in range(count)
    ]
    known = [[value for value in part if value is not None] for part in cut]
    return [fmean(part) if part else None for part in known]
