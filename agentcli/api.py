"""The Python interface: the contents of a run, as objects and as data frames.

Every name here can be imported from `agentcli` itself:

    from agentcli import read_trees, assign, to_frame

    trees = read_trees("runs/x")
    steps = to_frame(assign(trees, "rewardflow"))
    steps.groupby("action").advantage.mean().sort_values()

Files are streamed: reading functions return an iterator, and `list(...)` loads it all.
The records themselves (Tree, Step, Credit, Episode) are described in
`agentcli.records.types`. `step_advantages` and `token_advantages` give the rollouts of
other trainers their credit, from plain lists (agentcli/credit/lists.py). Errors are
`agentcli.errors.AgentCliError` with a one-line message, as on the command line.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from agentcli.credit import registry
from agentcli.credit.lists import step_advantages as step_advantages
from agentcli.credit.lists import token_advantages as token_advantages
from agentcli.errors import DataError, MissingError, UsageError, word_of
from agentcli.records import trees as walks
from agentcli.records.files import read_records
from agentcli.records.regular import is_there
from agentcli.records.runs import RunDirectory
from agentcli.records.step_rows import StepRow, advantages, step_row, step_rows
from agentcli.records.types import Credit, Episode, Outcome, Step, Tree
from agentcli.reports.show.trees import trees_file
from agentcli.stages.resolve import find_run

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Trajectory:
    """One path through a tree, from its first step to a leaf."""

    tree: Tree
    number: int
    """From 1, in the order of the leaves, as in `agentcli show --trajectory`."""
    steps: list[Step]

    @property
    def outcome(self) -> Outcome:
        """How it ended."""
        return self.steps[-1].outcome or Outcome.ERRORED


@dataclass(frozen=True)
class CreditedTree:
    """A tree beside the credit that a method gives it."""

    tree: Tree
    credit: Credit

    @property
    def advantages(self) -> dict[int, float | None]:
        """The advantage by step; None where the method assigns none.

        A step with several rows of credit has their mean.
        """
        return advantages(self.credit)


Thing: TypeAlias = Tree | Trajectory | CreditedTree | Credit | Episode


def read_trees(run: str | Path, evaluation: str | None = None) -> Iterator[Tree]:
    """Streams the trees of a run, in the order of their file.

    `run` is a run directory or a trees file (`.jsonl`). With `evaluation`
    they are the trees that the evaluation of this label kept. Every tree is checked.
    Raises DataError for a file that is not there or is damaged.

    >>> for tree in read_trees("runs/x"):
    ...     print(tree.task.id, len(tree.steps), tree.ledger.leaves)
    train/0 21 3
    train/1 6 3
    """
    file = Path(run)
    if not file.is_file():
        file = trees_file(find_run(file), evaluation)
    elif evaluation is not None:
        raise UsageError(f"{run}: is a file; name the run of evaluation {evaluation}")
    # Not with `yield`, which would put off the errors above to the first tree.
    return (tree for _, tree in walks.read_trees(file))


def read_credit(run: str | Path, method: str | None = None) -> Iterator[Credit]:
    """Streams the credit that `agentcli assign-credit` wrote, one record a tree.

    `run` is a run directory or a credit file. Without `method` the run must hold the
    credit of one method alone. Raises DataError for a file that is not there or is
    damaged, UsageError where a method must be chosen.

    >>> credit = next(read_credit("runs/x", "grpo"))
    >>> credit.method, len(credit.steps)
    ('grpo', 21)
    """
    file = Path(run)
    if not file.is_file():
        file = RunDirectory(find_run(file)).existing_credit(method)
    elif method is not None:
        raise UsageError(f"{run}: is a file; name the run of the method {method}")
    return read_records(file, Credit)


def read_episodes(run: str | Path, label: str) -> Iterator[Episode]:
    """Streams the episodes of one evaluation of a run.

    `label` names it: `agentcli eval --label`, else the split. Raises DataError where
    there is none.

    >>> [episode.outcome.value for episode in read_episodes("runs/x", "greedy")]
    ['failure', 'failure']
    """
    file = RunDirectory(find_run(Path(run))).evaluation(label)
    if not is_there(file):
        raise DataError(
            f"{file}: no such file; write it with: agentcli eval {word_of(run)} "
            f"--label {label}"
        )
    return read_records(file, Episode)


def trajectories(tree: Tree) -> list[Trajectory]:
    """The paths of a tree from its first steps to its leaves, in the leaves' order.

    Steps that several trajectories share are in each of them.

    >>> tree = next(read_trees("runs/x"))
    >>> for path in trajectories(tree):
    ...     print(path.number, len(path.steps), path.outcome.value)
    1 7 success
    2 11 failure
    3 3 failure
    """
    paths = enumerate(walks.paths(tree), 1)
    return [Trajectory(tree, number, steps) for number, steps in paths]


def assign(
    trees: Tree | Iterable[Tree],
    method: str | registry.Assign = "rewardflow",
    **switches: Any,
) -> Iterator[CreditedTree]:
    """Gives every tree its credit, in memory: no file is written.

    `method` is a name that `agentcli assign-credit --method` takes, or a function of
    your own, `assign(tree, settings) -> Credit`, whose `settings` are annotated with
    the msgspec.Struct of its switches. `switches` are those of the method, for instance
    gamma=0.9. Raises UsageError at once for an unknown method or switch, with the
    nearest name, and DataError for a tree that the method cannot use.

    >>> for credited in assign(read_trees("runs/x"), "rloo", success_reward=2):
    ...     print(credited.tree.task.id, credited.advantages[0])
    train/0 2.0
    train/1 0.0
    """
    if isinstance(method, str):
        _, function, settings = registry.make({"method": method, **switches})
    else:
        name = getattr(method, "__name__", "method")
        function, settings = method, registry.settings_of(name, method, switches)
    # A generator apart: this function must refuse a wrong switch when it is called.
    return _assigned(trees, function, settings)


def _assigned(
    trees: Tree | Iterable[Tree], function: registry.Assign, settings: msgspec.Struct
) -> Iterator[CreditedTree]:
    for number, tree in enumerate(_several(trees), 1):
        walks.validate_tree(tree, f"tree {number}")
        credit = function(tree, settings)
        # The function may be the user's own.
        fault = registry.misfit(credit, tree)
        if fault is not None:
            raise DataError(f"credit of tree {number}: {fault}")
        yield CreditedTree(tree, credit)


def to_frame(things: Thing | Iterable[Thing]) -> "DataFrame":
    """A pandas data frame of trees, trajectories, credit or episodes.

    One row is

    - a step, once, for trees and for what `assign` gives;
    - a step of a trajectory, for trajectories: what they share is repeated;
    - a row of credit, for what `read_credit` gives;
    - an episode, for what `read_episodes` gives.

    The columns of steps are the fields of `agentcli.records.step_rows.StepRow`; those
    of credit are tree, task, method, step, advantage, masked, weight, and `part_NAME`
    for each part of an advantage; those of episodes the fields of
    `agentcli.records.types.Episode` but the ledger. `tree` counts what is given, from
    1: for a whole file it is the line, as in `agentcli show RUN TREE`. Raises
    MissingError without pandas, UsageError for things of several kinds.

    >>> frame = to_frame(read_trees("runs/x"))
    >>> frame.shape
    (27, 23)
    >>> list(frame.columns[:6])
    ['tree', 'task', 'kind', 'trajectory', 'step', 'parent']
    >>> frame.dropna(subset="outcome").groupby("tree").outcome.count().to_dict()
    {1: 3, 2: 3}
    """
    try:
        from pandas import DataFrame
    except ImportError as error:
        raise MissingError(
            "to_frame needs pandas; install it with: pip install pandas"
        ) from error
    rows: list[dict[str, Any]] = []
    for number, thing in _numbered(_several(things)):
        rows += _rows(number, thing)
    frame = DataFrame(rows)
    # A column of nothing but None would have no type.
    types = {"parent": "Int64", "advantage": "float64"}
    return frame.astype({name: types[name] for name in types if name in frame})


def _several(things: Any) -> Iterable[Any]:
    """The things themselves, where one alone may have been given."""
    return things if isinstance(things, Iterable) else (things,)


def _numbered(things: Iterable[Thing]) -> Iterator[tuple[int, Thing]]:
    """Every thing with the number of its tree: several may be of one."""
    number = 0
    last: object = None
    for thing in things:
        tree = thing.tree if isinstance(thing, Trajectory | CreditedTree) else thing
        # By identity, because two trees in a row may be equal.
        number += tree is not last
        last = tree
        yield number, thing


def _rows(number: int, thing: Thing) -> Iterator[dict[str, Any]]:
    if isinstance(thing, Credit):
        yield from _credit_rows(number, thing)
    elif isinstance(thing, Episode):
        row = msgspec.to_builtins(thing)
        del row["schema_version"], row["ledger"]
        yield row
    else:
        for step in _step_rows(number, thing):
            yield msgspec.structs.asdict(step)


def _step_rows(number: int, thing: Tree | Trajectory | CreditedTree) -> list[StepRow]:
    if isinstance(thing, Tree):
        return step_rows(number, thing)
    if isinstance(thing, CreditedTree):
        return step_rows(number, thing.tree, thing.credit)
    if isinstance(thing, Trajectory):
        return [
            step_row(number, thing.tree, step, thing.number, depth)
            for depth, step in enumerate(thing.steps)
        ]
    raise UsageError(
        f"to_frame: {type(thing).__name__} has no rows; give it trees, trajectories, "
        "credit or episodes"
    )


def _credit_rows(number: int, credit: Credit) -> Iterator[dict[str, Any]]:
    for row in credit.steps:
        parts = {f"part_{name}": value for name, value in row.parts.items()}
        yield {
            "tree": number,
            "task": credit.task,
            "method": credit.method,
            "step": row.step,
            "advantage": row.advantage,
            "masked": row.masked,
            "weight": row.weight,
            **parts,
        }
