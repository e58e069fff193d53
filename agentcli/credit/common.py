"""What all credit methods share: the vocabulary of switches, the marks of a row without
advantage, the statistics.

A switch has one name and one meaning everywhere, and a method's settings hold only
those that can matter for it: a class below, and the method's own fields. The registry
refuses every other. What is computed from a tree before a method looks at it is in
group.py (leaves, normalisation, rows) and returns.py (discounting).
"""

import math
from fractions import Fraction
from typing import Any, Literal

from agentcli.credit.states import StateForm
from agentcli.errors import DataError, UsageError
from agentcli.records.settings import Section
from agentcli.records.trees import leaves
from agentcli.records.types import Credit, GraphSize, Outcome, StepCredit, Tree

ERRORED = "errored"
"""Why a step without a leaf that counts has no advantage."""
ONLY_CHILD = "only child"
"""Why carl leaves out a step without siblings."""
FIRST_PHASE = "first phase"
"""Why carl leaves out a step of the trajectories that started from scratch
(first_phase).
"""
LARGEST = 1e9
"""No setting and no reward is larger."""
NO_SCORE = Fraction(0)

SUMMANDS = ("action", "trajectory", "step")
"""Parts of an advantage whose share of rows with a signal is counted; dpepo's `step` is
a factor.
"""

Normalise = Literal["std", "mean"]


class Switches(Section, kw_only=True):
    """What every method has. Raises UsageError naming the field that is out of range."""

    success_reward: float = 1.0
    """Outcome reward R of a success, or of a score of 1; see `outcome`."""
    outcome: Literal["success", "score"] = "success"
    """What R is. success: success_reward for a success, else 0. score: success_reward
    times the sum of the world's own rewards over the trajectory, however it ended (F1,
    or a score in [0, 1]); nothing is clipped.
    """
    invalid_penalty: float = 0.1
    """Taken from a malformed or inadmissible step's own score, inside the baseline
    where the method has one (unless `penalty` is outside).
    """

    def __post_init__(self) -> None:
        in_range(self, "success_reward", above=0)
        in_range(self, "invalid_penalty", least=0)


class PenaltySwitches(Switches, kw_only=True):
    """Switches of methods that compare scores within a group: a penalty can stand
    before or after the comparison.
    """

    penalty: Literal["inside", "outside"] = "inside"
    """inside: invalid_penalty lowers the score before it is normalised (the releases).
    A group of equal outcomes then has the penalties for its only spread, and one
    invalid step of many gets an advantage of several stds. outside: scores are
    normalised without it, and the advantage of an invalid step is lowered by
    invalid_penalty itself, once: no penalty costs more.
    """


class RowSwitches(PenaltySwitches, kw_only=True):
    """Switches of methods whose authors' code is another algorithm than their paper.

    `over` and `prefix` follow `form` unless they are set.
    """

    form: Literal["paper", "release"] = "paper"
    """paper: the paper's definition. release: what the authors' code computes."""
    over: Literal["trajectories", "steps"] | None = None
    """Whether every trajectory counts once (paper) or every step row (release: long
    trajectories weigh more).
    """
    prefix: Literal["merge", "duplicate"] | None = None
    """A step shared by several leaves: one row with the mean over its leaves (paper) or
    one row per leaf (release).
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        release = self.form == "release"
        require(
            not release or self.penalty == "inside",
            "penalty",
            self.penalty,
            "'inside' where form is release",
        )
        self.over = self.over or ("steps" if release else "trajectories")
        self.prefix = self.prefix or ("duplicate" if release else "merge")


class GroupSwitches(RowSwitches, kw_only=True):
    """Switches of methods that normalise the outcomes of a group."""

    normalise: Normalise = "std"
    """std: (x - mean) / (std + 1e-6), ddof 1. mean: x - mean."""


class StateSwitches(GroupSwitches, kw_only=True):
    """Switches of methods that also compare the steps which leave one state."""

    state: StateForm = "paper"
    """What a state is: f(s) of 002 B.1 (paper), the true state (exact), or the text
    that was read (observation).
    """
    similarity: str = "exact"
    """Which states are one: only equal texts (exact), whatever `state` takes for one,
    or clusters of similar texts: difflib:THRESHOLD, embedding:THRESHOLD with THRESHOLD
    in (0, 1] (similarity.py; 002 App. B.1, C.4).
    """
    embedding_model: str | None = None
    """Directory of the sentence-embedding model of similarity embedding:THRESHOLD."""

    def __post_init__(self) -> None:
        super().__post_init__()
        kind, threshold = parse_similarity(self.similarity)
        require(
            kind in ("exact", "difflib", "embedding"),
            "similarity",
            self.similarity,
            SIMILARITIES,
        )
        require(
            (kind == "exact") == (threshold is None),
            "similarity",
            self.similarity,
            SIMILARITIES,
        )
        require(
            threshold is None or 0 < threshold <= 1,
            "similarity",
            self.similarity,
            SIMILARITIES,
        )
        if kind == "embedding":
            require(
                self.embedding_model is not None,
                "embedding_model",
                None,
                "the directory of a sentence-embedding model",
            )
        else:
            require(
                self.embedding_model is None,
                "embedding_model",
                self.embedding_model,
                f"unset where similarity is {kind}",
            )


SIMILARITIES = (
    "exact, difflib:THRESHOLD or embedding:THRESHOLD with a threshold above 0 and at "
    "most 1"
)


def parse_similarity(text: str) -> tuple[str, float | None]:
    """ "difflib:0.9" -> ("difflib", 0.9); a threshold that is no number is NaN, and
    hence in no range.
    """
    kind, colon, threshold = text.partition(":")
    try:
        return kind, float(threshold) if colon else None
    except ValueError:
        return kind, math.nan


def require(holds: bool, field: str, value: object, what: str) -> None:
    """Raise UsageError that names the field, unless `holds`."""
    if not holds:
        raise UsageError(f"{field}: must be {what}, is {value!r}")


def in_range(
    settings: Section,
    *fields: str,
    above: float | None = None,
    least: float | None = None,
    most: float = LARGEST,
) -> None:
    """Require finite numbers above `above`, or at least `least`, and at most `most`."""
    for field in fields:
        value = getattr(settings, field)
        low = value > above if above is not None else value >= (least or 0)
        bound = f"above {above:g}" if above is not None else f"at least {least or 0:g}"
        require(
            low and value <= most,
            field,
            value,
            f"a number {bound} and at most {most:g}",
        )


def scores(tree: Tree) -> list[Fraction]:
    """Per step the exact sum of the world's own rewards from the initial state to it,
    the step included.
    """
    totals: list[Fraction] = []
    for step in tree.steps:
        total = totals[step.parent] if step.parent is not None else NO_SCORE
        if step.reward:
            total += Fraction(step.reward)
        totals.append(total)
    return totals


def unassigned(
    step: int, reason: str, parts: dict[str, float] | None = None
) -> StepCredit:
    """The row of a step that has no advantage."""
    return StepCredit(step=step, advantage=None, parts=parts or {}, masked=reason)


class GraphSizes:
    """Running sizes of many state graphs, as 002 Table 9 reports them."""

    def __init__(self) -> None:
        self._graphs = 0
        self._nodes = self._edges = self._most_nodes = self._most_edges = 0

    def add(self, size: GraphSize) -> None:
        """Count one graph."""
        self._graphs += 1
        self._nodes += size.nodes
        self._edges += size.edges
        self._most_nodes = max(self._most_nodes, size.nodes)
        self._most_edges = max(self._most_edges, size.edges)

    def summary(self) -> dict[str, float]:
        """Mean and largest number of nodes and of edges; nothing without a graph."""
        if not self._graphs:
            return {}
        return {
            "nodes": self._nodes / self._graphs,
            "edges": self._edges / self._graphs,
            "most_nodes": self._most_nodes,
            "most_edges": self._most_edges,
        }


class CreditStatistics:
    """A running summary of the credit of many trees (Welford) for the manifest, with
    warnings.

    `outcome`: what the method's outcome rewards are (Switches.outcome).
    """

    def __init__(self, outcome: str = "success") -> None:
        self._outcome = outcome
        self._trees = self._without_success = self._all_equal = 0
        self._rows = self._masked = self._zero = 0
        self._mean = self._squares = 0.0
        self._nonzero: dict[str, int] = {}
        self._sizes = GraphSizes()

    def add(self, tree: Tree, credit: Credit) -> None:
        """Count one tree and its credit."""
        ends = [leaf for leaf in leaves(tree) if leaf.outcome is not Outcome.ERRORED]
        successes = sum(leaf.outcome is Outcome.SUCCESS for leaf in ends)
        self._trees += 1
        self._without_success += successes == 0
        if self._outcome == "score":
            totals = scores(tree)
            self._all_equal += len({totals[leaf.id] for leaf in ends}) < 2
        else:
            self._all_equal += successes in (0, len(ends))
        if credit.graph is not None:
            self._sizes.add(credit.graph)
        given = [row.advantage for row in credit.steps if row.advantage is not None]
        before = self._rows - self._masked
        self._rows += len(credit.steps)
        self._masked += len(credit.steps) - len(given)
        self._zero += given.count(0.0)
        for name in SUMMANDS:
            parts = [
                row.parts[name]
                for row in credit.steps
                if row.advantage is not None and name in row.parts
            ]
            if parts:
                self._nonzero[name] = (
                    self._nonzero.get(name, 0) + len(parts) - parts.count(0.0)
                )
        if given:
            mean = math.fsum(given) / len(given)
            if not math.isfinite(mean):
                raise DataError(
                    f"task {tree.task.id}: credit {credit.method} gives an advantage "
                    "that is not finite"
                )
            shift, total = mean - self._mean, before + len(given)
            self._squares += (
                math.fsum((value - mean) ** 2 for value in given)
                + shift**2 * before * len(given) / total
            )
            self._mean += shift * len(given) / total

    def summary(self) -> dict[str, Any]:
        """The figures over all trees; null where there is nothing to average.

        Over assigned rows: mean and spread (std, ddof 1) of the advantages, their drift
        |mean| / spread (a baselined method has little), the share of exact zeros, and
        by summand the share where it is not zero (`nonzero`). Over all rows the share
        of masked ones. Trees in which nobody succeeded; trees whose outcome rewards are
        all equal. `graphs`: sizes of the state graphs (002 Table 9), where the method
        builds any.
        """
        assigned = self._rows - self._masked
        spread = math.sqrt(self._squares / (assigned - 1)) if assigned > 1 else None
        sizes = self._sizes.summary()
        return {
            "trees": self._trees,
            "rows": self._rows,
            "mean": self._mean if assigned else None,
            "spread": spread,
            "drift": abs(self._mean) / spread if spread else None,
            "share_zero": self._zero / assigned if assigned else None,
            "share_masked": self._masked / self._rows if self._rows else None,
            "nonzero": {
                name: count / assigned for name, count in self._nonzero.items()
            },
            "groups_without_success": self._without_success,
            "groups_all_equal": self._all_equal,
            **({"graphs": sizes} if sizes else {}),
        }

    @property
    def warnings(self) -> list[str]:
        """One line per reason why nothing can be learnt from the file; empty where
        something can.
        """
        assigned = self._rows - self._masked
        if self._rows == 0:
            return ["there is nothing to learn: no step in any tree"]
        if assigned == 0:
            return [f"there is nothing to learn: all {self._rows} rows are masked"]
        if self._zero < assigned:
            return []
        return [
            f"there is nothing to learn: all {assigned} advantages are zero; "
            f"{self._without_success} of {self._trees} trees have no success, "
            f"{self._all_equal} have equal outcomes: sample more leaves, or tasks "
            "that succeed sometimes"
        ]
