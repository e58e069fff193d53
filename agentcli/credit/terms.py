"""Parts of explanations that several methods share.

These are the outcome of a row within the group of leaves, groups by any other key, and
what follows a step.
"""

from collections.abc import Sequence
from fractions import Fraction

from agentcli.credit.equations import ADVANTAGE, PENALTY, Equation, Evidence
from agentcli.credit.group import (
    Entry,
    Grouping,
    Scale,
    form_of,
    outcome_entries,
    outcome_scale,
)
from agentcli.credit.once import once
from agentcli.credit.survey import Survey, score_sums
from agentcli.credit.switches import GroupSwitches, NormalisedSwitches, Switches
from agentcli.records.types import Outcome, Tree

GRPO = "DeepSeekMath section 4.1.2, RewardFlow eq. 8"
"""The source of the outcome normalised over the group."""
EARNED = Equation("earned", None, "of its leaves that succeeded")
LEAVES = Equation(
    "leaves", None, "leaves below it that did not error, whose outcomes the row holds"
)
MOST_LISTED = 8
"""The most numbers that are listed."""


def outcome_among_leaves(
    name: str = ADVANTAGE,
    meaning: str = "how the outcome compares within the group of leaves",
    source: str = GRPO,
) -> tuple[Equation, ...]:
    """The equations of group.outcome_scale: reward less penalty, compared."""
    reward = "success_reward * earned / leaves"
    return (
        EARNED,
        LEAVES,
        Equation("reward", reward, "outcome reward of the row"),
        PENALTY,
        Equation(
            name,
            "reward - penalty",
            meaning,
            source,
            among="leaves",
        ),
    )


def row_leaves(
    survey: Survey,
    switches: Switches,
    row: int,
) -> tuple[int, list[int]]:
    """The step of row number `row`, and the live leaves whose outcomes it averages."""
    prefix = form_of(switches).prefix
    steps = [step for step, _ in survey.rows(prefix)]
    step = steps[row]
    ends = ends_below(survey, step)
    if prefix != "merge":
        # The rows of a repeated step are in the order of its leaves.
        nth = steps[:row].count(step)
        ends = ends[nth : nth + 1]
    return step, ends


def ends_below(survey: Survey, step: int) -> list[int]:
    """The leaves below a step, itself included, that did not error."""
    # The last element is the root's; it stays False, so first steps start outside.
    inside = [False] * len(survey.live)
    for number, parent in enumerate(survey.parents):
        inside[number] = number == step or inside[parent]
    return [end for end in survey.live_ends() if inside[end]]


def group_evidence(
    tree: Tree,
    survey: Survey,
    switches: GroupSwitches | NormalisedSwitches,
    row: int,
) -> Evidence:
    """Evidence for `outcome_among_leaves`, for one row of a method with `normalise`."""
    how = switches.normalise
    scale = outcome_scale(survey, switches, how)
    return outcome_evidence(tree, survey, switches, row, scale, how)


def outcome_evidence(
    tree: Tree,
    survey: Survey,
    switches: Switches,
    row: int,
    scale: Scale,
    how: str,
) -> Evidence:
    """Evidence for `outcome_among_leaves`, for one row.

    `scale` is the method's normalisation of the group; `how` as in ScoreGroup.
    """
    step, ends = row_leaves(survey, switches, row)
    evidence = Evidence()
    won = sum(tree.steps[end].outcome is Outcome.SUCCESS for end in ends)
    evidence.add("won", won, "of its leaves that succeeded")
    if switches.outcome == "score":
        sums = score_sums(tree)
        words = (
            "sum over its leaves of the world's own rewards along their trajectories"
        )
        total = sum((sums[end] for end in ends), Fraction(0))
        evidence.add("earned", float(total), words)
    else:
        evidence.add("earned", won)
    evidence.add("leaves", len(ends))
    add_penalty(evidence, survey, step)
    words, entries, row_ids = _leaf_group(survey, switches, step, ends)
    members = _merged(entries)
    places = {place for place, entry in enumerate(members) if entry[0] in row_ids}
    evidence.group("leaves", words, members, places, scale, how)
    return evidence


def add_penalty(
    evidence: Evidence,
    survey: Survey,
    step: int,
) -> None:
    """Adds the penalty inside the step's score, and words for one charged outside."""
    words = None
    if survey.charges is not None:
        words = "0 inside the score: the penalty is charged after it"
    evidence.add("penalty", survey.penalties[step], words)
    evidence.words["charge"] = "penalty outside the comparison, of an invalid step only"


def _leaf_group(
    survey: Survey,
    switches: Switches,
    step: int,
    ends: list[int],
) -> tuple[str, list[Entry], set[int]]:
    """The group in group.outcome_scale: words, entries, ids of the row's entries."""
    form = form_of(switches)
    if form.over == "steps" and form.prefix == "merge":
        words = "every step of the tree is one entry: reward - penalty"
        return words, outcome_entries(survey, form), {step}
    if form.form == "release" and form.over == "trajectories":
        from agentcli.credit.release.group import release_entries

        words = (
            "every leaf is one entry: its reward less the penalty of its "
            "trajectory's first step"
        )
        return words, release_entries(survey, form), set(ends)
    weight = "1, however long" if form.over == "trajectories" else "its number of steps"
    words = (
        "the reward of the valid steps of a trajectory, reward - penalty of its "
        f"invalid ones; together they weigh {weight}"
    )
    return words, outcome_entries(survey, form), set(ends)


@once
def _merged(entries: Sequence[Entry]) -> list[Entry]:
    """The entries with equal step and score merged, and their weights added."""
    weights: dict[tuple[int, float], float] = {}
    for step, score, weight in entries:
        weights[step, score] = weights.get((step, score), 0.0) + weight
    return [(step, score, weight) for (step, score), weight in weights.items()]


def add_group(
    evidence: Evidence,
    name: str,
    words: str,
    grouping: Grouping,
    place: int,
) -> None:
    """Adds the group of the entry at `place` in a grouping."""
    entries, position, scale = grouping.among(place)
    evidence.group(name, words, entries, {position}, scale, grouping.normalise)


def following(
    tree: Tree,
    survey: Survey,
    prefix: str | None,
    estimated: Sequence[tuple[int, float, float, float]],
    row: int,
) -> tuple[float, float, str]:
    """Mean value and advantage of what follows a row of returns.estimated_rows.

    The mean is weighted by leaves. The last element says in words what follows.
    """
    step = estimated[row][0]
    if tree.steps[step].outcome is not None:
        return 0.0, 0.0, "nothing follows"
    if prefix != "merge":
        next_step, _, value, advantage = estimated[row + 1]
        return value, advantage, f"step {next_step} follows"
    children = survey.children()[step]
    leaves = sum(survey.live[child] for child in children)
    value = 0.0
    advantage = 0.0
    for child in children:
        _, _, child_value, child_advantage = estimated[child]
        value += survey.live[child] * child_value
        advantage += survey.live[child] * child_advantage
    words = f"step {children[0]} follows"
    if len(children) > 1:
        words = f"mean by leaves over the steps {listed(children)}"
    return value / leaves, advantage / leaves, words


def listed(numbers: Sequence[int]) -> str:
    """The first numbers, separated by commas, with dots if there are more."""
    shown = [str(number) for number in numbers[:MOST_LISTED]]
    if len(numbers) > MOST_LISTED:
        shown.append("...")
    return ", ".join(shown)
