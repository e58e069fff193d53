"""credit compare: several methods on the same trees. Nothing is written.

credit_sources.py says where the advantages of a method come from. The trees are read
twice: once for the numbers, once for the texts of the few steps that are listed.
"""

from collections.abc import Sequence
from pathlib import Path

from agentcli.analysis.credit_sources import (
    CreditSource,
    credit_sources,
    held_methods,
    note_stale,
    refuse_leftover,
    taker,
)
from agentcli.credit.compare import Comparison, CreditComparison, Disagreement
from agentcli.credit.registry import make
from agentcli.errors import DataError, UsageError
from agentcli.records.files import read_numbered
from agentcli.records.runs import RunDirectory
from agentcli.records.types import Step, Tree
from agentcli.reports.standing import Progress, Standing
from agentcli.stages.trees import checked_trees

MOST = 10
"""Maximum number of steps that are listed."""


def compare_credit(
    run: Path,
    names: Sequence[str],
    progress: Progress,
    most: int = MOST,
) -> CreditComparison:
    """Compares the methods `names`; without any, those whose credit RUN holds.

    Credit of other trees is not read, which is noted. Raises UsageError for fewer than
    two methods or one named twice, and DataError for damaged trees, or credit that does
    not belong to them.
    """
    directory = RunDirectory(run)
    trees = directory.existing_trees()
    names = list(names) or held_methods(run)
    _check_names(run, names)
    sources = credit_sources(directory, trees, names)
    takers = [taker(source) for source in sources]
    comparison = Comparison(names)
    progress.start(Standing("compare", None))
    for line, tree in checked_trees(trees):
        place = f"{trees}:{line}"
        comparison.add(line, tree, [take(tree, place) for take in takers])
        progress.advance()
    progress.stop()
    refuse_leftover(takers, trees)
    if comparison.kept == 0:
        raise DataError(
            f"{trees}: holds no steps; grow some trees with: agentcli rollout "
            f"--resume -o {run}"
        )
    note_stale(sources, progress)
    return answer_of(comparison, sources, trees, most)


def answer_of(
    comparison: Comparison,
    sources: Sequence[CreditSource],
    trees: Path,
    most: int = MOST,
) -> CreditComparison:
    """The result of comparing all `trees`, with its sources and texts."""
    answer = comparison.answer(most)
    for method, source in zip(answer.methods, sources, strict=True):
        method.file = source.file
        method.settings = source.settings
    _add_texts(trees, answer.disagreements)
    return answer


def _check_names(run: Path, names: Sequence[str]) -> None:
    """Raises UsageError for an unknown method, one named twice, and fewer than two."""
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{name} is named twice; name each method once")
        make({"method": name})
    if len(names) < 2:
        raise UsageError(
            f"nothing to compare in {run}; name two methods, for instance: agentcli "
            f"credit compare {run} grpo carl"
        )


def _add_texts(trees: Path, rows: Sequence[Disagreement]) -> None:
    """Fills in task, kind and action."""
    by_line: dict[int, list[Disagreement]] = {}
    for row in rows:
        by_line.setdefault(row.line, []).append(row)
    # Few steps are listed: what follows their trees is not decoded.
    records = read_numbered(trees, Tree)
    while by_line:
        line, tree = next(records)
        for row in by_line.pop(line, []):
            row.task = tree.task.id
            row.kind = tree.task.kind
            row.action = _action(tree.steps[row.step])


def _action(step: Step) -> str | None:
    """The action, or that of every copy."""
    if not step.moves:
        return step.action
    return ", ".join(f"{move.copy}: {move.action}" for move in step.moves)
