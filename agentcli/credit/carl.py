"""carl: how much an action changes the expected outcome (CARL section 5, Algorithm 2).

Bottom up, the expected reward of a state (V in Algorithm 2) is the mean over its
children, no matter how much was forked below each of them (eq. 10):

    E[R(u)] = 1/n sum_v E[R(v)]        a leaf: its outcome reward

Top down, the advantage of the action u -> v is what it adds to that (eq. 11):

    A(u -> v) = E[R(v)] - E[R(u)]

Two passes suffice at any depth. The estimate is unbiased however unevenly the tree was
forked, as long as forks do not depend on the actions sampled (App. A.1). The forks of
Algorithm 1 do depend on them (docs/papers/carl.md, Deviations).

Only steps with a sibling are trained (eq. 13). `update: all` trains the others too: an
only child gets the advantage of the step before it (eq. 16; 0 at the root). Under
`critical` it stores that advantage as a part, for `train --update all`. Errored
children are left out.

The penalty p of an invalid step is charged to that step alone and changes no
expectation. It is baselined among siblings like the reward: A(u -> v) =
(E[R(v)] - p_v) - mean over siblings v' of (E[R(v')] - p_v'). An only child inherits no
penalty.
"""

import math
from typing import Literal

from agentcli.credit.equations import (
    ADVANTAGE,
    CHILDREN_MEAN,
    EXPECTED,
    Equation,
    Evidence,
)
from agentcli.credit.survey import ROOT, AdvantageParts, Survey, survey_of
from agentcli.credit.switches import Switches
from agentcli.errors import DataError
from agentcli.records.faults import shown
from agentcli.records.trees import first_phase, not_forked
from agentcli.records.types import INHERITED, Credit, Tree

ONLY_CHILD = "only child"
"""Marks a step that is left out because it has no siblings."""
FIRST_PHASE = "first phase"
"""Marks a step that is left out because its trajectory started from scratch."""


class CarlSettings(Switches, kw_only=True):
    """Settings of carl: which steps are trained."""

    update: Literal["critical", "all"] = "critical"
    """critical: train only steps that have a sibling (eq. 13). all: train the others
    too (eq. 16).
    """
    first_phase: Literal["all", "forked", "none"] = "all"
    """Which actions of the first N0 trajectories are trained. all: those with a
    sibling, as in any other trajectory (eq. 13). forked: those whose state was forked
    later; the N0 first actions are siblings from the start and do not count as forked.
    none: none of them (App. C.1). The last two need N0, which is Tree.roots.
    """


def assign(tree: Tree, settings: CarlSettings) -> Credit:
    """Returns one StepCredit per step.

    parts: expected (E[R(v)]), baseline (E[R(u)]), outcome and penalty (the summands).
    An only child without an advantage has only the part inherited. Raises DataError
    where `first_phase` needs Tree.roots and the tree has none.
    """
    survey = survey_of(tree, settings)
    children = survey.children()
    expected = expected_rewards(survey)
    mean_penalties = _mean_penalties(survey, children)
    gains = [0.0] * len(expected)
    left_out = _left_out(tree, survey, settings)
    # Algorithm 2, lines 14-22, top down: parents come first. The root's E[R], and its
    # gain of 0, are the last elements, where the parent ROOT = -1 finds them.
    for step, parent in enumerate(survey.parents):
        critical = len(children[parent]) > 1  # |child(s)| > 1 of CARL eq. 13
        if critical:
            gains[step] = expected[step] - expected[parent]  # CARL eq. 11
        else:
            gains[step] = gains[parent]  # CARL eq. 16
        # Only after the gain: an only child below a masked step still inherits it.
        if survey.masked[step] is not None:
            continue
        # Tested before eq. 13: an only child that is left out may still be trained, by
        # `train --update all`; a step of the first phase may not.
        if step in left_out:
            survey.masked[step] = FIRST_PHASE
        elif settings.update == "critical" and not critical:
            survey.masked[step] = ONLY_CHILD

    def advantage(step: int, parent: int) -> AdvantageParts:
        penalty = 0.0
        if len(children[parent]) > 1:
            penalty = mean_penalties[parent] - survey.penalties[step]
        parts = {
            "expected": expected[step],
            "baseline": expected[parent],
            "outcome": gains[step],
            "penalty": penalty,
        }
        return gains[step] + penalty, parts

    def facts(row: int, step: int, parent: int) -> Evidence:
        # An only child is explained by the nearest earlier step that has siblings.
        while step != ROOT and len(children[survey.parents[step]]) < 2:
            step = survey.parents[step]
        return _facts(survey, expected, row, step)

    rows = enumerate(survey.parents)
    credit = survey.credit("carl", rows, advantage, facts=facts)
    for row in credit.steps:
        if row.masked == ONLY_CHILD:
            row.parts = {INHERITED: gains[row.step]}
    return credit


def _mean_penalties(survey: Survey, children: list[list[int]]) -> list[float]:
    """Mean penalty of the children of every step; the root's is the last element."""
    means = []
    for siblings in children:
        penalties = [survey.penalties[step] for step in siblings]
        means.append(math.fsum(penalties) / (len(siblings) or 1))
    return means


def _left_out(tree: Tree, survey: Survey, settings: CarlSettings) -> set[int]:
    """The steps of the first phase that are not trained.

    Raises DataError for a tree that does not record its first phase (Tree.roots).
    """
    if settings.first_phase == "all":
        return set()
    if tree.roots is None:
        raise DataError(
            f"task {shown(tree.task.id)}: roots: is not set, so the first phase is "
            "not known; sample with rollout --method carl (treerl, treerpo, arpo, "
            "spark), or leave credit.first_phase at all"
        )
    if settings.first_phase == "none":
        return first_phase(tree)
    # A fork that only errored left its state with nothing to compare.
    live = {step for step, alive in enumerate(survey.live) if alive}
    return not_forked(tree, live)


def expected_rewards(survey: Survey) -> list[float]:
    """E[R] after every step, with the root's as the last element (CARL eq. 10).

    It is 0 where all leaves below errored.
    """
    children = survey.children()
    expected = list(survey.rewards)
    # Algorithm 2, lines 4-13. Falling ids visit children before parents, as the paper's
    # post-order does, at any depth; the root comes last.
    for state in (*range(len(survey.parents) - 1, -1, -1), ROOT):
        below = children[state]
        if len(below) == 1:
            expected[state] = expected[below[0]]
        elif below:
            expected[state] = math.fsum([expected[n] for n in below]) / len(below)
    return expected


def _facts(survey: Survey, expected: list[float], row: int, step: int) -> Evidence:
    """What EQUATIONS need for `row`; `step` is the one whose gain it has."""
    if step == ROOT:
        return Evidence(equations=UNFORKED_EQUATIONS)
    evidence = Evidence()
    siblings = survey.children()[survey.parents[step]]
    places = {siblings.index(step)}
    words = "expected rewards after the steps that were sampled from one state"
    members = [(sibling, expected[sibling], 1.0) for sibling in siblings]
    evidence.group("siblings", words, members, places)
    if step != row:
        evidence.equations = ONLY_CHILD_EQUATIONS
        words = f"expected reward after step {step}: {CHILDREN_MEAN}"
        evidence.add("expected_above", expected[step], words)
        evidence.words[ADVANTAGE] = f"an only child takes the gain of step {step}"
        return evidence
    words = "penalties of the siblings, of invalid steps only"
    members = [(sibling, survey.penalties[sibling], 1.0) for sibling in siblings]
    evidence.group("penalties", words, members, places)
    evidence.add("own_penalty", survey.penalties[step])
    return evidence


EQUATIONS = (
    EXPECTED,
    Equation(
        "baseline",
        "mean_siblings",
        "expected reward of the state that it leaves",
        "CARL eq. 10",
    ),
    Equation(
        "outcome",
        "expected - baseline",
        "what the action adds to the expected reward",
        "CARL eq. 11",
    ),
    Equation("own_penalty", None, "penalty, of an invalid step only"),
    Equation(
        "penalty",
        "mean_penalties - own_penalty",
        "the penalty, baselined among siblings",
    ),
    Equation(
        ADVANTAGE,
        "outcome + penalty",
        "of a step with siblings; the penalty is ours",
        "CARL eq. 11",
    ),
)
ONLY_CHILD_EQUATIONS = (
    Equation(
        "expected_above",
        None,
        "expected reward after the nearest step before it that has siblings",
    ),
    Equation(
        ADVANTAGE,
        "expected_above - mean_siblings",
        "an only child takes the gain of that step",
        "CARL eq. 11, 16",
    ),
)
UNFORKED_EQUATIONS = (
    Equation(
        ADVANTAGE,
        "0",
        "neither it nor any step before it has a sibling to be compared with",
        "CARL eq. 16",
    ),
)
