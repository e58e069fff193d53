"""assign-credit: trees in, one line of credit per tree out; a pure step that knows no environment and no policy."""

from pathlib import Path

import msgspec

from agentcli.credit.common import CreditStatistics
from agentcli.credit.registry import make
from agentcli.records.files import RecordWriter, read_records
from agentcli.records.runs import RunDirectory
from agentcli.records.settings import Settings
from agentcli.records.trees import validate_tree
from agentcli.records.types import StageRecord, Tree
from agentcli.stages.progress import Progress
from agentcli.stages.session import Session


def assign_credit(
    settings: Settings, run: Path, *, graph: bool, overwrite: bool, command: list[str], progress: Progress
) -> StageRecord:
    """Write credit/<method>.jsonl beside the trees, and with `graph` the state graph of every tree in graphs/.

    Raises DataError for damaged trees, UsageError for settings the method does not have.
    """
    directory = RunDirectory(run)
    trees = directory.existing_trees()
    name, assign, own = make(settings.credit)
    settings = msgspec.structs.replace(settings, credit={"method": name, **msgspec.to_builtins(own)})
    session = Session(f"credit/{name}", directory, settings, command, ("credit",))
    outputs = [directory.credit(name), *([run / "graphs"] if graph else [])]
    session.begin(outputs, overwrite=overwrite)
    statistics = CreditStatistics()
    progress.start(f"credit {name}", None)
    part = directory.credit(name).with_suffix(".part")
    with RecordWriter(part) as writer:
        for number, tree in enumerate(read_records(trees, Tree), 1):
            validate_tree(tree, f"{trees}:{number}")
            credit = assign(tree, own)
            statistics.add(tree, credit)
            writer.write(credit)
            if graph:
                _export(tree, run / "graphs" / f"{number:05d}")
            progress.advance()
    part.replace(directory.credit(name))
    progress.stop()
    return session.finish(inputs=[trees], statistics=statistics.summary())


def _export(tree: Tree, stem: Path) -> None:
    from agentcli.credit.export import write_graph
    from agentcli.credit.graph import build

    write_graph(build(tree), stem)
