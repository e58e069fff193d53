"""State graphs written as GraphML, DOT and JSON, hostile text included."""

import json
import re
from pathlib import Path

import networkx
import pytest
from agentcli.credit.export import printable, stem_of, write_graph
from agentcli.credit.graph import StateGraph, build
from agentcli.records.types import Credit, Outcome, StepCredit
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
    node, edge = r"  \d+ \[label=S, tooltip=S, fillcolor=S(, style=S)?\];", r"  \d+ -> \d+ \[label=S(, color=S)?\];"
    statement = re.compile(f"{node}|{edge}")
    assert all(statement.fullmatch(line) for line in bare[2:-1])
    assert len(bare) == 3 + len(graph.nodes) + len(graph.edges)
    assert "palegreen" in text
    assert "\\\\N" in text


def test_boxes_are_short_and_say_where_trajectories_were_cut_off(tmp_path: Path) -> None:
    trajectories = [walk("ab", SUCCESS), walk("ac", Outcome.TRUNCATED)]
    for fields in (trajectories[0][0], trajectories[1][0]):
        fields["state"] = "a long welcome " * 20
    text = write_graph(build(chains(trajectories)), tmp_path / "g")[1].read_text()
    labels = re.findall(r'label="((?:[^"\\]|\\.)*)"', text)
    assert max(map(len, labels)) < 100
    assert "a long welcome " * 20 in text, "the tooltip has it"
    assert text.count("1 cut off") == text.count("dashed") == 1


def test_actions_have_the_advantages_of_the_method(tmp_path: Path) -> None:
    """Two steps take the first action, and only one of them has an advantage; the last action has none."""
    tree = chains([walk("abc", SUCCESS), walk("abd", FAILURE)])
    steps = [StepCredit(step=0, advantage=0.5), StepCredit(step=2, advantage=None), StepCredit(step=3, advantage=-1.0)]
    credit = Credit(task=tree.task.id, method="m", steps=steps)
    _, dot, document = write_graph(build(tree), tmp_path / "g", credit)
    edges = json.loads(document.read_text())["edges"]
    assert [edge.get("advantage") for edge in edges] == [0.5, None, -1.0]
    assert (dot.read_text().count("forestgreen"), dot.read_text().count("firebrick")) == (2, 1)


@pytest.mark.parametrize("task", ["train/a b/trial:1", "../../x", "é" * 300, "\ud800\0"])
def test_a_file_is_named_by_line_and_task(task: str) -> None:
    stem = stem_of(7, task)
    assert re.fullmatch(r"00007-[\w.-]*", stem, re.ASCII)
    assert len(stem) <= 100


def test_an_empty_graph_is_written(tmp_path: Path) -> None:
    for file in write_graph(StateGraph("t"), tmp_path / "folder" / "g"):
        assert file.read_text().strip()
