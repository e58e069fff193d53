"""State graphs written as GraphML, DOT and JSON, hostile text included."""

import json
import re
from pathlib import Path

import networkx
import pytest
from agentcli.credit.export import printable, write_graph
from agentcli.credit.graph import StateGraph, build
from credit_trees import FAILURE, SUCCESS, chains, walk

HOSTILE = 'a "quoted" \\N \\" <b>&amp;</b> ]]> \x00\x0b\x1b[31m \ud800 \uffff é 🙂\nnext\r\nline; } // -> {'


@pytest.fixture
def graph() -> StateGraph:
    trajectories = [walk("abc", SUCCESS), walk("abd", FAILURE)]
    trajectories[0][1]["action"] = HOSTILE
    for fields in (trajectories[0][0], trajectories[1][0]):
        fields["state"] = HOSTILE
    return build(chains(trajectories))


def test_graphml_reads_back(graph: StateGraph, tmp_path: Path) -> None:
    graphml, _, _ = write_graph(graph, tmp_path / "00001")
    assert graphml == tmp_path / "00001.graphml"
    back = networkx.read_graphml(graphml, node_type=int, force_multigraph=True)
    assert {number: data["value"] for number, data in back.nodes(data=True)} == {
        number: node.value for number, node in enumerate(graph.nodes)
    }
    assert [data.get("hops") for _, data in sorted(back.nodes(data=True))] == [node.hops for node in graph.nodes]
    label = back.nodes[0]["label"]
    assert "<b>&amp;</b> ]]>" in label
    assert "\\u0000\\u000b\\u001b[31m \\ud800 \\uffff é 🙂" in label
    assert back.number_of_edges() == len(graph.edges) == 3


def test_json_is_node_link(graph: StateGraph, tmp_path: Path) -> None:
    document = json.loads(write_graph(graph, tmp_path / "g.x")[2].read_text())
    assert (tmp_path / "g.x.json").exists()
    assert document["directed"]
    assert [node["kind"] for node in document["nodes"]] == ["state", "state", "success", "failure"]
    assert [node["visits"] for node in document["nodes"]] == [2, 2, 1, 1]
    assert {(edge["source"], edge["target"], edge["count"]) for edge in document["edges"]} == {
        (0, 1, 2),
        (1, 2, 1),
        (1, 3, 1),
    }
    assert document["edges"][1]["action"] == printable(HOSTILE)
    back = networkx.node_link_graph(document, edges="edges")
    assert back.number_of_nodes() == 4


def test_dot_strings_stay_closed(graph: StateGraph, tmp_path: Path) -> None:
    """Without its quoted strings, the file is nothing but the expected statements: no text from outside escapes them."""
    text = write_graph(graph, tmp_path / "g")[1].read_text()
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', "S", text).splitlines()
    assert bare[0] == "digraph S {"
    assert bare[1] == "  node [shape=box, style=filled, fillcolor=white];"
    assert bare[-1] == "}"
    statement = re.compile(r"  \d+ \[label=S, fillcolor=\w+\];|  \d+ -> \d+ \[label=S\];")
    assert all(statement.fullmatch(line) for line in bare[2:-1])
    assert len(bare) == 3 + len(graph.nodes) + len(graph.edges)
    assert "palegreen" in text
    assert "\\\\N" in text


def test_an_empty_graph_is_written(tmp_path: Path) -> None:
    for file in write_graph(StateGraph("t"), tmp_path / "folder" / "g"):
        assert file.read_text().strip()
