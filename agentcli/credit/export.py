"""State graphs as files for other programs: GraphML, DOT and JSON.

Observations are text from outside: characters that XML or UTF-8 cannot represent are
escaped visibly, and DOT strings are quoted. In a picture of the DOT file, labels are
shortened and the full text is the tooltip. States closer to a success are greener. An
edge with a positive advantage (without credit: gain) is green, a negative one red.
"""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from agentcli.credit.graph import StateGraph
from agentcli.credit.rewardflow import RewardFlowSettings, state_graph
from agentcli.credit.survey import survey_of
from agentcli.records.files import write_atomic
from agentcli.records.step_rows import mean_advantage
from agentcli.records.types import Credit, StepCredit, Tree

if TYPE_CHECKING:
    import networkx

_UNCARRIABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
"""Characters that are replaced in file names."""
LONGEST_STEM = 100
"""The most characters of a file name, without its suffix."""
LABEL = 60
"""The most characters of a state that its box shows."""
_COLOURS = {
    "success": "palegreen",
    "failure": "lightcoral",
}


def graph_of(tree: Tree, settings: msgspec.Struct) -> StateGraph:
    """The state graph for rewardflow's settings; for other settings, with its defaults.

    The release form builds no such graph and gets the default one too.
    """
    if not isinstance(settings, RewardFlowSettings) or settings.form != "paper":
        settings = RewardFlowSettings()
    return state_graph(tree, survey_of(tree, settings), settings)


def stem_of(line: int, task: str) -> str:
    """The file stem of a tree's graph: its line in the trees file, and its task."""
    # The line comes first: it keeps stems unique where task ids are cut or alike.
    return f"{line:05d}-{_UNFIT.sub('_', task)}"[:LONGEST_STEM]


def write_graph(
    graph: StateGraph, stem: Path, credit: Credit | None = None
) -> list[Path]:
    """Writes STEM.graphml, STEM.dot and STEM.json (node-link form), each atomically.

    `credit` belongs to the same tree. Returns the three paths.
    """
    import networkx

    multigraph = to_networkx(graph, credit)
    # Named, because releases of networkx differ in the default: links or edges.
    node_links = networkx.node_link_data(multigraph, edges="edges")
    documents = {
        ".graphml": "\n".join(networkx.generate_graphml(multigraph)),
        ".dot": _dot(multigraph),
        ".json": json.dumps(node_links, indent=1),
    }
    written = []
    for suffix, text in documents.items():
        target = stem.with_name(stem.name + suffix)
        write_atomic(target, (text + "\n").encode())
        written.append(target)
    return written


def to_networkx(
    graph: StateGraph, credit: Credit | None = None
) -> "networkx.MultiDiGraph[int]":
    """Nodes with label, kind, visits, value and hops; edges with action, count, gain.

    A node that cannot reach a success has no `hops`. Only a node where trajectories
    were cut off has `truncated`. With `credit`, an edge also has the mean `advantage`
    of its steps, if they have any.
    """
    import networkx

    advantages = _mean_advantages(graph, credit)
    task = printable(graph.task)
    multigraph: networkx.MultiDiGraph[int] = networkx.MultiDiGraph(task=task)
    for number, node in enumerate(graph.nodes):
        multigraph.add_node(
            number,
            label=printable(node.key),
            kind=node.kind,
            visits=node.visits,
            value=node.value,
        )
        if node.hops is not None:
            multigraph.nodes[number]["hops"] = float(node.hops)
        if node.truncated:
            multigraph.nodes[number]["truncated"] = node.truncated
    for edge in graph.edges:
        known = {}
        advantage = advantages.get((edge.source, edge.target, edge.action))
        if advantage is not None:
            known["advantage"] = advantage
        multigraph.add_edge(
            edge.source,
            edge.target,
            action=printable(edge.action),
            count=edge.count,
            gain=edge.gain,
            **known,
        )
    return multigraph


def _mean_advantages(
    graph: StateGraph, credit: Credit | None
) -> dict[tuple[int, int, str], float]:
    """The mean advantage of each edge's steps, for edges that have any."""
    rows: dict[tuple[int, int, str], list[StepCredit]] = {}
    for row in credit.steps if credit is not None else ():
        # A pruned step is no edge, so there is nothing to write its advantage on.
        if row.advantage is None or graph.pruned[row.step]:
            continue
        source, target = graph.sources[row.step], graph.targets[row.step]
        edge = (source, target, graph.actions[row.step])
        rows.setdefault(edge, []).append(row)
    means = {}
    for edge, of_edge in rows.items():
        mean = mean_advantage(of_edge)
        if mean is not None:
            means[edge] = mean
    return means


def printable(text: str) -> str:
    """`text` with control characters and lone surrogates written as \\uXXXX."""
    return _UNCARRIABLE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def _dot(graph: "networkx.MultiDiGraph[int]") -> str:
    """The graph in Graphviz' language; with networkx this would need pydot."""
    lines = [
        f"digraph {_quoted(graph.graph['task'])} {{",
        "  node [shape=box, style=filled, fillcolor=white];",
    ]
    for number, node in graph.nodes(data=True):
        lines.append(f"  {number} [{_node_attributes(node)}];")
    for source, target, edge in graph.edges(data=True):
        lines.append(f"  {source} -> {target} [{_edge_attributes(edge)}];")
    return "\n".join([*lines, "}"])


def _node_attributes(node: dict[str, Any]) -> str:
    """Label, tooltip and colour of a state; dashed where trajectories were cut off."""
    text = " ".join(node["label"].split())
    if len(text) > LABEL:
        text = f"{text[:LABEL]}..."
    label = f"{text}\n{node['value']:.3f} x{node['visits']}"
    # Hue, saturation and brightness: from white to green.
    colour = _COLOURS.get(node["kind"], f"0.33 {node['value'] / 2:.3f} 1.0")
    attributes = {"tooltip": node["label"], "fillcolor": colour}
    if "truncated" in node:
        label += f"\n{node['truncated']} cut off"
        attributes["style"] = "filled,dashed"
    return _attributes({"label": label, **attributes})


def _edge_attributes(edge: dict[str, Any]) -> str:
    """Label and colour of an edge, by its advantage, or its gain if it has none."""
    worth = edge.get("advantage", edge["gain"])
    attributes = {"label": f"{edge['action']} {worth:+.3f} x{edge['count']}"}
    if worth:
        attributes["color"] = "forestgreen" if worth > 0 else "firebrick"
    return _attributes(attributes)


def _attributes(values: dict[str, str]) -> str:
    return ", ".join(f"{name}={_quoted(value)}" for name, value in values.items())


def _quoted(text: str) -> str:
    # Backslashes first, or those that escape a quote would be escaped again.
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    one_line = escaped.replace("\r", "").replace("\n", "\\n")
    return f'"{one_line}"'
