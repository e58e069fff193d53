"""What a method's advantages make of a policy's gradient.

A tree and its credit give the sum over rows of w A grad log pi(a|s), with the weights w
that a training gives to rows (training/steps.py). For a table of logits, grad log pi is
1 at the action and minus the policy elsewhere. `estimates` compares many such sums with
the exact gradient.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from agentcli.analysis.tabular import Field
from agentcli.credit.registry import Assign, known, switches_class, switches_of
from agentcli.credit.registry import make as make_credit
from agentcli.errors import UsageError, prefixed
from agentcli.exploration.registry import check
from agentcli.exploration.settings import rollout_class
from agentcli.records.credit_quality import Estimate, TunnelChoice, Tunnels
from agentcli.records.section import read
from agentcli.records.settings import EnvironmentSettings, RolloutSettings, Settings
from agentcli.records.training_settings import Aggregate
from agentcli.records.trees import acts_by_copy, depths
from agentcli.records.types import Credit, Tree
from agentcli.registry import nearest
from agentcli.training.steps import RowCounts, TreeAndCredit, shared_entries
from agentcli.worlds.tunnel.exact import Exact, Row, policy_at
from agentcli.worlds.tunnel.rules import Spot, Tunnel, TunnelOptions

OF_ROLLOUTS = (
    *("budget", "concurrency", "iteration", "most_errored", "tasks_per_step"),
    *("answer_judge", "critic", "parser", "prm"),
)
"""Settings of whole rollouts, and of models: here each tree grows by itself, with exact
values and scores.
"""


class MeasuredArm(NamedTuple):
    """A credit method that is ready, with the trees that it is meant for."""

    credit: str
    """The name of the credit method."""
    assign: Assign
    switches: Any
    rollout: RolloutSettings
    aggregate: Aggregate

    @property
    def copies(self) -> int:
        """Copies of the game that one response acts in."""
        return self.rollout.moves_per_step if self.rollout.numbered else 1


def environment_of(choice: TunnelChoice, place: str) -> EnvironmentSettings:
    """The settings of a tunnel. Raises UsageError naming a wrong option."""
    options = read(choice.options, TunnelOptions, f"{place}.options.", "tunnel")
    if not options.games.train:
        raise UsageError(f"{place}.options.games.train: needs one at least")
    return EnvironmentSettings(
        name="tunnel", max_steps=choice.max_steps, options=choice.options
    )


def arm_of(study: Tunnels, name: str, tunnel: TunnelChoice) -> MeasuredArm:
    """A method of the study with its settings for a tunnel.

    What the study and the tunnel set counts where the method has such a setting; the
    method's own settings come last. Raises UsageError naming a wrong one.
    """
    given = study.methods[name]
    with prefixed(f"methods.{name}", UsageError):
        kind = rollout_class(given.rollout.get("method", "chain"))
        shared = _kept({**study.rollout, **tunnel.rollout}, kind.__struct_fields__)
        values = {"method": "chain", **shared, **given.rollout}
        rollout = read(values, kind, "rollout.")
        check(Settings(rollout=rollout))
        credit = {"method": name, **given.credit}
        common = _kept(tunnel.credit, switches_of(credit["method"]))
        credit_name, assign, switches = make_credit({**common, **credit})
    aggregate = given.aggregate or known(credit_name).aggregate
    return MeasuredArm(credit_name, assign, switches, rollout, aggregate)


def check_shared_settings(study: Tunnels, path: Path) -> None:
    """Raises UsageError for a shared setting with a bad value, or that no method has.

    Nor may one be of whole rollouts. `path` is the study's file.
    """
    grown: list[tuple[type[msgspec.Struct], set[str]]] = []
    credited: list[tuple[type[msgspec.Struct], set[str]]] = []
    for name, given in study.methods.items():
        with prefixed(f"{path}: methods.{name}", UsageError):
            growing = rollout_class(given.rollout.get("method", "chain"))
            crediting = switches_class(given.credit.get("method", name))
        _refuse_of_rollouts(given.rollout, f"{path}: methods.{name}.rollout")
        grown.append((growing, {*given.rollout}))
        credited.append((crediting, {*given.credit}))
    shared = [("rollout", study.rollout, grown)]
    for key, choices in (("tunnels", study.tunnels), ("knobs", study.knobs)):
        for name, choice in choices.items():
            shared.append((f"{key}.{name}.rollout", choice.rollout, grown))
            shared.append((f"{key}.{name}.credit", choice.credit, credited))
    for place, values, kinds in shared:
        if "method" in values:
            raise UsageError(f"{path}: {place}.method: is said at methods.NAME")
        if kinds is grown:
            _refuse_of_rollouts(values, f"{path}: {place}")
        names: set[str] = set()
        for kind, replaced in kinds:
            names.update(kind.__struct_fields__)
            kept = _kept(values, {*kind.__struct_fields__} - replaced)
            read(kept, kind, f"{path}: {place}.")
        for name in values.keys() - names:
            problem = f"none of the methods has it; {nearest(name, names)}"
            raise UsageError(f"{path}: {place}.{name}: {problem}")


def _refuse_of_rollouts(values: Mapping[str, Any], place: str) -> None:
    """Raises UsageError for a setting that a tree by itself does not have."""
    for name in OF_ROLLOUTS:
        if name in values:
            raise UsageError(
                f"{place}.{name}: nothing here takes it, since each tree grows by "
                "itself; leave it out"
            )


def _kept(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in names}


def why_not(arm: MeasuredArm, options: TunnelOptions) -> str | None:
    """Why a method cannot be measured in a tunnel; None if it can."""
    capability = arm.rollout.capability
    if capability is not None:
        return (
            f"its trees need a world that is a {capability.__name__}, and the tunnel "
            "is not one"
        )
    facts = known(arm.credit)
    if arm.copies > 1 and (facts.needs_values or facts.needs_scores):
        return "the exact values are those of a single copy"
    if arm.copies > 1 and options.reward != "end":
        return "the return of the best of several copies is known for reward: end only"
    return None


def objective_gradient(arm: MeasuredArm, exact: Exact) -> dict[str, Row]:
    """View -> d J / d logits, for what the arm's trees play for.

    K independent copies win with probability 1 - (1 - p)^K (DPEPO eq. 2).
    """
    copies = arm.copies
    factor = copies * (1 - exact.success) ** (copies - 1)
    return {view: factor * row for view, row in exact.gradient.items()}


def appraise(tree: Tree, game: Tunnel, exact: Exact) -> None:
    """Sets exact values and scores: a perfect critic and process reward model.

    The value of a step is V of the place and the time where it is taken; its score is
    the expected return after its action.
    """
    for step, time in zip(tree.steps, depths(tree), strict=True):
        place = Spot(*map(int, step.state.split("/")))
        action = game.actions(place).index(step.action or "")
        step.value = exact.values[time][place]
        step.score = step.value + float(exact.gains[time][place][action])


class Logits:
    """All logits of a field in one vector."""

    def __init__(self, field: Field, games: Iterable[Tunnel]) -> None:
        """`games` are those whose views can be seen."""
        self._policy: dict[str, Row] = {}
        self._starts: dict[str, int] = {}
        self.size = 0
        for game in games:
            for view, row in field.exact(game).gradient.items():
                if view not in self._starts:
                    self._starts[view] = self.size
                    self._policy[view] = policy_at(field.table, view, len(row))
                    self.size += len(row)

    def vector(self, rows: Mapping[str, Row]) -> Row:
        """A table as a vector; 0 at the views that it has not."""
        vector = np.zeros(self.size)
        for view, row in rows.items():
            start = self._starts[view]
            vector[start : start + len(row)] = row
        return vector

    def push(
        self, tree: Tree, credit: Credit, aggregate: Aggregate
    ) -> tuple[Row, float]:
        """The sum over rows of w A grad log pi, and the sum of w."""
        vector = np.zeros(self.size)
        # pi is the same for every move at a view, so it is taken off once, at the end.
        at_view: defaultdict[str, float] = defaultdict(float)
        total = 0.0
        given = TreeAndCredit(tree, credit, 1, "tree", "credit")
        for entry, share in shared_entries(given, "assigned", RowCounts()):
            # A response has one token, so token and sequence are the same.
            weight = entry.weight * (share if aggregate == "step" else 1.0)
            total += weight
            push = weight * (entry.advantage or 0.0)
            if not push:
                continue
            for _, move in acts_by_copy(tree.steps[entry.step]):
                view = move.canonical or ""
                action = move.admissible.index(move.action or "")
                vector[self._starts[view] + action] += push
                # Every action of the view is pushed down by pi: summed here, done once
                # below.
                at_view[view] += push
        for view, push in at_view.items():
            policy = self._policy[view]
            start = self._starts[view]
            vector[start : start + len(policy)] -= push * policy
        return vector, total


@dataclass
class Pushes:
    """What n groups gave."""

    sums: Row
    """(n, logits) the sum of w A grad log pi of each group."""
    weights: Row
    """(n,) the sum of w."""
    truths: Row
    """(n, logits) the exact gradient in the group's game."""
    length: float
    """Expected steps of a game: a mean over steps times this is as long as a sum."""

    def only(self, rows: NDArray[np.bool_]) -> "Pushes":
        """The groups where the mask `rows` (n,) is true."""
        return Pushes(
            self.sums[rows], self.weights[rows], self.truths[rows], self.length
        )


class Figures(NamedTuple):
    """Figures of an estimator (QualityCell)."""

    scale: float
    bias: float
    variance: float
    noise: float
    """The standard deviation of `bias` where the estimator has none."""


def deviation(mean: Row, truth: Row) -> tuple[float, float]:
    """Scale and bias of a mean (QualityCell); NaN where it has no part along `truth`."""
    size = float(truth @ truth)
    scale = float(mean @ truth) / size
    rest = mean - scale * truth
    return scale, _over(float(rest @ rest), scale**2 * size)


def _over(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def figures(pushes: Pushes) -> Figures:
    """Scale, bias and variance by these groups.

    An update divides by the sum of all its weights, a ratio whose deviation from its
    limit is, group by group, that of `rest` (Cochran 1977, section 6.4).
    """
    groups = len(pushes.weights)
    # A method may have no trained row at all.
    relative = pushes.weights / (pushes.weights.mean() or 1.0)
    moves = pushes.length * pushes.sums / (pushes.weights.mean() or 1.0)
    mean = moves.mean(axis=0)
    truth = pushes.truths.mean(axis=0)
    scale, bias = deviation(mean, truth)
    rest = moves - np.outer(relative, mean)
    size = float(truth @ truth)
    whole = scale**2 * size
    variance = float((rest**2).sum()) / (groups - 1)
    # Bias is measured across the truth only, so only this spread adds to its square.
    across = rest - np.outer(rest @ truth / size, truth)
    covariance = across.T @ across / (groups - 1)
    # The squared length of a mean holds its own variance, which is taken off. What is
    # left is a quadratic form of a nearly normal vector: its variance is 2 tr C^2.
    bias -= _over(float(np.trace(covariance)) / groups, whole)
    noise = math.sqrt(2.0) * float(np.linalg.norm(covariance)) / groups
    return Figures(scale, bias, _over(variance, whole), _over(noise, whole))


def estimates(pushes: Pushes, update: int) -> dict[str, Estimate]:
    """Scale, bias, variance and cosine, with errors over updates of `update` groups.

    The errors of the first three are the jackknife's that leaves out one update at a
    time. It doubles the quadratic part of the variance of a squared length (Efron and
    Stein 1981, section 4), so `noise` is taken off once.
    """
    updates = len(pushes.weights) // update
    number = np.arange(len(pushes.weights)) // update
    # The last groups may fill no update, and the jackknife takes equal parts.
    used = pushes.only(number < updates)
    number = number[: len(used.weights)]
    values = figures(used)
    left_out = np.array([figures(used.only(number != one)) for one in range(updates)])
    spread = ((left_out - left_out.mean(axis=0)) ** 2).sum(axis=0)
    squares = spread * (updates - 1) / updates
    squares[1] = max(squares[1] - values.noise**2, values.noise**2)
    result = {}
    for place, name in enumerate(("scale", "bias", "variance")):
        error = math.sqrt(squares[place])
        result[name] = Estimate(value=values[place], error=error)
    truth = used.truths.mean(axis=0)
    # The cosine of all groups together would be that of one far larger update.
    cosines = [
        _cosine(used.sums[number == one].sum(axis=0), truth) for one in range(updates)
    ]
    error = float(np.std(cosines, ddof=1)) / math.sqrt(updates)
    result["cosine"] = Estimate(value=float(np.mean(cosines)), error=error)
    return result


def _cosine(one: Row, other: Row) -> float:
    lengths = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / lengths if lengths else 0.0
