"""The trees of a run as rows, and one of them with its credit."""

from collections import Counter
from operator import attrgetter
from pathlib import Path

import msgspec

from agentcli.errors import DataError, UsageError
from agentcli.evaluation.episodes import ENDINGS, ending, score_of
from agentcli.records.files import read_line, read_numbered
from agentcli.records.regular import is_there
from agentcli.records.runs import RunDirectory, loop_folders
from agentcli.records.siblings import fork_depths
from agentcli.records.step_rows import mean_advantage, rows_by_step
from agentcli.records.trees import (
    RowHead,
    TreeHead,
    paths,
    read_trees,
    validate_credit,
    validate_tree,
)
from agentcli.records.types import Credit, Outcome, StepCredit, Tree
from agentcli.registry import nearest


class TreeOverview(msgspec.Struct, kw_only=True):
    """One tree, in a line."""

    line: int
    """Of the file, from 1."""
    task: str
    kind: str
    instruction: str
    trajectories: int
    success: int
    score: float
    """Mean over its trajectories of the sum of rewards, in the copy that earned most."""
    errored: int
    endings: dict[str, int]
    """How many trajectories ended in each way (evaluation.episodes)."""
    steps: int
    forks: int
    fork_depths: list[int]
    """The number of steps before each of them."""
    tokens: int

    @property
    def share(self) -> float:
        """How many of its trajectories succeeded."""
        return self.success / max(1, self.trajectories)


class ShownTree(msgspec.Struct, kw_only=True):
    """One tree with the credit of its steps."""

    file: str
    line: int
    tree: Tree
    credit: str | None = None
    """Credit method, None where none is shown."""
    rows: dict[int, list[StepCredit]] = {}
    """The rows of credit by step id; a step may have several."""

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.file}:{self.line}"

    def advantage(self, step: int) -> float | None:
        """The mean advantage of a step's rows; None where none is assigned."""
        return mean_advantage(self.rows.get(step, ()))


def trees_file(run: Path, evaluation: str | None = None) -> Path:
    """The trees of a rollout, or those that an evaluation kept.

    Raises DataError naming what there is instead, or which command writes them.
    """
    directory = RunDirectory(run)
    kept = sorted(path.stem for path in run.glob("evaluation/trees/*.jsonl"))
    if evaluation is None:
        if not kept or loop_folders(run) or any(run.glob("trees.jsonl*")):
            return directory.existing_trees()
        raise DataError(
            f"{directory.trees}: no such file; evaluations kept theirs: --evaluation "
            f"{' or '.join(kept)}"
        )
    file = directory.evaluation_trees(evaluation)
    if is_there(file):
        return file
    remedy = "an evaluation keeps its trees by --set evaluation.trees=all"
    if kept and not is_there(directory.evaluation(evaluation)):
        remedy = nearest(evaluation, kept, "those that kept their trees are")
    raise DataError(f"{file}: no such file; {remedy}")


def tree_overviews(
    file: Path, *, failed: bool = False, kind: str | None = None
) -> list[TreeOverview]:
    """A row for every tree, those with the least success and the lowest score first.

    `failed` leaves out trees whose trajectories all succeeded. Raises UsageError for a
    kind that no tree has.
    """
    rows = []
    kinds = set()
    for line, tree in read_trees(file):
        row = _row(line, tree)
        kinds.add(row.kind)
        if kind is not None and row.kind != kind:
            continue
        if failed and row.success == row.trajectories:
            continue
        rows.append(row)
    if kind is not None and kind not in kinds:
        raise UsageError(
            f"--kind {kind}: {file} has none; there are {', '.join(sorted(kinds))}"
        )
    return sorted(rows, key=attrgetter("share", "score"))


def _row(line: int, tree: Tree) -> TreeOverview:
    outcomes = [step.outcome for step in tree.steps if step.outcome is not None]
    trajectories = paths(tree)
    counts = Counter(map(ending, trajectories))
    scores = [score_of(trajectory) for trajectory in trajectories]
    return TreeOverview(
        line=line,
        task=tree.task.id,
        kind=tree.task.kind,
        instruction=tree.instruction,
        trajectories=len(outcomes),
        success=outcomes.count(Outcome.SUCCESS),
        score=sum(scores) / max(1, len(scores)),
        errored=outcomes.count(Outcome.ERRORED),
        endings={name: counts[name] for name in ENDINGS if name in counts},
        steps=tree.ledger.steps,
        forks=tree.ledger.forks,
        fork_depths=fork_depths(tree.steps),
        tokens=tree.ledger.generated_tokens,
    )


def leaves_below(tree: Tree) -> tuple[list[int], list[int]]:
    """Leaves below each step, itself included, and those of them that succeeded."""
    leaves = []
    success = []
    for step in tree.steps:
        leaves.append(int(step.outcome is not None))
        success.append(int(step.outcome is Outcome.SUCCESS))
    # A parent comes before its children, so going backwards every count is whole when
    # it is handed on.
    for step in reversed(tree.steps):
        parent = step.parent
        if parent is not None:
            leaves[parent] += leaves[step.id]
            success[parent] += success[step.id]
    return leaves, success


def find_tree(file: Path, wanted: str, *, exact: bool = False) -> ShownTree:
    """The tree that `wanted` names: a line of the file, a task id, or a part of one.

    With `exact` it is a task id. Raises UsageError where no tree fits, or a part of an
    id fits several.
    """
    # A longer number is no line; it may be part of a task's id.
    is_line = not exact and wanted.isascii() and wanted.isdigit() and len(wanted) < 10
    line = int(wanted) if is_line else _line_of_task(file, wanted, exact)
    tree = read_line(file, line, Tree)
    if tree is None:
        raise UsageError(f"{file}: has no line {line}; list them without TREE")
    validate_tree(tree, f"{file}:{line}")
    return ShownTree(file=str(file), line=line, tree=tree)


def add_credit(shown: ShownTree, run: Path, credit: str | None) -> Path | None:
    """Adds the credit of the method `credit`, or the only credit there is.

    Returns its file, None where none is added. Raises DataError where the run has none
    of that name, or none for the tree.
    """
    directory = RunDirectory(run)
    if credit is None and len(directory.credit_files) != 1:
        return None
    file = directory.existing_credit(credit)
    shown.credit = file.stem
    shown.rows = _rows_of(file, shown)
    return file


def _line_of_task(file: Path, wanted: str, exact: bool) -> int:
    matches: list[int] = []
    for line, head in read_numbered(file, TreeHead):
        if head.task.id == wanted:
            return line
        if wanted in head.task.id and not exact:
            matches.append(line)
    if not matches:
        raise UsageError(f"{file}: has no task {wanted}; list them without TREE")
    if len(matches) > 1:
        lines = ", ".join(map(str, matches[:5]))
        raise UsageError(
            f"{wanted} is a part of {len(matches)} tasks of {file}; choose by line: "
            f"{lines}"
        )
    return matches[0]


def _rows_of(file: Path, shown: ShownTree) -> dict[int, list[StepCredit]]:
    """The rows of a tree's credit by step. Raises DataError where the file has none.

    Credit has the order of the trees, among which a task may come again.
    """
    trees = read_numbered(Path(shown.file), TreeHead)
    for (tree_line, _), (line, _) in zip(
        trees, read_numbered(file, RowHead), strict=False
    ):
        if tree_line != shown.line:
            continue
        credit = read_line(file, line, Credit)
        if credit is not None:
            validate_credit(credit, shown.tree, f"{file}:{line}")
            return rows_by_step(credit)
    raise DataError(
        f"{file}: has no credit of task {shown.tree.task.id}; run assign-credit with "
        "--overwrite"
    )
