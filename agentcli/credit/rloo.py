"""rloo: a trajectory's outcome minus the mean of the *other* trajectories' outcomes.

Kool et al. 2019, "Buy 4 REINFORCE samples, get a baseline for free!".

    A_i = R_i - 1/(G-1) sum_{j != i} R_j = (R_i - mean R) * G / (G - 1)

over the G leaves of the tree, the same for all steps of i. Nothing is divided by a std,
so there is no `normalise`. With a penalty, the row of step t has the score x_it = R_i -
p [invalid] as in group.outcome_scale, and A_it = (x_it - mean) * W / (W - 1). W is the
group's weight: G with over trajectories, the number of rows with over steps (as in the
release). A group of one gets 0; in the release it keeps its score.
"""

from agentcli.credit.equations import Evidence
from agentcli.credit.group import Scale, outcome_scale
from agentcli.credit.grpo import scaled_credit
from agentcli.credit.survey import Survey, survey_of
from agentcli.credit.switches import RowSwitches
from agentcli.credit.terms import outcome_among_leaves, outcome_evidence
from agentcli.records.types import Credit, Tree

WITHOUT = {"normalise": "it leaves one out instead of dividing by a std"}
EQUATIONS = outcome_among_leaves(
    meaning="the outcome less the mean of the other trajectories' outcomes",
    source="Kool et al. 2019",
)


class RlooSettings(RowSwitches, kw_only=True):
    """Settings of rloo: the row switches only."""


def assign(tree: Tree, settings: RlooSettings) -> Credit:
    """Returns one StepCredit per row.

    parts: as in grpo; `baseline` is the mean that includes the row's own trajectory.
    """
    survey = survey_of(tree, settings)
    return scaled_credit(survey, settings, _scale(survey, settings), "rloo")


def _scale(survey: Survey, settings: RlooSettings) -> Scale:
    """The group's mean, with the factor W / (W - 1) for leaving one out."""
    scale = outcome_scale(survey, settings, "mean")
    if scale.factor and scale.weight > 1:
        scale.factor = scale.weight / (scale.weight - 1)
    return scale


def evidence(
    tree: Tree,
    settings: RlooSettings,
    row: int,
) -> Evidence:
    """The evidence that EQUATIONS need for one row."""
    survey = survey_of(tree, settings)
    scale = _scale(survey, settings)
    return outcome_evidence(tree, survey, settings, row, scale, "leave-one-out")
