"""State graphs as files for other programs: GraphML, DOT and JSON.

networkx, which writes two of them, is imported here and nowhere else in credit.

Observations are text from outside: what XML or UTF-8 cannot carry is written as a
visible escape, and DOT strings are quoted.
"""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from agentcli.credit.graph import StateGraph
from agentcli.records.files import write_atomic

if TYPE_CHECKING:
    import networkx

_UNCARRIABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_COLOURS = {
    "success": "palegreen",
    "failure": "lightcoral",
}


def write_graph(graph: StateGraph, stem: Path) -> list[Path]:
    """Write STEM.graphml, STEM.dot and STEM.json (node-link form), each atomically.

    Returns the three paths.
    """
    import networkx

    multigraph = to_networkx(graph)
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


def to_networkx(graph: StateGraph) -> "networkx.MultiDiGraph[int]":
    """Nodes with label, kind, visits, value and hops; edges with action, count, gain.

    A node from which no success can be reached has no hops.
    """
    import networkx

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
    for edge in graph.edges:
        multigraph.add_edge(
            edge.source,
            edge.target,
            action=printable(edge.action),
            count=edge.count,
            gain=edge.gain,
        )
    return multigraph


def printable(text: str) -> str:
    """`text` with control characters and lone surrogates as \\uXXXX."""
    return _UNCARRIABLE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def _dot(graph: "networkx.MultiDiGraph[int]") -> str:
    """The graph in Graphviz' language; networkx would need pydot for it."""
    lines = [
        f"digraph {_quoted(graph.graph['task'])} {{",
        "  node [shape=box, style=filled, fillcolor=white];",
    ]
    for number, node in graph.nodes(data=True):
        label = _quoted(f"{node['label']}\n{node['value']:.3f} x{node['visits']}")
        colour = _COLOURS.get(node["kind"], "white")
        lines.append(f"  {number} [label={label}, fillcolor={colour}];")
    for source, target, edge in graph.edges(data=True):
        label = _quoted(f"{edge['action']} {edge['gain']:+.3f} x{edge['count']}")
        lines.append(f"  {source} -> {target} [label={label}];")
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    one_line = escaped.replace("\r", "").replace("\n", "\\n")
    return f'"{one_line}"'
