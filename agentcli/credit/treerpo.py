"""treerpo: grpo among siblings, every child scored with its expected reward (TreeRPO as
in 003 App. C.5).

    E[R(u)] = mean over the children's E[R]
    A(u -> v) = (E[R(v)] - mean) / (std + 1e-6)        over the children of u

Steps with one parent were sampled from one state and are the group; an only child has
nobody to be compared with and gets 0. The penalty of an invalid step lowers its own
score and no expectation. Errored children are left out.
"""

from agentcli.credit.carl import expected_rewards
from agentcli.credit.common import Normalise, PenaltySwitches, unassigned
from agentcli.credit.equations import ADVANTAGE, Equation, Evidence
from agentcli.credit.group import Entry, Survey, scale_of, survey_of
from agentcli.credit.terms import add_penalty
from agentcli.records.types import Credit, Tree

WITHOUT = {
    "over": "its groups are siblings: every child counts once",
    "prefix": "a shared step has one expectation",
    "form": "there is one form",
}
EQUATIONS = (
    Equation(
        "expected",
        None,
        "expected reward after the step: mean over its children, up to the leaves",
    ),
    Equation("penalty", None, "penalty, of an invalid step only"),
    Equation(
        ADVANTAGE,
        "expected - penalty",
        "how its expected reward compares among its siblings",
        "003 App. C.5",
        among="siblings",
    ),
)


class TreerpoSettings(PenaltySwitches, kw_only=True):
    """Raises UsageError naming the field."""

    normalise: Normalise = "std"
    """std: (x - mean) / (std + 1e-6), ddof 1. mean: x - mean."""


def assign(tree: Tree, settings: TreerpoSettings) -> Credit:
    """One StepCredit per step. parts: expected (E[R(v)]), penalty, baseline (mean score
    of the siblings).
    """
    survey = survey_of(tree, settings)
    children = survey.children()
    expected = expected_rewards(survey, children)
    scales = [
        scale_of(_entries(survey, siblings, expected), settings.normalise)
        for siblings in children
    ]
    credits = []
    for step, parent in enumerate(survey.parents):
        reason = survey.masked[step]
        if reason is not None:
            credits.append(unassigned(step, reason))
            continue
        scale = scales[parent]
        penalty = survey.penalties[step]
        parts = {
            "expected": expected[step],
            "penalty": penalty,
            "baseline": scale.center,
        }
        credits.append(survey.credited(step, scale(expected[step] - penalty), parts))
    return Credit(task=tree.task.id, method="treerpo", steps=credits)


def _entries(survey: Survey, siblings: list[int], expected: list[float]) -> list[Entry]:
    """The group of siblings: every child counts once."""
    return [(step, expected[step] - survey.penalties[step], 1.0) for step in siblings]


def evidence(tree: Tree, settings: TreerpoSettings, row: int) -> Evidence:
    """What EQUATIONS need for one row."""
    survey = survey_of(tree, settings)
    children = survey.children()
    siblings = children[survey.parents[row]]
    entries = _entries(survey, siblings, expected_rewards(survey, children))
    scale = scale_of(entries, settings.normalise)
    evidence = Evidence()
    add_penalty(evidence, survey, row)
    what = (
        "scores expected - penalty of the steps that were sampled from the same state"
    )
    evidence.group(
        "siblings", what, entries, {siblings.index(row)}, scale, settings.normalise
    )
    return evidence
