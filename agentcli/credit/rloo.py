"""rloo: the outcome of a trajectory less the mean of the *other* trajectories'
outcomes.

Kool et al. 2019, "Buy 4 REINFORCE samples, get a baseline for free!".

    A_i = R_i - 1/(G-1) sum_{j != i} R_j = (R_i - mean R) * G / (G - 1)

over the G leaves of the tree, the same for all steps of i. Nothing is divided by a std,
so there is no `normalise`. With a penalty the row of step t scores x_it = R_i - p
[invalid] as in group.outcome_scale, and A_it = (x_it - mean) * W / (W - 1), W being the
group's weight: G over trajectories, the number of rows over steps (what the release
does). A group of one gets 0; the release leaves it its score.
"""

from agentcli.credit.common import RowSwitches
from agentcli.credit.equations import Evidence
from agentcli.credit.group import Scale, Survey, scale_for, survey_of
from agentcli.credit.grpo import terminal_credit
from agentcli.credit.terms import outcome_among_leaves, outcome_evidence, row_leaves
from agentcli.records.types import Credit, Tree

WITHOUT = {"normalise": "it leaves one out instead of dividing by a std"}
EQUATIONS = outcome_among_leaves(
    meaning="the outcome less the mean of the other trajectories' outcomes",
    source="Kool et al. 2019",
)


class RlooSettings(RowSwitches, kw_only=True):
    """The switches of rows only."""


def assign(tree: Tree, settings: RlooSettings) -> Credit:
    """One StepCredit per row; parts as in grpo, `baseline` being the mean with the
    row's own trajectory in it.
    """
    survey = survey_of(tree, settings)
    return terminal_credit(
        tree, survey, _scale(survey, settings), settings.prefix, "rloo"
    )


def _scale(survey: Survey, settings: RlooSettings) -> Scale:
    scale = scale_for(survey, settings, "mean")
    if scale.factor and scale.weight > 1:
        scale = Scale(scale.center, scale.weight / (scale.weight - 1), scale.weight)
    return scale


def evidence(tree: Tree, settings: RlooSettings, row: int) -> Evidence:
    """What EQUATIONS need for one row."""
    survey = survey_of(tree, settings)
    step, ends = row_leaves(survey, settings.prefix, row)
    return outcome_evidence(
        tree, survey, settings, step, ends, _scale(survey, settings), "leave-one-out"
    )
