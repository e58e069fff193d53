"""results.json: every seed's figures, enough for all tables and pictures.

The file is one JSON object:

    format      1
    panels      by sha256: name, kinds (the task type of every game; games are in the
                order of their sorted ids)
    settings    by regime: the settings that all its runs share, by path ("train.clip":
                0.2)
    starts      the policies before training, one for each regime and seed: their
                scores, and `policy`, the sha256 of the weights
    runs        one loop each, by regime, method (a name of reproduce_small.sh's table)
                and seed

The classes below say what stands in each. Lists of a run hold one value for each
iteration; shares and rates are 0 to 1.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from agentcli.errors import DataError
from agentcli.records.files import read_json, write_atomic

FORMAT = 1


class Part(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Base of everything in the file: unknown fields are refused."""


class PanelGames(Part, kw_only=True):
    """A panel, reduced to what tables need."""

    name: str
    kinds: list[str]
    """One for each game."""


class Scores(Part, kw_only=True):
    """One evaluation of a whole panel."""

    panel: str
    """Its sha256."""
    samples: int
    """Episodes of each game, n of them in all games together."""
    n: int
    rate: float
    low: float
    high: float
    """The 95 % interval over games."""
    successes: list[int]
    """For each game, of `samples`; the games are in the panel's order in this file."""
    repetitive: float
    inadmissible: float
    """Shares of the moves."""


class Start(Part, kw_only=True):
    """A policy before training."""

    regime: str
    seed: int
    policy: str
    """sha256 of the weights."""
    evaluations: dict[str, Scores]
    """By label; those that begin with dpepo- acted in several copies."""


class Iterations(Part, kw_only=True):
    """The course of a loop. The first iteration sampled from the start."""

    success: list[float]
    """Of the trajectories from scratch, on training games: all of a tree without forks,
    else the first M (N0), without their forks. These are draws of the policy; other
    leaves of a tree that forks are not.
    """
    leaves: list[int]
    steps: list[int]
    """Environment steps that each iteration paid for."""
    entropy: list[float | None]
    """Nats per token, mean over the tokens trained on; None where nothing was."""
    advantage_min: list[float | None]
    advantage_max: list[float | None]
    repetitive: list[float]
    inadmissible: list[float]
    """Shares of the moves of all leaves; a step that several leaves share counts once
    for each.
    """


class Run(Part, kw_only=True):
    """One loop that has ended."""

    regime: str
    method: str
    seed: int
    start: str
    """sha256 of the weights that the loop started from."""
    settings: dict[str, Any]
    """Those that not all runs of the regime share, by path."""
    git_commit: str | None
    day: str | None = None
    """When the loop ended, YYYY-MM-DD."""
    machine: str | None = None
    """The processor of the machine that collected it."""
    iterations: Iterations
    evaluations: dict[str, Scores]
    """By label. The settings of a panel follow from it: L0 is sampled at T = 1,
    L0-greedy at T = 0.
    """
    ledger: dict[str, int]
    """Summed over the loop: leaves, steps, forks, tokens, ..."""
    trees: int
    updated: int
    """Responses that had a gradient."""
    given: int
    """Responses that were sampled and have a line of credit."""
    updates: int
    """Of the optimiser."""
    train_seconds: float | None


class Results(Part, kw_only=True):
    """The whole file."""

    format: int = FORMAT
    panels: dict[str, PanelGames]
    settings: dict[str, dict[str, Any]]
    starts: list[Start]
    runs: list[Run]


@dataclass(frozen=True)
class Selection:
    """Some methods and seeds of the results; None: all."""

    methods: Sequence[str] | None = None
    seeds: Sequence[int] | None = None

    def of(self, results: Results) -> Results:
        """The results with these runs only. Raises DataError where there are none."""

        def has(seed: int) -> bool:
            return self.seeds is None or seed in self.seeds

        runs = []
        for run in results.runs:
            if has(run.seed) and (self.methods is None or run.method in self.methods):
                runs.append(run)
        if not runs:
            raise DataError("--methods, --seeds: the results hold no such run")
        starts = [start for start in results.starts if has(start.seed)]
        return msgspec.structs.replace(results, runs=runs, starts=starts)


def load(paths: Sequence[Path]) -> Results:
    """The files as one. Raises DataError for a damaged file, and for two that say
    different things of one run.
    """
    return merge([(str(path), read_json(path, Results)) for path in paths])


def save(path: Path, results: Results) -> None:
    """Short lists on one line each would need a formatter of our own: one line for each
    run is what `git diff` can read.
    """
    plain = msgspec.to_builtins(factored(results))
    lines = [f'{{"format": {FORMAT},']
    for name in ("panels", "settings"):
        lines.append(f'"{name}": {_line(plain[name])},')
    for name, end in (("starts", ","), ("runs", "")):
        lines.append(f'"{name}": [')
        lines.append(",\n".join(_line(part) for part in plain[name]))
        lines.append(f"]{end}")
    write_atomic(path, ("\n".join(lines) + "\n}\n").encode())


def merge(files: Sequence[tuple[str, Results]]) -> Results:
    """All runs of all files, in their order; what is there twice must be equal. Raises
    DataError.
    """
    whole = Results(panels={}, settings={}, starts=[], runs=[])
    for name, part in files:
        if part.format != FORMAT:
            raise DataError(
                f"{name}: format: is {part.format}, not {FORMAT}; write it again with "
                "reproduce_collect.py"
            )
        whole.panels |= part.panels
        complete = expanded(part)
        whole.starts = _joined(
            name,
            whole.starts,
            complete.starts,
            lambda start: f"start of {start.regime}, seed {start.seed}",
        )
        whole.runs = _joined(
            name,
            whole.runs,
            complete.runs,
            lambda run: f"{run.method} of {run.regime}, seed {run.seed}",
        )
    _check(whole)
    return factored(whole)


def expanded(results: Results) -> Results:
    """Every run with all its settings."""
    runs = [
        msgspec.structs.replace(
            run, settings=results.settings.get(run.regime, {}) | run.settings
        )
        for run in results.runs
    ]
    return msgspec.structs.replace(results, settings={}, runs=runs)


def factored(results: Results) -> Results:
    """Settings that all runs of a regime share stand once."""
    complete = expanded(results)
    shared: dict[str, dict[str, Any]] = {}
    for run in complete.runs:
        common = shared.setdefault(run.regime, dict(run.settings))
        shared[run.regime] = {
            path: value
            for path, value in common.items()
            if path in run.settings and run.settings[path] == value
        }
    runs = []
    for run in complete.runs:
        differing = {
            path: value
            for path, value in run.settings.items()
            if path not in shared[run.regime]
        }
        runs.append(msgspec.structs.replace(run, settings=differing))
    return msgspec.structs.replace(complete, settings=shared, runs=runs)


def _joined(file: str, known: list[Any], more: Iterable[Any], name: Any) -> list[Any]:
    by_name = {name(part): part for part in known}
    for part in more:
        before = by_name.setdefault(name(part), part)
        if before != part:
            raise DataError(
                f"{file}: {name(part)}: another file tells it differently; give only "
                "one of the two"
            )
    return list(by_name.values())


def _check(results: Results) -> None:
    """Raises DataError unless the runs of a seed began alike and every evaluation has
    its panel.
    """
    begun = {(start.regime, start.seed): start.policy for start in results.starts}
    for run in results.runs:
        policy = begun.setdefault((run.regime, run.seed), run.start)
        if policy != run.start:
            raise DataError(
                f"{run.method} of {run.regime}, seed {run.seed}: start: is another "
                "policy than other runs of this seed started from; compare them in "
                "tables of their own"
            )
    for part in (*results.starts, *results.runs):
        for label, scores in part.evaluations.items():
            games = results.panels.get(scores.panel)
            if games is None or len(games.kinds) != len(scores.successes):
                raise DataError(
                    f"seed {part.seed} of {part.regime}: {label}: its panel is missing "
                    "or of another length"
                )


def _line(value: Any) -> str:
    return msgspec.json.encode(value).decode()
