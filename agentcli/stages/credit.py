"""assign-credit: trees in, one line of credit per tree out; a pure step that knows no environment and no policy."""

from pathlib import Path
from typing import Any

import msgspec

from agentcli.credit.common import CreditStatistics, GraphSizes
from agentcli.credit.registry import make
from agentcli.errors import DataError
from agentcli.records.files import read_numbered
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import Settings
from agentcli.records.trees import validate_tree
from agentcli.records.types import StageRecord, Tree
from agentcli.stages.session import Invocation, Session, rewriting


def assign_credit(settings: Settings, run: Path, invocation: Invocation, *, graph: bool = False) -> StageRecord:
    """Write credit/<method>.jsonl beside the trees, and with `graph` the state graph of every tree in graphs/: the one whose
    values rewardflow took, or for another method the one that rewardflow would take with its defaults.

    Raises DataError for damaged trees, UsageError for settings the method does not have.
    """
    directory = RunDirectory(run)
    trees = directory.existing_trees()
    name, assign, own = make(settings.credit)
    settings = msgspec.structs.replace(settings, credit={"method": name, **msgspec.to_builtins(own)})
    outputs = [directory.credit(name), *([run / "graphs"] if graph else [])]
    with Session(f"credit/{name}", directory, settings, invocation, ("credit",), inputs=[trees]) as session:
        session.check(outputs)
        if session.done and all(path.exists() for path in outputs):
            return session.nothing_owed(session.done)
        statistics, progress = CreditStatistics(getattr(own, "outcome", "success")), session.progress
        progress.start(f"credit {name}", None)
        with rewriting(directory.credit(name)) as writer:
            line = 0
            for line, tree in read_numbered(trees, Tree):
                validate_tree(tree, f"{trees}:{line}")
                try:
                    credit = assign(tree, own)
                    statistics.add(tree, credit)
                except DataError as error:
                    raise DataError(f"{trees}:{line}: {error}") from error
                writer.write(credit)
                progress.advance()
            if line == 0:
                raise DataError(f"{trees}: holds no trees; grow some with: agentcli rollout --resume -o {run}")
            session.start()
        progress.stop()
        for warning in statistics.warnings:
            progress.note(f"warning: {warning}")
        drawn = {"graphs": _export(trees, run / "graphs", own)} if graph else {}
        return session.finish(statistics={**statistics.summary(), **drawn})


def _export(trees: Path, folder: Path, settings: msgspec.Struct) -> dict[str, Any]:
    """Write the state graph of every tree, by its line; returns the sizes of 002 Table 9."""
    from agentcli.credit.export import write_graph
    from agentcli.credit.rewardflow import graph_of

    sizes = GraphSizes()
    for line, tree in read_numbered(trees, Tree):
        graph = graph_of(tree, settings)
        write_graph(graph, folder / f"{line:05d}")
        sizes.add(graph.size)
    return sizes.summary()
