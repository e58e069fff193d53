"""What the tables of several methods share: the outcome of a row among the group of
leaves, and what follows a step.
"""

from collections.abc import Sequence

from agentcli.credit.common import NO_SCORE, Switches, scores
from agentcli.credit.equations import ADVANTAGE, Equation, Evidence
from agentcli.credit.group import Entry, Grouping, Scale, Survey, outcome_entries, rows
from agentcli.records.types import Outcome, Tree

GRPO = "002 eq. 8"
"""The outcome normalised over the group."""

OUTCOME = (
    Equation("earned", None, "of its leaves that succeeded"),
    Equation(
        "leaves",
        None,
        "leaves below it that did not error, whose outcomes the row holds",
    ),
    Equation("reward", "success_reward * earned / leaves", "outcome reward of the row"),
    Equation("penalty", None, "penalty, of an invalid step only"),
)
"""From the leaves of a row to its outcome reward."""


def outcome_among_leaves(
    name: str = ADVANTAGE,
    meaning: str = "how the outcome compares within the group of leaves",
    source: str = GRPO,
) -> tuple[Equation, ...]:
    """The table of group.outcome_scale: a row's outcome reward less its penalty, among
    the group.
    """
    return (
        *OUTCOME,
        Equation(name, "reward - penalty", meaning, source, among="leaves"),
    )


def row_leaves(survey: Survey, prefix: str | None, row: int) -> tuple[int, list[int]]:
    """The step of row number `row`, and the leaves that count whose outcomes the row
    holds.
    """
    steps = [step for step, _ in rows(survey, prefix)]
    step = steps[row]
    ends = ends_below(survey, step)
    if prefix != "merge":
        nth = steps[:row].count(step)
        ends = ends[nth : nth + 1]
    return step, ends


def ends_below(survey: Survey, step: int) -> list[int]:
    """The leaves below a step, itself included, that did not error."""
    # The last element is the root's: no step above the first ones is inside.
    inside = [False] * (len(survey.parents) + 1)
    for number, parent in enumerate(survey.parents):
        inside[number] = number == step or inside[parent]
    return [end for end in survey.live_ends() if inside[end]]


def outcome_evidence(
    tree: Tree,
    survey: Survey,
    switches: Switches,
    step: int,
    ends: list[int],
    scale: Scale,
    how: str,
) -> Evidence:
    """Evidence of `outcome_among_leaves`. `how` as in equations.ScoreGroup; `scale` is
    what the method made of the group.
    """
    evidence = Evidence()
    won = sum(tree.steps[end].outcome is Outcome.SUCCESS for end in ends)
    evidence.add("won", won, "of its leaves that succeeded")
    evidence.add("earned", won)
    if switches.outcome == "score":
        reached = scores(tree)
        total = sum([reached[end] for end in ends], NO_SCORE)
        evidence.add(
            "earned",
            float(total),
            "sum over its leaves of the world's own rewards along their trajectories",
        )
    evidence.add("leaves", len(ends))
    add_penalty(evidence, survey, step)
    add_leaf_group(evidence, survey, switches, step, ends, scale, how)
    return evidence


def add_penalty(evidence: Evidence, survey: Survey, step: int) -> None:
    """The penalty inside the step's score, and the one that is charged outside it."""
    outside = "0 inside the score: the penalty is charged after it"
    evidence.add(
        "penalty", survey.penalties[step], None if survey.charges is None else outside
    )
    evidence.words["charge"] = "penalty outside the comparison, of an invalid step only"


def add_leaf_group(
    evidence: Evidence,
    survey: Survey,
    switches: Switches,
    step: int,
    ends: list[int],
    scale: Scale,
    how: str,
) -> None:
    """The group of group.outcome_scale. A method without form, over or prefix has the
    paper's.
    """
    form = getattr(switches, "form", "paper")
    over = getattr(switches, "over", "trajectories")
    prefix = getattr(switches, "prefix", "merge")
    own_ids = set(ends)
    entries = outcome_entries(survey, over, prefix)
    if over == "steps" and prefix == "merge":
        what = "every step of the tree is one entry: reward - penalty"
        own_ids = {step}
    elif form == "release" and over == "trajectories":
        from agentcli.credit.release.group import release_entries

        entries = release_entries(survey, over, prefix)
        what = (
            "every leaf is one entry: its reward less the penalty of its "
            "trajectory's first step"
        )
    else:
        weighed = "1, however long" if over == "trajectories" else "its number of steps"
        what = (
            "the reward of the valid steps of a trajectory, reward - penalty of its "
            f"invalid ones; together they weigh {weighed}"
        )
    members = _merged(entries)
    own = {place for place, (member, _, _) in enumerate(members) if member in own_ids}
    evidence.group("leaves", what, members, own, scale, how)


def _merged(entries: Sequence[Entry]) -> list[Entry]:
    """The entries of one step with one score as one, their weights added."""
    weights: dict[tuple[int, float], float] = {}
    for step, score, weight in entries:
        weights[step, score] = weights.get((step, score), 0.0) + weight
    return [(step, score, weight) for (step, score), weight in weights.items()]


def add_group(
    evidence: Evidence, name: str, what: str, grouping: Grouping, place: int, how: str
) -> None:
    """The group of the entry at `place` in a grouping."""
    entries, position, scale = grouping.among(place)
    evidence.group(name, what, entries, {position}, scale, how)


def following(
    tree: Tree,
    survey: Survey,
    prefix: str | None,
    estimated: Sequence[tuple[int, float, float, float]],
    row: int,
) -> tuple[float, float, str]:
    """Mean value and advantage of what comes after a row of returns.estimated_rows, by
    leaves, and what that is in words.
    """
    step = estimated[row][0]
    if tree.steps[step].outcome is not None:
        return 0.0, 0.0, "nothing follows"
    if prefix != "merge":
        next_step, _, value, advantage = estimated[row + 1]
        return value, advantage, f"step {next_step} follows"
    children = survey.children()[step]
    leaves = sum(survey.live[child] for child in children)
    value = sum(survey.live[child] * estimated[child][2] for child in children) / leaves
    advantage = (
        sum(survey.live[child] * estimated[child][3] for child in children) / leaves
    )
    if len(children) == 1:
        return value, advantage, f"step {children[0]} follows"
    listed = ", ".join(map(str, children[:8])) + (", ..." if len(children) > 8 else "")
    return value, advantage, f"mean by leaves over the steps {listed}"
