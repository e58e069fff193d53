"""assign-credit --graph: the values that the method took, and the sizes of RewardFlow Table 9 in the manifest."""

import json
from pathlib import Path
from typing import Any

import pytest
from agentcli.records.files import read_records
from agentcli.records.runs import RunDirectory
from agentcli.records.types import Credit
from agentcli.stages.session import Invocation
from grown_runs import roll, toy
from staged import assign_credit


@pytest.fixture
def run(tmp_path: Path) -> Path:
    roll(toy(tasks=6), tmp_path / "run")
    return tmp_path / "run"


def graphs(run: Path, **switches: Any) -> list[dict[str, Any]]:
    settings = toy()
    settings.credit = switches
    assign_credit(settings, run, Invocation(["agentcli"], overwrite=True), graph=True)
    return [json.loads(file.read_text()) for file in sorted((run / "graphs").glob("*.json"))]


def test_sizes_are_counted_as_table_9_does(run: Path) -> None:
    found = graphs(run, method="grpo")
    record = RunDirectory(run).finished("credit/grpo")
    assert record is not None
    nodes, edges = ([len(graph[part]) for graph in found] for part in ("nodes", "edges"))
    assert len(set(nodes)) > 1
    assert record.statistics["graphs"] == {
        "nodes": pytest.approx(sum(nodes) / 6),
        "edges": pytest.approx(sum(edges) / 6),
        "most_nodes": max(nodes),
        "most_edges": max(edges),
    }


def test_without_graphs_no_sizes(run: Path) -> None:
    record = assign_credit(toy(), run, Invocation(["agentcli"]))
    assert "graphs" not in record.statistics


def test_the_graph_holds_the_values_that_rewardflow_took(run: Path) -> None:
    found = graphs(run, method="rewardflow", gamma=0.5)
    values = {node["value"] for graph in found for node in graph["nodes"]}
    assert {1.0, 0.5} <= values <= {0.0, *(0.5**hops for hops in range(20))}
    credit = read_records(run / "credit/rewardflow.jsonl", Credit)
    assert {entry.parts["value"] for given in credit for entry in given.steps} <= values
    gains = {edge["gain"] for graph in found for edge in graph["edges"]}
    assert max(gains) == 0.5
    released = graphs(run, method="rewardflow", form="release")
    assert [graph["nodes"] for graph in released] == [graph["nodes"] for graph in graphs(run, method="carl")]


def test_the_actions_of_a_graph_have_the_advantages_of_the_method(run: Path) -> None:
    drawn = graphs(run, method="grpo")
    credit = {given.task: given for given in read_records(run / "credit/grpo.jsonl", Credit)}
    for graph in drawn:
        given = {entry.advantage for entry in credit[graph["graph"]["task"]].steps}
        for edge in graph["edges"]:
            if edge["count"] == 1:
                assert edge["advantage"] in given
