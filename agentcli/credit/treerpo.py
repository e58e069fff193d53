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
from agentcli.credit.group import scale_of
from agentcli.credit.leaves import add_penalty
from agentcli.credit.survey import AdvantageParts, survey_of
from agentcli.credit.switches import NormalisedSwitches
from agentcli.records.types import Credit, Tree


class TreerpoSettings(NormalisedSwitches, kw_only=True):
    """Settings of treerpo: the switches of a group of siblings."""


def assign(tree: Tree, settings: TreerpoSettings) -> Credit:
    """Returns one StepCredit per step.

    parts: expected (E[R(v)]), penalty, baseline (mean score of the siblings).
    """
    survey = survey_of(tree, settings)
    expected = expected_rewards(survey)
    children = survey.children()
    groups = []
    for siblings in children:
        group = [(n, expected[n] - survey.penalties[n], 1.0) for n in siblings]
        groups.append(group)
    # An only child has no sibling to compare with: scale_of gives it 0.
    scales = [scale_of(group, settings.normalise) for group in groups]

    def advantage(step: int, parent: int) -> AdvantageParts:
        scale = scales[parent]
        penalty = survey.penalties[step]
        parts = {
            "expected": expected[step],
            "penalty": penalty,
            "baseline": scale.center,
        }
        return scale(expected[step] - penalty), parts

    def facts(_: int, step: int, parent: int) -> Evidence:
        evidence = Evidence()
        add_penalty(evidence, survey, step)
        words = (
            "scores expected - penalty of the steps that were sampled from the same "
            "state"
        )
        places = {children[parent].index(step)}
        scale = scales[parent]
        evidence.group(
            "siblings", words, groups[parent], places, scale, settings.normalise
        )
        return evidence

    rows = enumerate(survey.parents)
    return survey.credit("treerpo", rows, advantage, facts=facts)


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
