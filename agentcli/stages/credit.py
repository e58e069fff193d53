"""assign-credit: trees in, one line of credit per tree out; a pure step that knows no environment and no policy."""

from pathlib import Path

import msgspec

from agentcli.credit.common import CreditStatistics
from agentcli.credit.registry import make
from agentcli.records.files import read_records
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import Settings
from agentcli.records.trees import validate_tree
from agentcli.records.types import StageRecord, Tree
from agentcli.stages.session import Invocation, Session, rewriting


def assign_credit(settings: Settings, run: Path, invocation: Invocation, *, graph: bool = False) -> StageRecord:
    """Write credit/<method>.jsonl beside the trees, and with `graph` the state graph of every tree in graphs/.

    Raises DataError for damaged trees, UsageError for settings the method does not have.
    """
    directory = RunDirectory(run)
    trees = directory.existing_trees()
    name, assign, own = make(settings.credit)
    settings = msgspec.structs.replace(settings, credit={"method": name, **msgspec.to_builtins(own)})
    session = Session(f"credit/{name}", directory, settings, invocation, ("credit",))
    outputs = [directory.credit(name), *([run / "graphs"] if graph else [])]
    session.check(outputs)
    statistics, progress = CreditStatistics(), invocation.progress
    progress.start(f"credit {name}", None)
    with rewriting(directory.credit(name)) as writer:
        for number, tree in enumerate(read_records(trees, Tree), 1):
            validate_tree(tree, f"{trees}:{number}")
            credit = assign(tree, own)
            statistics.add(tree, credit)
            writer.write(credit)
            progress.advance()
        session.start()
    progress.stop()
    if graph:
        _export(trees, run / "graphs")
    return session.finish(inputs=[trees], statistics=statistics.summary())


def _export(trees: Path, folder: Path) -> None:
    """The state graph of every tree, numbered as the lines are."""
    from agentcli.credit.export import write_graph
    from agentcli.credit.graph import build

    for number, tree in enumerate(read_records(trees, Tree), 1):
        write_graph(build(tree), folder / f"{number:05d}")
