"""Credit in tunnels: bias, variance and direction of every method's gradient.

Each method is sampled with its own trees, by the real exploration, and credited by its
real function. Methods whose trees grow alike share them. A tunnel's exact gradient is
known (worlds/tunnel/exact.py). What was measured is passed over, so that a study that
was killed goes on; the same file gives the same bytes.

Beside the measured figures stand those of theory, where there are any. Two closed forms
hold for independent trajectories. An unbiased advantage gives the gradient itself:
rloo's (Kool et al. 2019), and ppo's with exact values (Schulman et al. 2016). In a group
of n outcomes of which k are successes, grpo's advantages are (1 - k/n) / s and
-(k/n) / s. So its mean is the gradient times

    E[ k (n - k) / (n^2 (s + 1e-6)) ] / (p (1 - p)),   k ~ Bin(n, p),

where s^2 = k (n - k) / (n (n - 1)); groups without spread, k = 0 or n, add nothing. In a
small tunnel the mean of any method is exact: all trees that can grow are grown, by the
real exploration, and credited, each with its probability.
"""

import asyncio
import hashlib
import math
import multiprocessing
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import astuple

from agentcli.analysis.policy_gradients import (
    Logits,
    MeasuredArm,
    Pushes,
    appraise,
    arm_of,
    check_shared_settings,
    deviation,
    environment_of,
    estimates,
    objective_gradient,
    why_not,
)
from agentcli.analysis.study import difference
from agentcli.analysis.tabular import Choose, Field, TabularPolicy
from agentcli.credit.group import EPSILON
from agentcli.credit.registry import known
from agentcli.errors import DataError, UsageError, prefixed
from agentcli.records.credit_quality import (
    CreditQuality,
    Estimate,
    Foretold,
    QualityCell,
    Tunnels,
)
from agentcli.records.files import read_json, write_json, writing
from agentcli.records.kernel import die_with_parent
from agentcli.records.section import read
from agentcli.records.study import SeedDifference, seeds_of
from agentcli.records.types import Tree
from agentcli.registry import own_files
from agentcli.reports.output import print_preview
from agentcli.reports.standing import Progress, Standing
from agentcli.stages.yaml_files import read_yaml
from agentcli.worlds.tunnel.exact import Row
from agentcli.worlds.tunnel.rules import Tunnel

KEYS = ("tunnels", "knobs", "methods")
"""The keys by which a study's file is one of this kind."""
DIGITS = 6
"""Significant digits of a figure. Sums may be added up in another order elsewhere."""
ROUNDING = 1e-12
"""Advantages and theory's figures that are smaller are 0."""
NO_GRADIENT = "the policy's gradient is 0 there, so nothing points along it"
NO_ADVANTAGE = "no advantage of it moves the policy"
TOO_FEW = "too few updates had an advantage to say how sure its figures are"


class QualityJob(NamedTuple):
    """Methods that share their trees, in one tunnel with the policy of one seed."""

    tunnel: str
    methods: tuple[str, ...]
    seed: int


@dataclass
class QualityPlan:
    """A study that is ready to begin."""

    study: Tunnels
    out: Path
    methods: list[str]
    seeds: list[int]
    jobs: list[QualityJob] = field(default_factory=list)
    """All jobs, with what was measured before."""

    def file(self, tunnel: str, method: str, seed: int) -> Path:
        """The file of a cell. Its name has a digest of all that the cell depends on."""
        study = self.study
        place = msgspec.structs.replace(study.places()[tunnel], about="")
        # What no cell depends on is blank, so that changing it measures nothing again.
        # Budgets only scale figures afterwards (QualityCell.cosine_at).
        kept = msgspec.structs.replace(
            study,
            title="",
            about="",
            seeds="0",
            tunnels={tunnel: place},
            knobs={},
            equal="steps",
            budget=1,
            methods={method: study.methods[method]},
        )
        digest = hashlib.sha256(msgspec.json.encode(kept, order="sorted"))
        given = study.methods[method]
        code = (given.credit.get("method", method), given.rollout.get("method", ""))
        for path in own_files(*code):
            digest.update(path.read_bytes())
        name = f"{tunnel}.{method}.{seed}-{digest.hexdigest()[:8]}.json"
        return self.out / "cells" / name

    def left(self) -> Iterator[QualityJob]:
        """The jobs with the methods that are not measured yet."""
        for job in self.jobs:
            methods = []
            for name in job.methods:
                if not _is_measured(self.file(job.tunnel, name, job.seed)):
                    methods.append(name)
            if methods:
                yield job._replace(methods=tuple(methods))


def _is_measured(file: Path) -> bool:
    """Whether a cell can be read; a damaged one is measured again."""
    try:
        read_json(file, QualityCell)
    except DataError:
        return False
    return True


def has_tunnels(path: Path) -> bool:
    """Whether a study's file is of this kind. Raises UsageError for unreadable YAML."""
    return any(key in read_yaml(path) for key in KEYS)


def plan(
    path: Path, out: Path, *, only: Sequence[str] = (), seeds: str | None = None
) -> QualityPlan:
    """The study of a file. Raises UsageError for settings that nothing would take.

    `only` are the methods that are measured; with knobs, the reference is too.
    """
    study = read(read_yaml(path), Tunnels, f"{path}: ")
    unknown = [name for name in only if name not in study.methods]
    if unknown:
        raise UsageError(f"--only {unknown[0]}: there are {', '.join(study.methods)}")
    chosen = {*(only or study.methods)}
    if study.knobs:
        chosen.add(study.reference)
    methods = [name for name in study.methods if name in chosen]
    check_shared_settings(study, path)
    place = "seeds" if seeds is None else "--seeds"
    made = QualityPlan(study, out, methods, seeds_of(seeds or str(study.seeds), place))
    for tunnel, choice in study.places().items():
        key = "tunnels" if tunnel in study.tunnels else "knobs"
        environment_of(choice, f"{path}: {key}.{tunnel}")
        sharing: dict[bytes, list[str]] = {}
        for name in methods:
            with prefixed(str(path), UsageError):
                arm = arm_of(study, name, choice)
            growth = msgspec.json.encode(arm.rollout)
            sharing.setdefault(growth, []).append(name)
        for seed in made.seeds:
            for names in sharing.values():
                made.jobs.append(QualityJob(tunnel, tuple(names), seed))
    return made


def perform(made: QualityPlan, jobs: int, progress: Progress) -> CreditQuality:
    """Measures what is left, in `jobs` processes, and returns all cells in order."""
    with writing(made.out):
        (made.out / "cells").mkdir(parents=True, exist_ok=True)
    every = sum(len(job.methods) for job in made.jobs)
    left = list(made.left())
    missing = sum(len(job.methods) for job in left)
    progress.start(Standing("credit quality", every, every - missing))
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(jobs, context, initializer=end_with_parent) as pool:
            running = [pool.submit(measure, made.study, job) for job in left]
            try:
                for task in as_completed(running):
                    for cell in task.result():
                        file = made.file(cell.tunnel, cell.method, cell.seed)
                        # Written at once, so that an interrupted study goes on from
                        # here.
                        write_json(file, cell)
                        progress.advance()
            except BaseException:
                # Leaving the block alone would wait for all jobs that are queued.
                pool.shutdown(cancel_futures=True)
                raise
    finally:
        progress.stop()
    cells = []
    for tunnel in made.study.places():
        for method in made.methods:
            for seed in made.seeds:
                file = made.file(tunnel, method, seed)
                cells.append(read_json(file, QualityCell))
    return CreditQuality(
        study=msgspec.to_builtins(made.study),
        cells=cells,
        differences=list(turned(made, cells)),
    )


def turned(made: QualityPlan, cells: Sequence[QualityCell]) -> Iterator[SeedDifference]:
    """What each method gains over the first one, for every setting of a knob."""
    study = made.study
    measure = f"cosine at {study.budget} {study.equal}"
    cosines: dict[tuple[str, str], dict[int, float]] = {}
    for cell in cells:
        cosine = cell.cosine_at(study.budget, study.equal)
        if cosine is not None:
            cosines.setdefault((cell.tunnel, cell.method), {})[cell.seed] = cosine
    reference = study.reference
    others = [name for name in made.methods if name != reference]
    for name, knob in study.knobs.items():
        for tunnel, _ in knob.settings(name):
            before = cosines.get((tunnel, reference), {})
            for method in others:
                after = cosines.get((tunnel, method), {})
                seeds = sorted({*before} & {*after})
                if seeds:
                    yield difference(
                        tunnel,
                        measure,
                        method,
                        seeds,
                        [before[seed] for seed in seeds],
                        [after[seed] for seed in seeds],
                    )


def preview(made: QualityPlan, file: Path, *, json: bool) -> None:
    """Prints what is left to measure."""
    every = sum(len(job.methods) for job in made.jobs)
    left = sum(len(job.methods) for job in made.left())
    names = ["credit-quality.json", "credit-quality.md"]
    if made.study.knobs and len(made.methods) > 1:
        names.append("credit-map.svg")
    print_preview(
        "study",
        msgspec.to_builtins(made.study),
        {"study": file},
        [str(made.out / name) for name in names],
        {"cells": every, "cells left": left, "groups": left * made.study.groups},
        json=json,
    )


def end_with_parent() -> None:
    """Ends a process of the pool even if the command is killed."""
    if sys.platform == "linux":
        die_with_parent(signal.SIGTERM)


def measure(study: Tunnels, job: QualityJob) -> list[QualityCell]:
    """The cells of one job."""
    choice = study.places()[job.tunnel]
    environment = environment_of(choice, job.tunnel)
    spread = study.spread if choice.spread is None else choice.spread
    skill = study.skill if choice.skill is None else choice.skill
    ground = Field(environment, spread, skill, job.seed)
    arms = {name: arm_of(study, name, choice) for name in job.methods}
    return asyncio.run(_measure(study, job, ground, arms))


async def _measure(
    study: Tunnels, job: QualityJob, ground: Field, arms: dict[str, MeasuredArm]
) -> list[QualityCell]:
    games = [ground.game(index) for index in range(study.groups)]
    counts = Counter(games)
    logits = Logits(ground, counts)
    wins = [ground.exact(game).success for game in games]
    success = float(np.mean(wins))
    cells = {}
    measured = {}
    for name, arm in arms.items():
        cell = QualityCell(
            tunnel=job.tunnel,
            method=name,
            seed=job.seed,
            groups=study.groups,
            success=rounded(success),
            unmeasured=why_not(arm, ground.world.options),
        )
        cells[name] = cell
        if cell.unmeasured is None:
            measured[name] = arm
    if measured:
        # Any of them will do: the methods of a job have equal rollouts (plan).
        trees = await _grown(study.groups, ground, next(iter(measured.values())))
        steps = float(np.mean([tree.ledger.steps for tree in trees]))
        for name, arm in measured.items():
            cells[name].steps = rounded(steps)
            pushes, responses = _pushes(trees, games, ground, logits, arm)
            cells[name].responses = rounded(responses)
            cells[name].unmeasured = _empty(pushes)
            if cells[name].unmeasured is None:
                foretold = await foretell(ground, arm, logits, counts)
                fill(cells[name], pushes, study.update, foretold)
    return list(cells.values())


async def _grown(groups: int, ground: Field, arm: MeasuredArm) -> list[Tree]:
    policy = TabularPolicy(ground.table)
    return [await ground.grow(arm.rollout, index, policy) for index in range(groups)]


def _pushes(
    trees: list[Tree],
    games: list[Tunnel],
    ground: Field,
    logits: Logits,
    arm: MeasuredArm,
) -> tuple[Pushes, float]:
    """What a method makes of every tree, and how many responses of one it updates."""
    facts = known(arm.credit)
    rows = []
    updated = 0
    truths = {}
    for game in set(games):
        truths[game] = logits.vector(objective_gradient(arm, ground.exact(game)))
    for tree, game in zip(trees, games, strict=True):
        if facts.needs_values or facts.needs_scores:
            appraise(tree, game, ground.exact(game))
        credit = arm.assign(tree, arm.switches)
        rows.append(logits.push(tree, credit, arm.aggregate))
        # Advantages that cancel are a rounding error of 1e-17, and update nothing.
        updated += sum(abs(row.advantage or 0.0) > ROUNDING for row in credit.steps)
    pushes = Pushes(
        sums=np.array([push for push, _ in rows]),
        weights=np.array([weight for _, weight in rows]),
        truths=np.array([truths[game] for game in games]),
        length=float(np.mean([ground.exact(game).steps for game in games])),
    )
    return pushes, updated / len(trees)


def _empty(pushes: Pushes) -> str | None:
    """Why there is nothing to compare; None if there is something."""
    if not np.any(pushes.truths.mean(axis=0)):
        return NO_GRADIENT
    return None if np.any(pushes.sums) else NO_ADVANTAGE


def fill(
    cell: QualityCell, pushes: Pushes, update: int, foretold: Foretold | None
) -> None:
    """Puts the figures into a cell, or why there are none."""
    measured = estimates(pushes, update)
    # Without one update all the others may be 0, and nothing can be divided by them.
    if not all(
        map(math.isfinite, chain.from_iterable(map(astuple, measured.values())))
    ):
        cell.unmeasured = TOO_FEW
        return
    for name, one in measured.items():
        number = Estimate(value=rounded(one.value), error=rounded(one.error))
        setattr(cell, name, number)
    if foretold is not None:
        cell.foretold = Foretold(
            source=foretold.source,
            scale=rounded(foretold.scale),
            bias=rounded(foretold.bias),
        )


def rounded(number: float) -> float:
    """A figure as it is stored. A theory's 0 may be a little off by rounding."""
    return float(f"{number:.{DIGITS}g}") if abs(number) > ROUNDING else 0.0


MOST_TREES = 5000
"""More trees than this are not enumerated."""
GRPO_LIKE = ("grpo", "spark", "arpo")
"""They compare a trajectory's outcome within its group."""
RANDOM_GROWTH = ("treerl", "treerpo")
"""Methods that draw the states that they fork."""


async def foretell(
    field: Field, arm: MeasuredArm, logits: Logits, games: Counter[Tunnel]
) -> Foretold | None:
    """Scale and bias by theory; None where there is none.

    `games` are those that are played, with the number of their groups.
    """
    truths = {}
    for game in games:
        truths[game] = logits.vector(objective_gradient(arm, field.exact(game)))
    source = "closed form"
    mean: Row | None = None
    factors = closed_form(field, arm, games)
    if factors is not None:
        rows = [factors[game] * truth for game, truth in truths.items()]
        mean = _mean(rows, games)
    elif len(games) == 1:
        source = "all trees"
        mean = await enumerated(field, arm, logits, next(iter(games)))
    if mean is None:
        return None
    scale, bias = deviation(mean, _mean(list(truths.values()), games))
    return Foretold(source=source, scale=scale, bias=bias)


def _mean(rows: Sequence[Row], games: Counter[Tunnel]) -> Row:
    return np.average(rows, axis=0, weights=list(games.values()))


def closed_form(
    field: Field, arm: MeasuredArm, games: Iterable[Tunnel]
) -> dict[Tunnel, float] | None:
    """The scale of the estimator in each game; None where no closed form is at hand."""
    options = field.world.options
    switches = arm.switches
    independent = arm.rollout.method == "chain"
    if not independent or not _weighed_alike(field, arm):
        return None
    # The penalty is no part of the return whose gradient is compared.
    if options.knocks and switches.invalid_penalty:
        return None
    pays = options.reward == "end" or switches.outcome == "score"
    reward = switches.success_reward
    if pays and _is_unbiased(arm):
        return dict.fromkeys(games, reward)
    if arm.credit not in GRPO_LIKE or options.reward != "end":
        return None
    if getattr(switches, "form", "paper") != "paper" or switches.normalise != "std":
        return None
    leaves = arm.rollout.leaves
    factors = {}
    for game in games:
        factors[game] = grpo_factor(leaves, field.exact(game).success, reward)
    return factors


def _weighed_alike(field: Field, arm: MeasuredArm) -> bool:
    """Whether all steps weigh alike, also those of trajectories of other lengths."""
    options = field.world.options
    # Without these every game takes the same number of steps.
    waste = options.turns or options.looks or options.knocks
    return arm.aggregate != "step" or (options.wrong == "on" and not waste)


def _is_unbiased(arm: MeasuredArm) -> bool:
    switches = arm.switches
    if arm.credit == "ppo":
        # The objective is not discounted.
        return bool(switches.gamma == 1)
    if arm.credit != "rloo":
        return False
    if switches.form == "paper":
        return arm.rollout.leaves > 1
    # The release leaves a single trajectory as it is: REINFORCE without a baseline.
    return arm.rollout.leaves == 1 and switches.over == "trajectories"


def grpo_factor(leaves: int, success: float, reward: float = 1.0) -> float:
    """The scale of grpo's mean for groups of `leaves` and a probability of success."""
    total = 0.0
    for won in range(1, leaves):
        lost = leaves - won
        # The chance of such a group over p (1 - p), which has a limit at p = 0 and 1.
        chance = success ** (won - 1) * (1 - success) ** (lost - 1)
        chance *= math.comb(leaves, won)
        std = reward * math.sqrt(won * lost / (leaves * (leaves - 1)))
        total += chance * reward * won * lost / (leaves**2 * (std + EPSILON))
    return total


class Script:
    """Goes through all sequences of draws, one a tree."""

    def __init__(self) -> None:
        self._draws: list[int] = []
        self._sizes: list[int] = []
        self._place = 0
        self.chance = 1.0
        """The probability of the present sequence."""
        self.trees = 1
        """About how many sequences there are, by the present one."""

    def chooser(self, _: int) -> Choose:
        """Draws what the script says, whatever the seed."""
        return self._choose

    def _choose(self, chances: Sequence[float]) -> int:
        if self._place == len(self._draws):
            self._draws.append(0)
            self._sizes.append(len(chances))
        index = self._draws[self._place]
        self._place += 1
        self.chance *= chances[index]
        self.trees *= len(chances)
        return index

    def advance(self) -> bool:
        """Goes to the next sequence; False after the last one."""
        self._place = 0
        self.chance = 1.0
        self.trees = 1
        while self._draws:
            # As an odometer: the last draw moves on, and those before it are repeated.
            draw = self._draws.pop() + 1
            size = self._sizes.pop()
            if draw < size:
                self._draws.append(draw)
                self._sizes.append(size)
                return True
        return False


async def enumerated(
    field: Field, arm: MeasuredArm, logits: Logits, game: Tunnel
) -> Row | None:
    """The exact mean of the estimator over all trees.

    None where there are more than MOST_TREES, or where the growth draws something
    itself. The order in which a tree asks its policy depends on the replies alone, so a
    sequence of draws is a tree.
    """
    if _draws_itself(arm):
        return None
    script = Script()
    policy = TabularPolicy(field.table, script.chooser)
    exact = field.exact(game)
    facts = known(arm.credit)
    total = np.zeros(logits.size)
    weight = 0.0
    trees = 0
    while True:
        tree = await field.grow(arm.rollout, 0, policy)
        trees += 1
        # A large tunnel ends at its first tree by the estimate, and by the count
        # where the first path was short.
        if max(trees, script.trees) > MOST_TREES:
            return None
        if facts.needs_values or facts.needs_scores:
            appraise(tree, game, exact)
        credit = arm.assign(tree, arm.switches)
        push, rows = logits.push(tree, credit, arm.aggregate)
        total += script.chance * push
        weight += script.chance * rows
        if not script.advance():
            # A mean over steps, made as long as a sum over a game (Pushes.length).
            return exact.steps * total / (weight or 1.0)


def _draws_itself(arm: MeasuredArm) -> bool:
    """Whether the growth of a tree depends on more than the policy's replies."""
    rollout = arm.rollout
    by_coin = str(getattr(rollout, "branch", "")).startswith("fixed")
    is_random = getattr(rollout, "criterion", "") == "random"
    return rollout.method in RANDOM_GROWTH or by_coin or is_random
