"""The figures and warnings that `assign-credit` reports over many trees."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from agentcli.credit.survey import score_sums
from agentcli.errors import DataError
from agentcli.records.trees import leaves
from agentcli.records.types import Credit, GraphSize, Outcome, Tree

SUMMANDS = ("action", "trajectory", "step")
"""Parts of an advantage for which the share of nonzero rows is reported.

In dpepo `step` is a factor, not a summand.
"""


class CreditStatistics:
    """A running summary of the credit of many trees, with warnings.

    `outcome` says what the method rewards (Switches.outcome).
    """

    def __init__(self, outcome: str = "success") -> None:
        self._outcome = outcome
        self._trees = 0
        self._without_success = 0
        self._all_equal = 0
        self._rows = 0
        self._left_out = 0
        self._assigned = 0
        self._zero = 0
        self._mass = 0.0
        self._rows_equal = 0
        self._moved_equal = 0
        self._mass_equal = 0.0
        self._mean = 0.0
        self._squares = 0.0
        self._nonzero: Counter[str] = Counter()
        self._sizes: list[GraphSize] = []

    def add(self, tree: Tree, credit: Credit) -> None:
        """Counts one tree and its credit; raises DataError for infinite advantages."""
        is_equal = self._add_outcomes(tree)
        # A tree whose leaves all errored has no graph.
        if credit.graph is not None and credit.graph.nodes:
            self._sizes.append(credit.graph)
        self._rows += len(credit.steps)
        self._left_out += len(tree.steps) - len({row.step for row in credit.steps})
        assigned = [row for row in credit.steps if row.advantage is not None]
        for name in SUMMANDS:
            values = [row.parts[name] for row in assigned if name in row.parts]
            if values:
                # Adds 0 too: a summand that is always zero is then reported as such.
                self._nonzero[name] += len(values) - values.count(0.0)
        advantages = [row.advantage for row in assigned if row.advantage is not None]
        if advantages:
            self._add_advantages(advantages, credit)
            self._add_mass(advantages, is_equal)

    def summary(self) -> dict[str, Any]:
        """The figures over all trees; null where there is nothing to average.

        Over assigned rows: mean and spread (std, ddof 1) of the advantages, their drift
        |mean| / spread (small for a method with a baseline), the share of exact zeros,
        and per summand the share of rows where it is not zero (`nonzero`). Over all
        rows: the share of masked ones. Over trees: those without a success, and those
        whose outcome rewards are all equal. `equal_outcomes` has, within the latter,
        the assigned rows, the nonzero ones, and their share of the sum of |advantage|.
        `graphs` has the sizes of the state graphs (RewardFlow Table 9), for methods
        that build them.
        """
        assigned = self._assigned
        spread = None
        if assigned > 1:
            spread = math.sqrt(self._squares / (assigned - 1))
        masked = self._rows - assigned
        figures: dict[str, Any] = {
            "trees": self._trees,
            "rows": self._rows,
            "mean": self._mean if assigned else None,
            "spread": spread,
            "drift": abs(self._mean) / spread if spread else None,
            "share_zero": self._zero / assigned if assigned else None,
            "share_masked": masked / self._rows if self._rows else None,
            "nonzero": {
                name: count / assigned for name, count in self._nonzero.items()
            },
            "groups_without_success": self._without_success,
            "groups_all_equal": self._all_equal,
            "equal_outcomes": {
                "rows": self._rows_equal,
                "rows_not_zero": self._moved_equal,
                "share_of_mass": self._mass_equal / self._mass if self._mass else 0.0,
            },
        }
        if self._sizes:
            figures["graphs"] = graph_sizes(self._sizes)
        return figures

    @property
    def warnings(self) -> list[str]:
        """Steps without a row, and the reason where nothing can be learnt."""
        if self._rows and self._left_out:
            return [
                f"{self._left_out} steps have no row, and nothing is learnt from them",
                *self._idle,
            ]
        return self._idle

    @property
    def _idle(self) -> list[str]:
        """One line with the reason if nothing can be learnt; else empty."""
        if self._rows == 0:
            return ["there is nothing to learn: no step in any tree"]
        if self._assigned == 0:
            return [f"there is nothing to learn: all {self._rows} rows are masked"]
        if self._zero < self._assigned:
            return []
        return [
            f"there is nothing to learn: all {self._assigned} advantages are zero; "
            f"{self._without_success} of {self._trees} trees have no success, "
            f"{self._all_equal} have equal outcomes: sample more leaves, or tasks "
            "that succeed sometimes"
        ]

    def _add_outcomes(self, tree: Tree) -> bool:
        """Counts a tree's outcomes; returns whether all leaves have the same reward.

        A tree whose leaves all errored has none, and is neither of the two.
        """
        ends = [leaf for leaf in leaves(tree) if leaf.outcome is not Outcome.ERRORED]
        successes = sum(leaf.outcome is Outcome.SUCCESS for leaf in ends)
        self._trees += 1
        if not ends:
            return False
        self._without_success += successes == 0
        if self._outcome == "score":
            totals = score_sums(tree)
            # The sums are exact, so equal scores are one element.
            is_equal = len({totals[leaf.id] for leaf in ends}) < 2
        else:
            is_equal = successes in (0, len(ends))
        self._all_equal += is_equal
        return is_equal

    def _add_mass(self, advantages: list[float], is_equal: bool) -> None:
        """Counts the advantages in trees whose outcomes are all equal."""
        mass = math.fsum(map(abs, advantages))
        self._mass += mass
        if is_equal:
            self._mass_equal += mass
            self._rows_equal += len(advantages)
            self._moved_equal += len(advantages) - advantages.count(0.0)

    def _add_advantages(self, advantages: list[float], credit: Credit) -> None:
        """Updates the mean and the sum of squares (Chan et al. 1983)."""
        count = len(advantages)
        mean = math.fsum(advantages) / count
        if not math.isfinite(mean):
            raise DataError(
                f"task {credit.task}: credit {credit.method} gives an advantage that "
                "is not finite"
            )
        before = self._assigned
        total = before + count
        # The mean square less the squared mean would lose its digits to cancellation.
        shift = mean - self._mean
        within = math.fsum((value - mean) ** 2 for value in advantages)
        self._squares += within + shift**2 * before * count / total
        self._mean += shift * count / total
        self._assigned = total
        self._zero += advantages.count(0.0)


def graph_sizes(sizes: Sequence[GraphSize]) -> dict[str, float]:
    """Mean and maximum of nodes and edges (RewardFlow Table 9); {} without graphs."""
    if not sizes:
        return {}
    nodes = [size.nodes for size in sizes]
    edges = [size.edges for size in sizes]
    return {
        "nodes": sum(nodes) / len(nodes),
        "edges": sum(edges) / len(edges),
        "most_nodes": max(nodes),
        "most_edges": max(edges),
    }
