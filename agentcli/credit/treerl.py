"""treerl: how much better a state is than the root and than its parent, by the leaves
below it (TreeRL as in 003 eq. 26-27).

    V(s) = mean outcome reward over L(s), the leaves below s
    A(s) = |L(s)|^-1/2 * ((V(s) - V(root)) + (V(s) - V(parent)))

The penalty p of an invalid step lowers its own score, V(s) - p, against baselines that
hold the same penalties: V(root) is then the group's mean of group.outcome_scale,
V(parent) the mean of the siblings' scores, each with the weight |L|. Without invalid
steps that is eq. 27. Values are means over leaves, hence biased where forking is uneven
(003 App. A.1): carl's are not.
"""

from agentcli.credit.common import Switches, unassigned
from agentcli.credit.equations import ADVANTAGE, Equation, Evidence
from agentcli.credit.group import ROOT, Scale, mean_penalty, survey_of
from agentcli.credit.terms import outcome_evidence, row_leaves
from agentcli.records.types import Credit, StepCredit, Tree

WITHOUT = {
    "normalise": "eq. 27 weighs by |L(s)|^-1/2 and divides by no std",
    "penalty": "it divides by no std: a penalty costs at most twice itself",
    "over": "its values are means over leaves",
    "prefix": "a shared step has one value",
    "form": "there is one form",
}
EQUATIONS = (
    Equation("earned", None, "of its leaves that succeeded"),
    Equation("leaves", None, "leaves below it that did not error"),
    Equation(
        "value",
        "success_reward * earned / leaves",
        "V(s): mean outcome reward over them",
    ),
    Equation("penalty", None, "penalty, of an invalid step only"),
    Equation(
        "global_",
        "value - penalty",
        "against the mean over all leaves",
        "003 eq. 26-27",
        among="leaves",
    ),
    Equation(
        "local",
        "value - penalty - mean_parent",
        "against the mean over its parent's leaves",
        "003 eq. 26-27",
    ),
    Equation(
        ADVANTAGE,
        "(global_ + local) * leaves ** -0.5",
        "weighed by how many leaves share it",
        "003 eq. 27",
    ),
)


class TreerlSettings(Switches, kw_only=True):
    """The switches of every method only."""


def assign(tree: Tree, settings: TreerlSettings) -> Credit:
    """One StepCredit per step. parts: value (V(s)), penalty, global and local (the two
    differences), leaves (|L(s)|).
    """
    survey = survey_of(tree, settings)
    whole = survey.rewards[ROOT] - mean_penalty(survey)
    alone = survey.live[ROOT] == 1
    # Per state the leaves below its invalid children, which hold a penalty each.
    penalised = [0] * (len(tree.steps) + 1)
    for step, parent in enumerate(survey.parents):
        penalised[parent] += survey.live[step] * survey.invalid[step]
    credits = []
    for step, parent in enumerate(survey.parents):
        reason = survey.masked[step]
        if reason is not None:
            credits.append(unassigned(step, reason))
            continue
        leaves = survey.live[step]
        score = survey.rewards[step] - survey.penalties[step]
        above = (
            survey.rewards[parent]
            - settings.invalid_penalty * penalised[parent] / survey.live[parent]
        )
        parts = {
            "value": survey.rewards[step],
            "penalty": survey.penalties[step],
            "global": 0.0 if alone else score - whole,
            "local": score - above,
            "leaves": float(leaves),
        }
        advantage = (parts["global"] + parts["local"]) * leaves**-0.5
        credits.append(StepCredit(step=step, advantage=advantage, parts=parts))
    return Credit(task=tree.task.id, method="treerl", steps=credits)


def evidence(tree: Tree, settings: TreerlSettings, row: int) -> Evidence:
    """What EQUATIONS need for one row."""
    survey = survey_of(tree, settings)
    step, ends = row_leaves(survey, "merge", row)
    # A single trajectory is compared with nobody.
    factor = 0.0 if survey.live[ROOT] == 1 else 1.0
    evidence = outcome_evidence(
        tree, survey, settings, step, ends, Scale(0.0, factor), "mean"
    )
    siblings = survey.children()[survey.parents[step]]
    entries = [
        (n, survey.rewards[n] - survey.penalties[n], float(survey.live[n]))
        for n in siblings
    ]
    what = "scores of the steps that were sampled from the same state, by their leaves"
    evidence.group("parent", what, entries, {siblings.index(step)})
    return evidence
