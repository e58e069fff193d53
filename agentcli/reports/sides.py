"""Tables of `agentcli compare` where a side has several runs."""

from collections.abc import Iterator

from rich.text import Text

from agentcli.evaluation.compare import RunComparison
from agentcli.records.faults import printable
from agentcli.reports.blocks import Blocks
from agentcli.reports.comparison import SOLVED, kinds_table, label_table, wilcoxon_table
from agentcli.reports.study import over_seeds, seed_table, tables


def sides_tables(comparison: RunComparison) -> Iterator[Blocks | Text]:
    """Gains over seeds, then those over games, and what the loops did not spend alike.

    The costs of a task are left out: they would be sums over seeds.
    """
    for title, rows in tables(comparison.differences, comparison.first):
        yield seed_table(f"{title}, over seeds", rows)
    for label, sides in comparison.evaluations.items():
        games = label_table(f"{label} over games, seeds taken as samples", sides)
        # Whether any seed solved a task says nothing of one run.
        games.leave_out(SOLVED)
        yield games
        yield kinds_table(label, sides)
    if comparison.wilcoxon:
        yield wilcoxon_table(comparison.wilcoxon, comparison.benchmarks)
    for line in over_seeds(comparison.unlike):
        yield Text(printable(line))
