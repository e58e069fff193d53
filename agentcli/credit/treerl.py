"""treerl: how much better a state is than the root and than its parent, by the leaves below it (TreeRL as in 003 eq. 26-27).

    V(s) = mean outcome reward over L(s), the leaves below s
    A(s) = |L(s)|^-1/2 * ((V(s) - V(root)) + (V(s) - V(parent)))

The penalty p of an invalid step lowers its own score, V(s) - p, against baselines that hold the same penalties: V(root) is then the
group's mean of group.outcome_scale, V(parent) the mean of the siblings' scores, each with the weight |L|. Without invalid steps
that is eq. 27. Values are means over leaves, hence biased where forking is uneven (003 App. A.1): carl's are not.
"""

from agentcli.credit.account import ADVANTAGE, Sheet
from agentcli.credit.common import Switches, unassigned
from agentcli.credit.group import ROOT, mean_penalty, survey
from agentcli.credit.terms import leaf_group, row_outcome, told
from agentcli.records.types import Credit, StepCredit, Tree

WITHOUT = {
    "normalise": "eq. 27 weighs by |L(s)|^-1/2 and divides by no std",
    "penalty": "it divides by no std: a penalty costs at most twice itself",
    "over": "its values are means over leaves",
    "prefix": "a shared step has one value",
    "form": "there is one form",
}


class TreerlSettings(Switches, kw_only=True):
    """The switches of every method only."""


def assign(tree: Tree, settings: TreerlSettings) -> Credit:
    """One StepCredit per step. parts: value (V(s)), penalty, global and local (the two differences), leaves (|L(s)|)."""
    seen = survey(tree, settings)
    whole = seen.rewards[ROOT] - mean_penalty(seen)
    alone = seen.live[ROOT] == 1
    charged = [0] * (len(tree.steps) + 1)
    for step, parent in enumerate(seen.parents):
        charged[parent] += seen.live[step] * seen.invalid[step]
    credits = []
    for step, parent in enumerate(seen.parents):
        reason = seen.masked[step]
        if reason is not None:
            credits.append(unassigned(step, reason))
            continue
        leaves = seen.live[step]
        score = seen.rewards[step] - seen.penalties[step]
        above = seen.rewards[parent] - settings.invalid_penalty * charged[parent] / seen.live[parent]
        parts = {
            "value": seen.rewards[step],
            "penalty": seen.penalties[step],
            "global": 0.0 if alone else score - whole,
            "local": score - above,
            "leaves": float(leaves),
        }
        credits.append(StepCredit(step=step, advantage=(parts["global"] + parts["local"]) * leaves**-0.5, parts=parts))
    return Credit(task=tree.task.id, method="treerl", steps=credits)


def explain(tree: Tree, settings: TreerlSettings, row: int) -> Sheet:
    """The account of one row."""
    sheet, seen = Sheet(), survey(tree, settings)
    about, parent = told(seen, "merge", row), seen.parents[row]
    row_outcome(sheet, tree, seen, about, settings)
    sheet.line("x", "R - p", "score of the step: V(s) less its penalty")
    leaf_group(sheet, seen, about, "paper", "trajectories", "merge")
    if seen.live[ROOT] == 1:
        sheet.line("against_root", "0", "a single trajectory has nobody to be compared with", "003 eq. 26-27")
    else:
        sheet.line("against_root", "x - mean_leaves", "the mean over all leaves", "003 eq. 26-27")
    siblings = seen.children()[parent]
    members = [(step, seen.rewards[step] - seen.penalties[step], float(seen.live[step])) for step in siblings]
    what = "scores of the steps sampled from the same state, by their leaves"
    sheet.group("parent", members, {siblings.index(row)}, what)
    sheet.line("against_parent", "x - mean_parent", "the mean over the leaves below it", "003 eq. 26-27")
    sheet.line(
        ADVANTAGE,
        "(against_root + against_parent) * leaves ** -0.5",
        "weighed by how many leaves share it",
        "003 eq. 27",
    )
    return sheet
