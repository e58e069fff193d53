"""arpo: grpo over the leaves, a shared step taking the mean of its leaves' advantages
(ARPO as in 003 App. C.5 and eq. 22).

    A_shared = 1/d sum_i (R_i - mean) / (std + 1e-6) = (mean of the d leaves' R - mean)
    / (std + 1e-6)

Merging the prefix is what defines the method, and every leaf counts once: there is no
`prefix` and no `over`. 003 App. A.1 shows that this is biased where a state's
continuations are unevenly forked; carl is not.
"""

from agentcli.credit.common import Normalise, PenaltySwitches
from agentcli.credit.equations import Evidence
from agentcli.credit.group import outcome_scale, survey_of
from agentcli.credit.grpo import terminal_credit
from agentcli.credit.terms import outcome_among_leaves, outcome_evidence, row_leaves
from agentcli.records.types import Credit, Tree

WITHOUT = {
    "prefix": "a shared step always takes the mean of its leaves",
    "over": "every leaf counts once",
    "form": "there is one form",
}
EQUATIONS = outcome_among_leaves(
    meaning="how the mean outcome of its leaves compares within the group of leaves",
    source="003 App. C.5, eq. 22",
)


class ArpoSettings(PenaltySwitches, kw_only=True):
    """Raises UsageError naming the field."""

    normalise: Normalise = "std"
    """std: (x - mean) / (std + 1e-6), ddof 1. mean: x - mean."""


def assign(tree: Tree, settings: ArpoSettings) -> Credit:
    """One StepCredit per step; parts as in grpo."""
    survey = survey_of(tree, settings)
    scale = outcome_scale(survey, normalise=settings.normalise)
    return terminal_credit(tree, survey, scale, "merge", "arpo")


def evidence(tree: Tree, settings: ArpoSettings, row: int) -> Evidence:
    """What EQUATIONS need for one row."""
    survey = survey_of(tree, settings)
    step, ends = row_leaves(survey, "merge", row)
    scale = outcome_scale(survey, normalise=settings.normalise)
    return outcome_evidence(
        tree, survey, settings, step, ends, scale, settings.normalise
    )
