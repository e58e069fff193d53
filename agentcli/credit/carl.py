"""carl: how much an action changes the expected outcome (003 section 5, Algorithm 2).

Bottom up, the expected reward of a state is the mean over its children, whatever was forked below them (eq. 10):

    E[R(u)] = 1/n sum_v E[R(v)]        a leaf: its outcome reward

Top down, the advantage of the action u -> v is what it adds (eq. 11):

    A(u -> v) = E[R(v)] - E[R(u)]

Two passes, any depth. Each child being a sample of the policy, the estimate is unbiased however unevenly the tree was forked
(App. A.1). Only steps with a sibling are trained (eq. 13); `update: all` trains the rest too, an only child taking the advantage of
the step before it (eq. 16; 0 at the root). Without an advantage it still carries it as a part, for `train --update all`. Errored
children are left out.
The penalty p of an invalid step is its own: it changes no expectation and is baselined among siblings like the reward,
A(u -> v) = (E[R(v)] - p_v) - mean over siblings v' of (E[R(v')] - p_v'); an only child inherits no penalty.
"""

import math
from typing import Literal

from agentcli.credit.account import ADVANTAGE, Sheet
from agentcli.credit.common import ONLY_CHILD, Switches, unassigned
from agentcli.credit.group import ROOT, Survey, survey
from agentcli.records.types import INHERITED, Credit, StepCredit, Tree

WITHOUT = {
    "normalise": "a difference of expectations is divided by nothing",
    "penalty": "it divides by no std: a penalty costs at most itself, and is baselined among siblings",
    "over": "its baseline is the mean over siblings, not over a group",
    "prefix": "a shared step has one expectation",
    "form": "there is one form",
}


class CarlSettings(Switches, kw_only=True):
    """Raises UsageError naming the field."""

    update: Literal["critical", "all"] = "critical"
    """critical: only steps that have a sibling (eq. 13). all: also the others (eq. 16)."""


def assign(tree: Tree, settings: CarlSettings) -> Credit:
    """One StepCredit per step. parts: expected (E[R(v)]), baseline (E[R(u)]), outcome and penalty (the summands); of an only
    child that gets no advantage: inherited."""
    seen = survey(tree, settings)
    children = seen.children()
    expected = expected_rewards(seen, children)
    charges = [math.fsum([seen.penalties[n] for n in siblings]) / (len(siblings) or 1) for siblings in children]
    gains = [0.0] * (len(tree.steps) + 1)
    credits = []
    for step, parent in enumerate(seen.parents):
        critical = len(children[parent]) > 1
        gains[step] = expected[step] - expected[parent] if critical else gains[parent]
        reason = seen.masked[step] or (None if critical or settings.update == "all" else ONLY_CHILD)
        if reason is not None:
            inherited = {INHERITED: gains[step]} if reason == ONLY_CHILD else {}
            credits.append(unassigned(step, reason, inherited))
            continue
        penalty = charges[parent] - seen.penalties[step] if critical else 0.0
        parts = {"expected": expected[step], "baseline": expected[parent], "outcome": gains[step], "penalty": penalty}
        credits.append(StepCredit(step=step, advantage=gains[step] + penalty, parts=parts))
    return Credit(task=tree.task.id, method="carl", steps=credits)


def expected_rewards(seen: Survey, children: list[list[int]]) -> list[float]:
    """E[R] after every step, and of the root as last element (eq. 10); 0 where all leaves below errored."""
    expected = list(seen.rewards)
    for state in (*range(len(seen.parents) - 1, -1, -1), ROOT):
        below = children[state]
        if len(below) == 1:
            expected[state] = expected[below[0]]
        elif below:
            expected[state] = math.fsum([expected[n] for n in below]) / len(below)
    return expected


def explain(tree: Tree, settings: CarlSettings, row: int) -> Sheet:
    """The account of one row: that of the nearest step with a sibling, whose gain an only child takes."""
    sheet, seen = Sheet(), survey(tree, settings)
    children = seen.children()
    expected, step = expected_rewards(seen, children), row
    while step != ROOT and len(children[seen.parents[step]]) < 2:
        step = seen.parents[step]
    if step == ROOT:
        sheet.line(ADVANTAGE, "0", "neither it nor any step before it has a sibling to be compared with", "003 eq. 16")
        return sheet
    siblings = children[seen.parents[step]]
    own = {siblings.index(step)}
    states = [(sibling, expected[sibling], 1.0) for sibling in siblings]
    sheet.group("siblings", states, own, "expected rewards E[R(v)] of the steps sampled from one state")
    sheet.given("E_v", expected[step], f"expected reward after step {step}: mean over its children, up to the leaves")
    if step != row:
        what = f"an only child takes the gain of step {step}"
        sheet.line(ADVANTAGE, "E_v - mean_siblings", what, "003 eq. 11, 16")
        return sheet
    sheet.line("outcome", "E_v - mean_siblings", "what the action adds to the expected reward", "003 eq. 10-11")
    charged = [(sibling, seen.penalties[sibling], 1.0) for sibling in siblings]
    sheet.group("penalties", charged, own, "penalties of the siblings, of invalid steps only")
    sheet.given("p", seen.penalties[step], "its own")
    sheet.line("penalty", "mean_penalties - p", "the penalty, baselined among siblings")
    sheet.line(ADVANTAGE, "outcome + penalty", "of a step with siblings", "003 eq. 13")
    return sheet
