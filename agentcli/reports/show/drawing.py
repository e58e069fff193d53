"""A tree in the terminal: one branch for each stretch between forks, a line a step."""

from collections.abc import Iterable
from functools import partial
from itertools import groupby

import msgspec
from rich.table import Table
from rich.text import Text
from rich.tree import Tree as Drawing

from agentcli.records.trees import children
from agentcli.records.types import Outcome, Step, Tree
from agentcli.reports.show.style import (
    MARKS,
    QUIET,
    action,
    advantage,
    one_line,
    share_style,
)
from agentcli.reports.show.trees import ShownTree, leaves_below

MOST_ROWS = 600
"""Lines of a drawing that is not asked for whole."""
LONGEST = 40
"""Lines of a stretch that is shown whole; a longer one shows its HEAD and TAIL."""
HEAD, TAIL = 25, 10
DEEPEST = 12
"""Forks below each other that are drawn: each takes four columns."""


class Stretch(msgspec.Struct, kw_only=True):
    """Steps without a fork between them."""

    steps: list[Step]
    branches: list["Stretch"] = []
    """What was tried after the last step; empty where the trajectory ends."""
    trajectory: int | None = None
    """The number of the trajectory that ends here, from 1; None before a fork."""
    leaves: int
    """Trajectories that go through these steps."""
    success: int
    """Those of them that succeeded."""


def tree_drawing(shown: ShownTree, *, whole: bool = False) -> Drawing:
    """The tree as a drawing.

    Without `whole`, long stretches are shortened, and what is left out is counted.
    """
    stretches = outline(shown.tree)
    drawing = Drawing(_heading(shown), guide_style=QUIET)
    rows = 0
    # A stack, since forks may lie deeper than Python's recursion goes.
    waiting = [(drawing, stretch, 1) for stretch in reversed(stretches)]
    while waiting:
        if rows > MOST_ROWS and not whole:
            hidden = [stretch for _, stretch, _ in waiting]
            drawing.add(_left_out(hidden))
            break
        parent, stretch, depth = waiting.pop()
        if depth > DEEPEST and not whole:
            parent.add(_left_out([stretch]))
            continue
        branch = parent.add(_stretch_heading(stretch))
        for row in _rows(shown, stretch.steps, whole):
            branch.add(row)
            rows += 1
        for below in reversed(stretch.branches):
            waiting.append((branch, below, depth + 1))
    return drawing


def side_by_side(left: ShownTree, right: ShownTree, *, whole: bool = False) -> Table:
    """Two runs' trees of one task."""
    table = Table.grid(expand=True, padding=(0, 2))
    drawings = []
    for shown in (left, right):
        table.add_column(ratio=1)
        drawings.append(tree_drawing(shown, whole=whole))
    table.add_row(*drawings)
    return table


def _heading(shown: ShownTree) -> Text:
    tree = shown.tree
    outcomes = [step.outcome for step in tree.steps if step.outcome is not None]
    success = outcomes.count(Outcome.SUCCESS)
    text = Text(one_line(tree.instruction), style="bold")
    place = one_line(shown.place)
    task = one_line(tree.task.id)
    text.append(f"\n{place}  {task}", style=QUIET)
    facts = [
        f"\n{success} of {len(outcomes)} trajectories succeed",
        f"{len(tree.steps)} steps",
        f"{tree.ledger.forks} forks",
        f"method {one_line(tree.method)}",
    ]
    if shown.credit is not None:
        facts.append(f"advantages of {one_line(shown.credit)}")
    return text.append(", ".join(facts))


def _stretch_heading(stretch: Stretch) -> Text:
    """How the trajectory ends, or what its branches come to."""
    if stretch.trajectory is None:
        words = f"{stretch.success} of {stretch.leaves} succeed, then a fork"
        style = share_style(stretch.success, stretch.leaves)
        return Text(words, style=style)
    outcome = stretch.steps[-1].outcome
    assert outcome is not None
    mark, style = MARKS[outcome]
    return Text(f"{mark} trajectory {stretch.trajectory}: {outcome}", style=style)


def _rows(shown: ShownTree, steps: list[Step], whole: bool) -> list[Text]:
    """A line for each step; equal neighbours are folded into one."""
    rows = []
    for text, alike in groupby(steps, partial(step_row, shown)):
        first, *others = alike
        row = Text(f"{first.id:>4} ", style=QUIET, no_wrap=True, overflow="ellipsis")
        if others:
            row.append(f"x{1 + len(others)} ", style="bold magenta")
        rows.append(row.append_text(text))
    if whole or len(rows) <= LONGEST:
        return rows
    left_out = len(rows) - HEAD - TAIL
    words = f"... {left_out} more lines; --all shows them"
    middle = Text(words, style=QUIET)
    return [*rows[:HEAD], middle, *rows[-TAIL:]]


def step_row(shown: ShownTree, step: Step) -> Text:
    """The advantage of a step, its action, and what came back."""
    row = Text()
    if shown.credit is not None:
        value = shown.advantage(step.id)
        row.append_text(advantage(value))
        row.append(" ")
    row.append_text(action(step))
    row.append(f"  -> {one_line(step.next_observation)}", style=QUIET)
    return row


def _left_out(stretches: list[Stretch]) -> Text:
    trajectories = sum(stretch.leaves for stretch in stretches)
    steps = count(stretches)
    words = f"... {steps} more steps in {trajectories} trajectories; --all shows them"
    return Text(words, style=QUIET)


def outline(tree: Tree) -> list[Stretch]:
    """The stretches that begin at the initial state."""
    # Not recursive: a trajectory may have more forks than Python has stack.
    followers = children(tree)
    leaves, success = leaves_below(tree)
    numbers = trajectory_numbers(tree)
    roots: list[Stretch] = []
    # (the list that the stretch belongs to, its first step)
    waiting = [(roots, step) for step in reversed(followers.get(None, []))]
    while waiting:
        siblings, step = waiting.pop()
        stretch = Stretch(
            steps=[step],
            leaves=leaves[step.id],
            success=success[step.id],
        )
        siblings.append(stretch)
        following = followers.get(step.id, [])
        while len(following) == 1:
            step = following[0]
            stretch.steps.append(step)
            following = followers.get(step.id, [])
        stretch.trajectory = numbers.get(step.id)
        waiting += [(stretch.branches, child) for child in reversed(following)]
    return roots


def trajectory_numbers(tree: Tree) -> dict[int, int]:
    """The number of the trajectory that ends in a step, from 1, by step id."""
    ends = (step.id for step in tree.steps if step.outcome is not None)
    return {end: number for number, end in enumerate(ends, 1)}


def count(stretches: Iterable[Stretch]) -> int:
    """The steps of these stretches and of all below them."""
    total = 0
    waiting = list(stretches)
    while waiting:
        stretch = waiting.pop()
        total += len(stretch.steps)
        waiting += stretch.branches
    return total
