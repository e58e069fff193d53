"""State graphs as files for other programs: GraphML, DOT and JSON, through networkx
(imported here and nowhere else).

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
_COLOURS = {"success": "palegreen", "failure": "lightcoral"}


def write_graph(graph: StateGraph, stem: Path) -> list[Path]:
    """Write STEM.graphml, STEM.dot and STEM.json (node-link form), each atomically;
    returns the three paths.
    """
    import networkx

    multigraph = to_networkx(graph)
    documents = {
        ".graphml": "\n".join(networkx.generate_graphml(multigraph)),
        ".dot": _dot(multigraph),
        ".json": json.dumps(
            networkx.node_link_data(multigraph, edges="edges"), indent=1
        ),
    }
    written = []
    for suffix, text in documents.items():
        target = stem.with_name(stem.name + suffix)
        write_atomic(target, (text + "\n").encode())
        written.append(target)
    return written


def to_networkx(graph: StateGraph) -> "networkx.MultiDiGraph[int]":
    """Nodes with label, kind, visits, value and hops (absent where no success is
    reachable); edges with action, count, gain.
    """
    import networkx

    multigraph: networkx.MultiDiGraph[int] = networkx.MultiDiGraph(
        task=printable(graph.task)
    )
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
    lines = [
        f"digraph {_quoted(graph.graph['task'])} {{",
        "  node [shape=box, style=filled, fillcolor=white];",
    ]
    for number, node in graph.nodes(data=True):
        label = _quoted(f"{node['label']}\n{node['value']:.3f} x{node['visits']}")
        lines.append(
            f"  {number} [label={label}, "
            f"fillcolor={_COLOURS.get(node['kind'], 'white')}];"
        )
    for source, target, edge in graph.edges(data=True):
        label = _quoted(f"{edge['action']} {edge['gain']:+.3f} x{edge['count']}")
        lines.append(f"  {source} -> {target} [label={label}];")
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    escaped = (
        text.replace("\\", "\\\\")
        .replace('"', '\\"')
        .replace("\r", "")
        .replace("\n", "\\n")
    )
    return f'"{escaped}"'
