"""assign-credit --explain: one step of the trees and where its advantage comes from.
Reads, and writes nothing.

The advantage is computed from the trees with the settings of the command; where RUN
holds credit of the method already, what that file says of the same row is told beside
it, and which settings differ.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentcli.credit.explain import PRECISION, Explanation, explain
from agentcli.credit.registry import Assign, explainer, make
from agentcli.errors import DataError, UsageError
from agentcli.records.faults import shown
from agentcli.records.files import read_numbered
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import Settings
from agentcli.records.trees import validate_tree
from agentcli.records.types import Credit, Tree

EXTREMES = ("best", "worst")
STEP = "best, worst, TASK:STEP or LINE:STEP"


class Written(msgspec.Struct, kw_only=True):
    """What the credit file in RUN says of the same row."""

    file: str
    advantage: float | None
    same: bool
    settings: dict[str, list[Any]]
    """Switches that differ: name -> [in the file, here]."""


class ExplainedStep(msgspec.Struct, kw_only=True):
    """The answer to --explain."""

    trees: str
    line: int
    """Of the tree in the file, from 1."""
    explanation: Explanation
    written: Written | None
    """None where RUN holds no credit of the method."""


class Place(NamedTuple):
    """One row of credit."""

    number: int
    """Of the tree among the trees, from 0."""
    line: int
    tree: Tree
    credit: Credit
    row: int


def explain_step(settings: Settings, run: Path, wanted: str) -> ExplainedStep:
    """The account of the step `wanted` (STEP). A task id may hold colons and slashes:
    what follows the last colon is the step.

    A number before it is the id of a task if there is such a task, else a line of the
    file. Of a step with several rows the first one is told. Raises UsageError for a
    step that is not there, DataError for damaged trees.
    """
    directory = RunDirectory(run)
    trees = directory.existing_trees()
    name, assign, own = make(settings.credit)
    choose = _extreme if wanted in EXTREMES else _named
    place = choose(trees, assign, own, wanted)
    try:
        told = explain(place.tree, place.credit, place.row, own, explainer(name))
    except DataError as error:
        raise DataError(f"{trees}:{place.line}: {error}") from error
    return ExplainedStep(
        trees=str(trees),
        line=place.line,
        explanation=told,
        written=_written(directory, name, place, told.settings),
    )


def _trees(trees: Path) -> Iterator[tuple[int, int, Tree]]:
    """Every tree, checked, with its number and line."""
    found = False
    for number, (line, tree) in enumerate(read_numbered(trees, Tree)):
        validate_tree(tree, f"{trees}:{line}")
        found = True
        yield number, line, tree
    if not found:
        raise DataError(
            f"{trees}: holds no trees; grow some with: agentcli rollout --resume -o "
            f"{trees.parent}"
        )


def _credit(
    trees: Path, line: int, tree: Tree, assign: Assign, own: msgspec.Struct
) -> Credit:
    try:
        return assign(tree, own)
    except DataError as error:
        raise DataError(f"{trees}:{line}: {error}") from error


def _extreme(trees: Path, assign: Assign, own: msgspec.Struct, wanted: str) -> Place:
    """The row with the highest, or lowest, advantage of the file; the first of several."""
    found: Place | None = None
    reached = 0.0
    for number, line, tree in _trees(trees):
        credit = _credit(trees, line, tree, assign, own)
        for row, entry in enumerate(credit.steps):
            if entry.advantage is None:
                continue
            height = entry.advantage if wanted == "best" else -entry.advantage
            if found is None or height > reached:
                found, reached = Place(number, line, tree, credit, row), height
    if found is None:
        raise UsageError(
            f"--explain {wanted}: no step of {trees} has an advantage; name one as "
            "TASK:STEP"
        )
    return found


def _named(trees: Path, assign: Assign, own: msgspec.Struct, wanted: str) -> Place:
    task, colon, digits = wanted.rpartition(":")
    if not (colon and task and digits.isascii() and digits.isdigit()):
        raise UsageError(
            f"--explain {wanted}: write {STEP}, for instance --explain worst or "
            "--explain 1:0"
        )
    wanted_line = (
        int(task) if task.isascii() and task.isdigit() and len(task) < 10 else None
    )
    found: tuple[int, int, Tree] | None = None
    for number, line, tree in _trees(trees):
        if tree.task.id == task:
            found = (number, line, tree)
            break
        if line == wanted_line:
            found = (number, line, tree)
    if found is None:
        raise UsageError(
            f"--explain {wanted}: {trees} has no task and no line {task}; `--explain "
            "worst` names one"
        )
    number, line, tree = found
    step = int(digits) if len(digits) < 10 else len(tree.steps)
    credit = _credit(trees, line, tree, assign, own)
    rows = [row for row, entry in enumerate(credit.steps) if entry.step == step]
    if not rows:
        reason = (
            f"has the steps 0 to {len(tree.steps) - 1}"
            if step >= len(tree.steps)
            else "gets no row for that step"
        )
        raise UsageError(f"--explain {wanted}: task {shown(tree.task.id)} {reason}")
    return Place(number, line, tree, credit, rows[0])


def _written(
    directory: RunDirectory, method: str, place: Place, settings: dict[str, Any]
) -> Written | None:
    """What the credit file says of the row."""
    file = directory.credit(method)
    if not file.exists():
        return None
    recorded = directory.finished(f"credit/{method}")
    there = {} if recorded is None else {**recorded.settings.get("credit", {})}
    there.pop("method", None)
    here = msgspec.json.decode(msgspec.json.encode(settings))
    differing = {
        name: [there[name], value]
        for name, value in here.items()
        if name in there and there[name] != value
    }
    _, given = next(islice(read_numbered(file, Credit), place.number, None), (0, None))
    told, advantage, same = place.credit.steps[place.row], None, False
    if (
        given is not None
        and given.task == place.tree.task.id
        and place.row < len(given.steps)
    ):
        entry = given.steps[place.row]
        advantage = entry.advantage
        same = entry.step == told.step and _equal(entry.advantage, told.advantage)
    return Written(file=str(file), advantage=advantage, same=same, settings=differing)


def _equal(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= PRECISION * max(1.0, abs(other))
