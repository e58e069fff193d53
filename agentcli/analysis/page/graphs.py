"""The state graph of a tree with a place for every state.

A state stands in the column of its distance from the start. Within a column states are
ordered by their neighbours, so that few edges cross.
"""

import msgspec
import networkx

from agentcli.analysis.page.texts import TextTable
from agentcli.credit.graph import STATE, StateGraph
from agentcli.records.types import Tree

SWEEPS = 4
"""How often the columns are ordered by their neighbours, there and back."""


class PlacedState(msgspec.Struct, kw_only=True, array_like=True):
    """One state."""

    column: int
    row: int
    text: int
    kind: str
    visits: int
    value: float
    hops: float | None
    truncated: int
    action: int
    """An action that leads here; it serves as the state's name."""


class PlacedEdge(msgspec.Struct, kw_only=True, array_like=True):
    """One action between two states."""

    source: int
    target: int
    action: int
    count: int
    gain: float


class PlacedGraph(msgspec.Struct, kw_only=True):
    """A state graph; `sources` and `targets` are the states by step."""

    states: list[PlacedState]
    edges: list[PlacedEdge]
    sources: list[int]
    targets: list[int]


def placed_graph(tree: Tree, graph: StateGraph, texts: TextTable) -> PlacedGraph:
    """The graph with its states in columns."""
    columns = _columns(tree, graph)
    places = _places(graph, columns)
    actions: dict[int, str] = {}
    for edge in graph.edges:
        if edge.source != edge.target:
            actions.setdefault(edge.target, edge.action)
    states = []
    for number, node in enumerate(graph.nodes):
        column, row = places[number]
        text = node.key if node.kind == STATE else node.kind
        state = PlacedState(
            column=column,
            row=row,
            text=texts.place(text),
            kind=node.kind,
            visits=node.visits,
            value=node.value,
            hops=node.hops,
            truncated=node.truncated,
            action=texts.place(actions.get(number)),
        )
        states.append(state)
    edges = []
    for edge in graph.edges:
        placed = PlacedEdge(
            source=edge.source,
            target=edge.target,
            action=texts.place(edge.action),
            count=edge.count,
            gain=edge.gain,
        )
        edges.append(placed)
    return PlacedGraph(
        states=states, edges=edges, sources=graph.sources, targets=graph.targets
    )


def _columns(tree: Tree, graph: StateGraph) -> list[list[int]]:
    """The states by their distance from those in which the tree starts."""
    arrows: networkx.DiGraph[int] = networkx.DiGraph()
    arrows.add_nodes_from(range(len(graph.nodes)))
    arrows.add_edges_from((source, target) for source, target, _ in graph.counts)
    starts = []
    for step in tree.steps:
        if step.parent is None and graph.sources[step.id] >= 0:
            starts.append(graph.sources[step.id])
    if not starts:
        return []
    layers = networkx.bfs_layers(arrows, dict.fromkeys(starts))
    return [list(layer) for layer in layers]


def _places(graph: StateGraph, columns: list[list[int]]) -> dict[int, tuple[int, int]]:
    """The column of every state and its row there."""
    neighbours: dict[int, list[int]] = {
        number: [] for number in range(len(graph.nodes))
    }
    for source, target, _ in graph.counts:
        neighbours[source].append(target)
        neighbours[target].append(source)
    places: dict[int, tuple[int, int]] = dict.fromkeys(neighbours, (0, 0))
    for number, column in enumerate(columns):
        places |= {state: (number, row) for row, state in enumerate(column)}
    for sweep in range(SWEEPS):
        backwards = sweep % 2
        order = list(enumerate(columns))
        for number, column in reversed(order) if backwards else order:
            beside = number + 1 if backwards else number - 1
            heights = {}
            for row, state in enumerate(column):
                rows = [
                    places[one][1]
                    for one in neighbours[state]
                    if places[one][0] == beside
                ]
                heights[state] = sum(rows) / len(rows) if rows else row
            # The barycentre method: a state goes to the mean height of its neighbours.
            column.sort(key=heights.__getitem__)
            places |= {state: (number, row) for row, state in enumerate(column)}
    return places
