"""carl: how much an action changes the expected outcome (003 section 5, Algorithm 2).

Bottom up, the expected reward of a state is the mean over its children, whatever was forked below them (eq. 10):

    E[R(u)] = 1/n sum_v E[R(v)]        a leaf: its outcome reward

Top down, the advantage of the action u -> v is what it adds (eq. 11):

    A(u -> v) = E[R(v)] - E[R(u)]

Two passes, any depth. Each child being a sample of the policy, the estimate is unbiased however unevenly the tree was forked
(App. A.1). Only steps with a sibling are trained (eq. 13); `update: all` trains the rest too, an only child taking the advantage of
the step before it (eq. 16; 0 at the root). Without an advantage it still carries it as a part, for `train --update all`. Errored
children are left out. `first_phase` leaves out actions of the first N0 trajectories, which started from scratch (Tree.roots); the
advantages of the others still rest on all leaves.
The penalty p of an invalid step is its own: it changes no expectation and is baselined among siblings like the reward,
A(u -> v) = (E[R(v)] - p_v) - mean over siblings v' of (E[R(v')] - p_v'); an only child inherits no penalty.
"""

import math
from typing import Literal

from agentcli.credit.account import ADVANTAGE, Sheet
from agentcli.credit.common import FIRST_PHASE, ONLY_CHILD, Switches, unassigned
from agentcli.credit.group import ROOT, Survey, survey
from agentcli.errors import DataError
from agentcli.records.faults import shown
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
    first_phase: Literal["all", "forked", "none"] = "all"
    """Which actions of the first N0 trajectories are trained. all: those with a sibling, as of any other (eq. 13). forked: those
    whose state was forked later; the N0 first actions are siblings from the start and do not count as forked. none: no action of
    theirs (App. C.1). The |D_upd| of 003 Table 2 fits `forked` for the 4B model (32.0 = 2N) and neither for 3B. Needs trees that
    say N0 (Tree.roots)."""


def assign(tree: Tree, settings: CarlSettings) -> Credit:
    """One StepCredit per step. parts: expected (E[R(v)]), baseline (E[R(u)]), outcome and penalty (the summands); of an only
    child that gets no advantage: inherited."""
    seen = survey(tree, settings)
    children = seen.children()
    expected = expected_rewards(seen, children)
    charges = [math.fsum([seen.penalties[n] for n in siblings]) / (len(siblings) or 1) for siblings in children]
    gains = [0.0] * (len(tree.steps) + 1)
    left_out = _left_out(tree, seen, settings)
    credits = []
    for step, parent in enumerate(seen.parents):
        critical = len(children[parent]) > 1
        gains[step] = expected[step] - expected[parent] if critical else gains[parent]
        reason = seen.masked[step]
        if reason is None and step in left_out:
            reason = FIRST_PHASE
        elif reason is None and not critical and settings.update == "critical":
            reason = ONLY_CHILD
        if reason is not None:
            inherited = {INHERITED: gains[step]} if reason == ONLY_CHILD else {}
            credits.append(unassigned(step, reason, inherited))
            continue
        penalty = charges[parent] - seen.penalties[step] if critical else 0.0
        parts = {"expected": expected[step], "baseline": expected[parent], "outcome": gains[step], "penalty": penalty}
        credits.append(StepCredit(step=step, advantage=gains[step] + penalty, parts=parts))
    return Credit(task=tree.task.id, method="carl", steps=credits)


def _left_out(tree: Tree, seen: Survey, settings: CarlSettings) -> set[int]:
    """The steps of the first phase that are not trained. Raises DataError for a tree that does not say what its first phase is."""
    if settings.first_phase == "all":
        return set()
    if tree.roots is None:
        raise DataError(
            f"task {shown(tree.task.id)}: roots: is not set, so the first phase is not known; sample with rollout --method carl "
            "(treerl, treerpo, arpo, spark), or leave credit.first_phase at all"
        )
    first = first_phase(seen.parents, tree.roots)
    if settings.first_phase == "none":
        return first
    forked = {parent for step, parent in enumerate(seen.parents) if seen.live[step] and step not in first}
    return {step for step in first if seen.parents[step] not in forked}


def first_phase(parents: list[int], roots: int) -> set[int]:
    """The steps of the first `roots` trajectories: the first children of the initial state, and from there the first child of
    each, in the order of their ids."""
    found: set[int] = set()
    begun = 0
    continued: set[int] = set()
    for step, parent in enumerate(parents):
        if parent == ROOT:
            begun += 1
            if begun <= roots:
                found.add(step)
        elif parent in found and parent not in continued:
            continued.add(parent)
            found.add(step)
    return found


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
