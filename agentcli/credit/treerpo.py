"""treerpo: grpo among siblings, with each child scored by its expected reward.

TreeRPO as in CARL App. C.5:

    E[R(u)] = mean over the children's E[R]
    A(u -> v) = (E[R(v)] - mean) / (std + 1e-6)        over the children of u

A group is the steps with the same parent, which were sampled from one state. The
penalty of an invalid step lowers its own score but no expectation. Errored children are
left out.
"""

from agentcli.credit.carl import expected_rewards
from agentcli.credit.equations import ADVANTAGE, EXPECTED, PENALTY, Equation, Evidence
from agentcli.credit.group import Entry, scale_of
from agentcli.credit.survey import AdvantageParts, Survey, survey_of
from agentcli.credit.switches import NormalisedSwitches
from agentcli.credit.terms import add_penalty
from agentcli.records.types import Credit, Tree

WITHOUT = {
    "over": "its groups are siblings: every child counts once",
    "prefix": "a shared step has one expectation",
    "form": "there is one form",
}
EQUATIONS = (
    EXPECTED,
    PENALTY,
    Equation(
        ADVANTAGE,
        "expected - penalty",
        "how its expected reward compares among its siblings",
        "CARL App. C.5",
        among="siblings",
    ),
)


class TreerpoSettings(NormalisedSwitches, kw_only=True):
    """Settings of treerpo: the switches of a group of siblings."""


def assign(tree: Tree, settings: TreerpoSettings) -> Credit:
    """Returns one StepCredit per step.

    parts: expected (E[R(v)]), penalty, baseline (mean score of the siblings).
    """
    survey = survey_of(tree, settings)
    expected = expected_rewards(survey)
    # An only child has no sibling to compare with: scale_of gives it 0.
    scales = []
    for siblings in survey.children():
        scores = _scores(survey, siblings, expected)
        scales.append(scale_of(scores, settings.normalise))

    def advantage(step: int, parent: int) -> AdvantageParts:
        scale = scales[parent]
        penalty = survey.penalties[step]
        parts = {
            "expected": expected[step],
            "penalty": penalty,
            "baseline": scale.center,
        }
        return scale(expected[step] - penalty), parts

    return survey.credit("treerpo", enumerate(survey.parents), advantage)


def _scores(
    survey: Survey,
    siblings: list[int],
    expected: list[float],
) -> list[Entry]:
    """The entries of a group of siblings; every child counts once."""
    return [(step, expected[step] - survey.penalties[step], 1.0) for step in siblings]


def evidence(
    tree: Tree,
    settings: TreerpoSettings,
    row: int,
) -> Evidence:
    """The evidence that EQUATIONS need for one row."""
    survey = survey_of(tree, settings)
    siblings = survey.children()[survey.parents[row]]
    scores = _scores(survey, siblings, expected_rewards(survey))
    evidence = Evidence()
    add_penalty(evidence, survey, row)
    evidence.group(
        "siblings",
        "scores expected - penalty of the steps that were sampled from the same state",
        scores,
        {siblings.index(row)},
        scale_of(scores, settings.normalise),
        settings.normalise,
    )
    return evidence
