"""assign-credit: trees in, one line of credit per tree out; a pure step that knows no
environment and no policy.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from agentcli.credit.common import CreditStatistics, GraphSizes
from agentcli.credit.registry import Assign, make
from agentcli.errors import DataError
from agentcli.records.files import read_numbered
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import Settings
from agentcli.records.trees import validate_tree
from agentcli.records.types import StageRecord, Tree
from agentcli.stages.plan import StagePlan, count_trees
from agentcli.stages.session import Invocation, Session, carry_out, rewriting


@dataclass(frozen=True, kw_only=True)
class CreditPlan(StagePlan):
    """Credit that may be assigned."""

    trees: Path
    method: str
    assign: Assign
    switches: msgspec.Struct
    """The method's own settings."""
    graph: bool

    def counts(self) -> dict[str, int]:
        return {"trees": count_trees(self.trees)}


def plan(settings: Settings, run: Path, *, graph: bool = False) -> CreditPlan:
    """Credit for the trees of `run`; with `graph` also the state graph of every tree:
    the one whose values rewardflow took, or for another method the one that rewardflow
    would take with its defaults.

    Raises DataError without trees, UsageError for settings the method does not have.
    """
    directory = RunDirectory(run)
    trees = directory.existing_trees()
    method, assign, switches = make(settings.credit)
    settings = msgspec.structs.replace(
        settings, credit={"method": method, **msgspec.to_builtins(switches)}
    )
    return CreditPlan(
        stage=f"credit/{method}",
        run=directory,
        settings=settings,
        sections=("credit",),
        inputs={"trees": trees},
        sources=[trees],
        outputs=[directory.credit(method), *([run / "graphs"] if graph else [])],
        trees=trees,
        method=method,
        assign=assign,
        switches=switches,
        graph=graph,
    )


def assign_credit(
    settings: Settings, run: Path, invocation: Invocation, *, graph: bool = False
) -> StageRecord:
    """Plan and perform."""
    return carry_out(plan(settings, run, graph=graph), perform, invocation)


def perform(plan: CreditPlan, session: Session) -> StageRecord:
    """Write credit/<method>.jsonl beside the trees, and the graphs in graphs/. Raises
    DataError for damaged trees.
    """
    trees = plan.trees
    progress = session.progress
    if session.done and all(path.exists() for path in plan.outputs):
        return session.nothing_owed(session.done)
    statistics = CreditStatistics(getattr(plan.switches, "outcome", "success"))
    progress.start(f"credit {plan.method}", None)
    with rewriting(plan.run.credit(plan.method)) as writer:
        line = 0
        for line, tree in read_numbered(trees, Tree):
            validate_tree(tree, f"{trees}:{line}")
            try:
                credit = plan.assign(tree, plan.switches)
                statistics.add(tree, credit)
            except DataError as error:
                raise DataError(f"{trees}:{line}: {error}") from error
            writer.write(credit)
            progress.advance()
        if line == 0:
            raise DataError(
                f"{trees}: holds no trees; grow some with: agentcli rollout --resume "
                f"-o {plan.run.path}"
            )
        session.start()
    progress.stop()
    for warning in statistics.warnings:
        progress.note(f"warning: {warning}")
    drawn = (
        {"graphs": _export(trees, plan.run.path / "graphs", plan.switches)}
        if plan.graph
        else {}
    )
    return session.finish(statistics={**statistics.summary(), **drawn})


def _export(trees: Path, folder: Path, settings: msgspec.Struct) -> dict[str, Any]:
    """Write the state graph of every tree, by its line; returns the sizes of 002 Table
    9.
    """
    from agentcli.credit.export import write_graph
    from agentcli.credit.rewardflow import graph_of

    sizes = GraphSizes()
    for line, tree in read_numbered(trees, Tree):
        graph = graph_of(tree, settings)
        write_graph(graph, folder / f"{line:05d}")
        sizes.add(graph.size)
    return sizes.summary()
