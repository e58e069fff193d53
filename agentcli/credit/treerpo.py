"""treerpo: grpo among siblings, every child scored with its expected reward (TreeRPO as in 003 App. C.5).

    E[R(u)] = mean over the children's E[R]        A(u -> v) = (E[R(v)] - mean) / (std + 1e-6) over the children of u

Steps with one parent were sampled from one state and are the group; an only child has nobody to be compared with and gets 0. The
penalty of an invalid step lowers its own score and no expectation. Errored children are left out.
"""

from agentcli.credit.account import Sheet
from agentcli.credit.carl import expected_rewards
from agentcli.credit.common import Normalise, PenaltySwitches, unassigned
from agentcli.credit.group import scale_of, survey
from agentcli.credit.terms import charge, end_line, penalty_of
from agentcli.records.types import Credit, Tree

WITHOUT = {
    "over": "its groups are siblings: every child counts once",
    "prefix": "a shared step has one expectation",
    "form": "there is one form",
}


class TreerpoSettings(PenaltySwitches, kw_only=True):
    """Raises UsageError naming the field."""

    normalise: Normalise = "std"
    """std: (x - mean) / (std + 1e-6), ddof 1. mean: x - mean."""


def assign(tree: Tree, settings: TreerpoSettings) -> Credit:
    """One StepCredit per step. parts: expected (E[R(v)]), penalty, baseline (mean score of the siblings)."""
    seen = survey(tree, settings)
    children = seen.children()
    expected = expected_rewards(seen, children)
    scores = [value - penalty for value, penalty in zip(expected, seen.penalties, strict=False)]
    scales = [scale_of([(scores[n], 1.0) for n in siblings], settings.normalise) for siblings in children]
    credits = []
    for step, parent in enumerate(seen.parents):
        reason = seen.masked[step]
        if reason is not None:
            credits.append(unassigned(step, reason))
            continue
        scale = scales[parent]
        parts = {"expected": expected[step], "penalty": seen.penalties[step], "baseline": scale.center}
        credits.append(seen.credited(step, scale(scores[step]), parts))
    return Credit(task=tree.task.id, method="treerpo", steps=credits)


def explain(tree: Tree, settings: TreerpoSettings, row: int) -> Sheet:
    """The account of one row."""
    sheet, seen = Sheet(), survey(tree, settings)
    children = seen.children()
    siblings, expected = children[seen.parents[row]], expected_rewards(seen, children)
    sheet.given("E", expected[row], "expected reward after the step: mean over its children, up to the leaves")
    sheet.given("p", seen.penalties[row], penalty_of(seen))
    sheet.line("x", "E - p", "score of the step", "003 eq. 10")
    members = [(step, expected[step] - seen.penalties[step], 1.0) for step in siblings]
    group = sheet.group(
        "siblings", members, {siblings.index(row)}, "scores E - p of the steps sampled from the same state"
    )
    scale = scale_of([entry[1:] for entry in members], settings.normalise)
    what = "how its expected reward compares among its siblings"
    sheet.compare(end_line(seen), "x", group, scale, settings.normalise, what, "003 App. C.5")
    return charge(sheet, seen, row)
