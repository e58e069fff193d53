"""treerl: compares a state with the root and with its parent (CARL eq. 26-27).

TreeRL values a state by the leaves below it:

    V(s) = mean outcome reward over L(s), the leaves below s
    A(s) = |L(s)|^-1/2 * ((V(s) - V(root)) + (V(s) - V(parent)))

The penalty p of an invalid step lowers its own score to V(s) - p. The baselines include
the penalties as well: V(root) becomes the group's mean in leaves.Leaves, and
V(parent) the mean of the siblings' scores, weighted by |L|. Without invalid steps this
is eq. 27. Values are means over leaves, so uneven forking biases them (CARL App. A.1);
carl's values are unbiased.
"""

import math

from agentcli.credit.equations import ADVANTAGE, PENALTY, Equation, Evidence
from agentcli.credit.group import Scale
from agentcli.credit.leaves import EARNED, Leaves, path_counts
from agentcli.credit.survey import ROOT, AdvantageParts, Survey, survey_of
from agentcli.credit.switches import Switches
from agentcli.records.types import Credit, Tree


class TreerlSettings(Switches, kw_only=True):
    """Settings of treerl: only the basic switches."""


def assign(tree: Tree, settings: TreerlSettings) -> Credit:
    """Returns one StepCredit per step.

    parts: value (V(s)), penalty, global and local (the two differences), leaves
    (|L(s)|).
    """
    survey = survey_of(tree, settings)
    rewards = survey.rewards
    root_score = rewards[ROOT] - mean_penalty(survey)
    single = survey.live[ROOT] == 1
    # By state: the leaves below its invalid children, each with one penalty.
    penalised = [0] * len(survey.live)
    for step, own in enumerate(survey.penalised):
        # A child counts once per leaf, as V(parent) does.
        penalised[survey.parents[step]] += survey.live[step] * own

    def advantage(step: int, parent: int) -> AdvantageParts:
        leaves = survey.live[step]
        score = rewards[step] - survey.penalties[step]
        penalty_above = (
            settings.invalid_penalty * penalised[parent] / survey.live[parent]
        )
        # V(s) - V(root), the global term of eq. 27.
        above_root = score - root_score
        if single:
            # A single trajectory has no other to compare with.
            above_root = 0.0
        # V(s) - V(parent), the local term.
        above_parent = score - (rewards[parent] - penalty_above)
        parts = {
            "value": rewards[step],
            "penalty": survey.penalties[step],
            "global": above_root,
            "local": above_parent,
            "leaves": float(leaves),
        }
        return (above_root + above_parent) * leaves**-0.5, parts  # CARL eq. 27

    group = Leaves(survey, settings, "mean")
    # Set by hand: Leaves gives 0 to a group without spread, and treerl's formula has
    # no such rule.
    group.scale = Scale(root_score, 0.0 if single else 1.0)

    def facts(row: int, step: int, parent: int) -> Evidence:
        evidence = group.facts(row, step)
        siblings = survey.children()[parent]
        scores = []
        for n in siblings:
            score = rewards[n] - survey.penalties[n]
            scores.append((n, score, float(survey.live[n])))
        words = (
            "scores of the steps that were sampled from the same state, by their leaves"
        )
        evidence.group("parent", words, scores, {siblings.index(step)})
        return evidence

    rows = enumerate(survey.parents)
    return survey.credit("treerl", rows, advantage, facts=facts)


def mean_penalty(survey: Survey) -> float:
    """The mean penalty per step of each live trajectory, averaged; 0 without any."""
    # Penalties are 0 or p, so the largest is p.
    penalty = max(survey.penalties, default=0.0)
    trajectories = survey.live[ROOT]
    if not penalty or not trajectories:
        return 0.0
    counts = path_counts(survey)
    shares = []
    for end in survey.live_ends():
        shares.append(counts.invalid[end] / (counts.length[end] or 1))
    return penalty * math.fsum(shares) / trajectories


EQUATIONS = (
    EARNED,
    Equation("leaves", None, "leaves below it that did not error"),
    Equation(
        "value",
        "success_reward * earned / leaves",
        "V(s): mean outcome reward over them",
    ),
    PENALTY,
    Equation(
        "global_",
        "value - penalty",
        "against the mean over all leaves",
        "CARL eq. 26-27",
        among="leaves",
    ),
    Equation(
        "local",
        "value - penalty - mean_parent",
        "against the mean over its parent's leaves",
        "CARL eq. 26-27",
    ),
    Equation(
        ADVANTAGE,
        "(global_ + local) * leaves ** -0.5",
        "weighed by how many leaves share it",
        "CARL eq. 27",
    ),
)
