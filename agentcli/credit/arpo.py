"""arpo: grpo over the leaves, a shared step taking the mean of its leaves' advantages (ARPO as in 003 App. C.5 and eq. 22).

    A_shared = 1/d sum_i (R_i - mean) / (std + 1e-6) = (mean of the d leaves' R - mean) / (std + 1e-6)

Merging the prefix is what defines the method, and every leaf counts once: there is no `prefix` and no `over`. 003 App. A.1 shows
that this is biased where a state's continuations are unevenly forked; carl is not.
"""

from agentcli.credit.account import Sheet
from agentcli.credit.common import Normalise, PenaltySwitches
from agentcli.credit.group import outcome_scale, survey
from agentcli.credit.grpo import terminal_credit
from agentcli.credit.terms import among_leaves, charge, end_line, told
from agentcli.records.types import Credit, Tree

WITHOUT = {
    "prefix": "a shared step always takes the mean of its leaves",
    "over": "every leaf counts once",
    "form": "there is one form",
}


class ArpoSettings(PenaltySwitches, kw_only=True):
    """Raises UsageError naming the field."""

    normalise: Normalise = "std"
    """std: (x - mean) / (std + 1e-6), ddof 1. mean: x - mean."""


def assign(tree: Tree, settings: ArpoSettings) -> Credit:
    """One StepCredit per step; parts as in grpo."""
    seen = survey(tree, settings)
    return terminal_credit(tree, seen, outcome_scale(seen, normalise=settings.normalise), "merge", "arpo")


def explain(tree: Tree, settings: ArpoSettings, row: int) -> Sheet:
    """The account of one row."""
    sheet, seen = Sheet(), survey(tree, settings)
    scale, about = outcome_scale(seen, normalise=settings.normalise), told(seen, "merge", row)
    what = "how the mean outcome of its leaves compares within the group of leaves"
    among_leaves(
        sheet, tree, seen, about, settings, scale, settings.normalise, end_line(seen), what, "003 App. C.5, eq. 22"
    )
    return charge(sheet, seen, about.step)
