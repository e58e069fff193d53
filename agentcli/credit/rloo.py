"""rloo: the outcome of a trajectory less the mean of the *other* trajectories' outcomes (Kool et al. 2019, "Buy 4 REINFORCE
samples, get a baseline for free!").

    A_i = R_i - 1/(G-1) sum_{j != i} R_j = (R_i - mean R) * G / (G - 1)

over the G leaves of the tree, the same for all steps of i. Nothing is divided by a std, so there is no `normalise`. With a penalty
the row of step t scores x_it = R_i - p [invalid] as in group.outcome_scale, and A_it = (x_it - mean) * W / (W - 1), W being the
group's weight: G over trajectories, the number of rows over steps (what the release does). A group of one gets 0; the release
leaves it its score.
"""

from agentcli.credit.account import Sheet
from agentcli.credit.common import RowSwitches
from agentcli.credit.group import Scale, Survey, scale_for, survey
from agentcli.credit.grpo import terminal_credit
from agentcli.credit.terms import among_leaves, charge, end_line, told
from agentcli.records.types import Credit, Tree

WITHOUT = {"normalise": "it leaves one out instead of dividing by a std"}


class RlooSettings(RowSwitches, kw_only=True):
    """The switches of rows only."""


def assign(tree: Tree, settings: RlooSettings) -> Credit:
    """One StepCredit per row; parts as in grpo, `baseline` being the mean with the row's own trajectory in it."""
    seen = survey(tree, settings)
    return terminal_credit(tree, seen, _scale(seen, settings), settings.prefix, "rloo")


def _scale(seen: Survey, settings: RlooSettings) -> Scale:
    scale = scale_for(seen, settings, "mean")
    if scale.factor and scale.weight > 1:
        scale = Scale(scale.center, scale.weight / (scale.weight - 1), scale.weight)
    return scale


def explain(tree: Tree, settings: RlooSettings, row: int) -> Sheet:
    """The account of one row."""
    sheet, seen = Sheet(), survey(tree, settings)
    about, what = told(seen, settings.prefix, row), "the outcome less the mean of the other trajectories' outcomes"
    how, source = "leave-one-out", "Kool et al. 2019"
    among_leaves(sheet, tree, seen, about, settings, _scale(seen, settings), how, end_line(seen), what, source)
    return charge(sheet, seen, about.step)
