"""What the accounts of several methods share: which row is told, the outcome among the group's leaves, what follows a step."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from agentcli.credit.account import ADVANTAGE, Group, Sheet
from agentcli.credit.common import NO_SCORE, Switches, scores
from agentcli.credit.group import ROOT, Scale, Survey, entries, path_counts, rows
from agentcli.records.types import Outcome, Tree

GRPO = "002 eq. 8"
"""The outcome normalised over the group."""


@dataclass
class Told:
    """The row that an account is about. `ends`: the leaves that count whose outcomes it holds."""

    step: int
    reward: float
    ends: list[int]


def told(seen: Survey, prefix: str | None, row: int) -> Told:
    """Row number `row` of the credit that a method with this `prefix` gives."""
    found = list(rows(seen, prefix))
    step, reward = found[row]
    below = ends_below(seen, step)
    if prefix != "merge":
        nth = sum(1 for other, _ in found[:row] if other == step)
        below = below[nth : nth + 1]
    return Told(step, reward, below)


def ends_below(seen: Survey, step: int) -> list[int]:
    """The leaves below a step, itself included, that did not error; of the whole tree for ROOT."""
    inside = [False] * len(seen.parents) + [step == ROOT]
    for number, parent in enumerate(seen.parents):
        inside[number] = number == step or inside[parent]
    return [end for end in seen.ends if inside[end] and seen.live[end]]


def row_outcome(sheet: Sheet, tree: Tree, seen: Survey, about: Told, switches: Switches) -> None:
    """The numbers R (mean outcome reward of the row's leaves) and p (the step's own penalty)."""
    won = sum(tree.steps[end].outcome is Outcome.SUCCESS for end in about.ends)
    sheet.given("success_reward", switches.success_reward, "setting")
    sheet.given("won", won, "of its leaves that succeeded")
    sheet.given("leaves", len(about.ends), "leaves below it that did not error, whose outcomes the row holds")
    earned = "won"
    if switches.outcome == "score":
        earned, reached = "scores", scores(tree)
        total = sum([reached[end] for end in about.ends], NO_SCORE)
        sheet.given(earned, float(total), "sum over its leaves of the world's own rewards along their trajectories")
    sheet.line("R", f"success_reward * {earned} / leaves", "outcome reward of the row")
    sheet.given("p", seen.penalties[about.step], penalty_of(seen))


def penalty_of(seen: Survey) -> str:
    """What the number p of a score is."""
    return "penalty, of an invalid step only" if seen.charges is None else "penalty: charged below, outside the score"


def end_line(seen: Survey) -> str:
    """The name of the line before `charge`: the last one where nothing is charged."""
    return ADVANTAGE if seen.charges is None else "uncharged"


def charge(sheet: Sheet, seen: Survey, step: int) -> Sheet:
    """The account with its last lines where penalties are outside the normalisation: Survey.credited."""
    if seen.charges is not None:
        sheet.given("charge", seen.charges[step], "penalty outside the normalisation, of an invalid step only")
        sheet.line(ADVANTAGE, f"{end_line(seen)} - charge", "the penalty is charged to its own step, once")
    return sheet


def among_leaves(
    sheet: Sheet,
    tree: Tree,
    seen: Survey,
    about: Told,
    switches: Switches,
    scale: Scale,
    how: str,
    line: str = "trajectory",
    what: str = "how the outcome compares within the group of leaves",
    source: str = GRPO,
) -> float:
    """The line of group.outcome_scale: R - p among the group. A method without form, over or prefix has the paper's."""
    form, over, prefix = (
        getattr(switches, name, usual)
        for name, usual in (("form", "paper"), ("over", "trajectories"), ("prefix", "merge"))
    )
    row_outcome(sheet, tree, seen, about, switches)
    sheet.line("x", "R - p", "score of the row")
    group = leaf_group(sheet, seen, about, form, over, prefix)
    return sheet.compare(line, "x", group, scale, how, what, source)


def leaf_group(
    sheet: Sheet, seen: Survey, about: Told, form: str, over: str | None, prefix: str | None, name: str = "leaves"
) -> Group:
    """The group of group.outcome_scale, every entry by its leaf (or its step, where every step is one row)."""
    alive = [end for end in seen.ends if seen.live[end]]
    if over == "steps" and prefix == "merge":
        what = "every step of the tree is one entry: R - p"
        ids = [step for step in range(len(seen.parents)) if seen.live[step]]
        own = {about.step}
    elif over == "trajectories" and form == "release":
        what = "every leaf is one entry: R less the penalty of its trajectory's first step"
        ids, own = alive, set(about.ends)
    else:
        wrong = path_counts(seen)[2]
        each = "1, however long" if over == "trajectories" else "its number of steps"
        what = f"R of the valid steps of a trajectory, R - p of its invalid ones; together they weigh {each}"
        ids = [end for end in alive for _ in range(1 + (wrong[end] > 0))]
        own = set(about.ends)
    scores: dict[tuple[int, float], float] = {}
    for step, (score, weight) in zip(ids, entries(seen, form, over, prefix), strict=True):
        scores[step, score] = scores.get((step, score), 0.0) + weight
    members = [(step, score, weight) for (step, score), weight in scores.items()]
    ids = [step for step, _, _ in members]
    return sheet.group(name, members, {place for place, step in enumerate(ids) if step in own}, what)


def following(
    tree: Tree, seen: Survey, prefix: str | None, estimated: Sequence[tuple[int, float, float, float]], row: int
) -> tuple[float, float, str]:
    """Mean value and advantage of what comes after a row of returns.estimated_rows, by leaves, and what that is in words."""
    step = estimated[row][0]
    if tree.steps[step].outcome is not None:
        return 0.0, 0.0, "nothing follows"
    if prefix != "merge":
        _, _, value, advantage = estimated[row + 1]
        return value, advantage, f"step {estimated[row + 1][0]} follows"
    after = seen.children()[step]
    total = sum(seen.live[child] for child in after)
    value, advantage = (sum(seen.live[child] * estimated[child][place] for child in after) / total for place in (2, 3))
    names = ", ".join(map(str, after[:8])) + (", ..." if len(after) > 8 else "")
    return value, advantage, f"step {names} follows" if len(after) == 1 else f"mean by leaves over the steps {names}"


def alike(
    sheet: Sheet,
    name: str,
    what: str,
    seen: Survey,
    entries: Sequence[tuple[int, float, float]],
    keys: Sequence[Hashable],
    place: int,
) -> Group:
    """The group of the (step, score, weight) entries whose key is that of entry `place`; masked steps take no part."""
    found = [
        (number, entry)
        for number, (entry, key) in enumerate(zip(entries, keys, strict=True))
        if key == keys[place] and seen.masked[entry[0]] is None
    ]
    own = {position for position, (number, _) in enumerate(found) if number == place}
    return sheet.group(name, [entry for _, entry in found], own, what)
