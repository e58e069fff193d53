"""How much steps meet under each notion of a state.

usage: measure_states.py TREES.jsonl

Prints graph sizes as in RewardFlow Table 9, and how many step-level terms are not 0: one
Markdown row per `credit.state`. Every figure is over the trees of the file; errored
steps are left out. `agentcli rollout --split L0 --tasks 12 ... -o runs/x` writes
runs/x/trees.jsonl.
"""

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from agentcli.credit import gigpo, rewardflow
from agentcli.credit.gigpo import GigpoSettings
from agentcli.credit.rewardflow import RewardFlowSettings, state_graph
from agentcli.credit.statistics import graph_sizes
from agentcli.credit.survey import survey_of
from agentcli.errors import AgentCliError
from agentcli.records.files import read_records
from agentcli.records.types import Credit, Tree

FORMS = ("paper", "exact", "observation")
HEADS = (
    "state",
    "nodes",
    "edges",
    "most nodes",
    "most edges",
    "alone, %",
    "RewardFlow action term, %",
    "GiGPO step term, %",
)


def main(path: Path) -> None:
    """Print the table."""
    trees = list(read_records(path, Tree))
    print(f"{len(trees)} trees, {sum(len(tree.steps) for tree in trees)} steps\n")
    for cells in (HEADS, ["---"] * len(HEADS), *(row(trees, form) for form in FORMS)):
        print(f"| {' | '.join(cells)} |")


def row(trees: list[Tree], form: str) -> list[str]:
    """One line of the table."""
    flow = RewardFlowSettings(state=form)
    grouped = GigpoSettings(state=form)
    sizes = []
    steps = alone = 0
    for tree in trees:
        graph = state_graph(tree, survey_of(tree, flow), flow)
        sizes.append(graph.size)
        groups = Counter(source for source in graph.sources if source >= 0)
        steps += groups.total()
        alone += sum(size == 1 for size in groups.values())
    size = graph_sizes(sizes)
    action = nonzero((rewardflow.assign(tree, flow) for tree in trees), "action")
    step = nonzero((gigpo.assign(tree, grouped) for tree in trees), "step")
    counts = [
        f"{size['nodes']:.1f}",
        f"{size['edges']:.1f}",
        str(size["most_nodes"]),
        str(size["most_edges"]),
    ]
    return [form, *counts, percent(alone / steps), percent(action), percent(step)]


def nonzero(credits: Iterable[Credit], part: str) -> float:
    """Share of the rows with an advantage whose summand `part` is not 0."""
    values = [
        row.parts[part]
        for credit in credits
        for row in credit.steps
        if row.advantage is not None
    ]
    return sum(abs(value) > 1e-12 for value in values) / len(values)


def percent(share: float) -> str:
    """A share in percent, with one decimal."""
    return f"{100 * share:.1f}"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print(f"error: {__doc__.split(chr(10))[2]}", file=sys.stderr)
        sys.exit(2)
    try:
        main(Path(sys.argv[1]))
    except AgentCliError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
