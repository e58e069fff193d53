"""assign-credit --explain: one step of the trees and where its advantage comes from.

Where RUN has credit of the method already, the same row of that file is shown too, with
the settings that differ. Nothing is written.
"""

import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from agentcli.credit.explain import PRECISION, ExplainedStep, Written, explain
from agentcli.credit.registry import explainer, make
from agentcli.errors import DataError, UsageError, prefixed
from agentcli.records.faults import shown
from agentcli.records.files import read_records
from agentcli.records.regular import is_there
from agentcli.records.runs import RunDirectory, credit_name
from agentcli.records.settings import Settings
from agentcli.records.trees import step_range
from agentcli.records.types import Credit, Tree
from agentcli.stages.plan import plain
from agentcli.stages.trees import checked_trees

EXTREMES = ("best", "worst")
STEP = "best, worst, TASK:STEP or LINE:STEP"


CreditOf = Callable[[int, Tree], Credit]
"""The credit of a tree, which is on this line. Raises DataError with its place."""


class Place(NamedTuple):
    """One row of credit."""

    number: int
    """The place of the tree among the trees, from 0."""
    line: int
    tree: Tree
    credit: Credit
    row: int


def explain_step(settings: Settings, run: Path, wanted: str) -> ExplainedStep:
    """The account of the step `wanted` (STEP); of its first row where it has several.

    A task id may hold colons and slashes: what follows the last colon is the step. A
    number before it is the id of a task if there is such a task, else a line of the
    file. Raises UsageError for a step that is not there, DataError for damaged trees.
    """
    directory = RunDirectory(run)
    trees = directory.existing_trees()
    name, assign, switches = make(settings.credit)

    def credit_of(line: int, tree: Tree) -> Credit:
        with prefixed(f"{trees}:{line}", DataError):
            return assign(tree, switches)

    choose = _extreme if wanted in EXTREMES else _named
    place = choose(trees, credit_of, wanted)
    tree, credit, row = place.tree, place.credit, place.row
    with prefixed(f"{trees}:{place.line}", DataError):
        explanation = explain(tree, credit, row, switches, explainer(name))
    return ExplainedStep(
        trees=str(trees),
        line=place.line,
        explanation=explanation,
        written=_written(directory, name, place, explanation.settings),
    )


def _extreme(trees: Path, credit_of: CreditOf, wanted: str) -> Place:
    """The first row with the highest, or lowest, advantage of the file."""
    sign = 1 if wanted == "best" else -1
    extreme: Place | None = None
    height = 0.0
    for number, (line, tree) in enumerate(checked_trees(trees)):
        credit = credit_of(line, tree)
        for row, entry in enumerate(credit.steps):
            if entry.advantage is None:
                continue
            if extreme is None or sign * entry.advantage > height:
                extreme = Place(number, line, tree, credit, row)
                height = sign * entry.advantage
    if extreme is None:
        raise UsageError(
            f"--explain {wanted}: no step of {trees} has an advantage; name one as "
            "TASK:STEP"
        )
    return extreme


def _named(trees: Path, credit_of: CreditOf, wanted: str) -> Place:
    """The first row of the step TASK:STEP or LINE:STEP."""
    task, _, digits = wanted.rpartition(":")
    step = _number(digits)
    if not task or step is None:
        raise UsageError(
            f"--explain {wanted}: write {STEP}, for instance --explain worst or "
            "--explain 1:0"
        )
    number, line, tree = _tree_named(trees, task, wanted)
    credit = credit_of(line, tree)
    for row, entry in enumerate(credit.steps):
        if entry.step == step:
            return Place(number, line, tree, credit, row)
    reason = "gets no row for that step"
    if step >= len(tree.steps):
        reason = f"has {step_range(tree)}"
    task_id = shown(tree.task.id)
    raise UsageError(f"--explain {wanted}: task {task_id} {reason}")


def _number(digits: str) -> int | None:
    """A number as it was typed; None for any other text."""
    if not (digits.isascii() and digits.isdigit()):
        return None
    # Python refuses thousands of digits, and no file has that many lines.
    return int(digits) if len(digits) < 10 else sys.maxsize


def _tree_named(trees: Path, name: str, wanted: str) -> tuple[int, int, Tree]:
    """The tree of a task, else that of a line, with its number and line."""
    wanted_line = _number(name)
    of_line = None
    for number, (line, tree) in enumerate(checked_trees(trees)):
        if tree.task.id == name:
            return number, line, tree
        if line == wanted_line:
            of_line = number, line, tree
    if of_line is None:
        raise UsageError(
            f"--explain {wanted}: {trees} has no task and no line {name}; `--explain "
            "worst` names one"
        )
    return of_line


def _written(
    directory: RunDirectory,
    method: str,
    place: Place,
    settings: dict[str, Any],
) -> Written | None:
    """The same row in the credit file; None where there is no such file."""
    file = directory.credit(method)
    if not is_there(file):
        return None
    recorded: dict[str, Any] = {}
    stage = directory.finished(f"credit/{credit_name(method)}")
    if stage is not None:
        recorded = stage.settings.get("credit", {})
    differing = {}
    for name, value in plain(settings).items():
        if name in recorded and recorded[name] != value:
            differing[name] = [recorded[name], value]
    written = Written(
        file=str(file), method=method, advantage=None, same=False, settings=differing
    )
    records = read_records(file, Credit)
    credit = next(islice(records, place.number, None), None)
    if credit is None or credit.task != place.tree.task.id:
        return written
    if place.row < len(credit.steps):
        written_row = credit.steps[place.row]
        computed_row = place.credit.steps[place.row]
        equal = _equal(written_row.advantage, computed_row.advantage)
        written.advantage = written_row.advantage
        written.same = written_row.step == computed_row.step and equal
    return written


def _equal(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    size = max(1.0, abs(other))
    return abs(one - other) <= PRECISION * size
