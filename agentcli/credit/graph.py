"""The state graph of a tree: states as nodes, what led from one to the other as edges, and how far success is.

RewardFlow (002 sections 3.2 and 4.1, App. B.2, D.4) gives credit with it, `assign-credit --graph` draws it. Nodes are exact state
keys; a trajectory that succeeded ends in a node of kind success, one that failed in a node of kind failure, one that was
truncated in an ordinary state. Steps that change nothing are pruned: malformed and inadmissible ones, those the engine answers
with "Nothing happens", self-loops, and pure looking. After a pruned step the walk goes on from the state before it. Steps
that lead only to errored leaves are left out. Plain dictionaries and one breadth-first search: linear in the steps
(`distance: mean`: times the number of success nodes), no networkx, no recursion.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from agentcli.credit.common import invalid, live_leaves
from agentcli.records.types import Outcome, Step, Tree

NOISE_ACTIONS = ("look", "inventory", "examine *")
"""Actions that only look (ALFWorld, ScienceWorld). A trailing * stands for any ending."""
NOISE_OBSERVATIONS = ("Nothing happens*",)
"""Answers that say the state did not change (ALFWorld)."""

SUCCESS, FAILURE, STATE = "success", "failure", "state"


@dataclass
class Node:
    """A state. `hops` to the nearest success (fractional under distance mean), None when none is reachable."""

    key: str
    kind: str
    visits: int = 0
    """How often it was started in or arrived in."""
    hops: float | None = None
    value: float = 0.0
    """gamma ** hops in [0, 1]; 0 when no success is reachable (002 eq. 3)."""


@dataclass
class Edge:
    """All steps with one action between two states."""

    source: int
    target: int
    action: str
    count: int
    gain: float
    """value(target) - value(source) (002 eq. 4)."""


@dataclass
class StateGraph:
    """Nodes and edges; the last three lists are indexed by step id (-1: leads only to errored leaves)."""

    task: str
    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    """Node a step leaves, noise before it skipped."""
    targets: list[int] = field(default_factory=list)
    """Node after the step; its source when pruned."""
    pruned: list[bool] = field(default_factory=list)


class Patterns:
    """Texts, or beginnings of texts where a pattern ends with *; case and outer blanks do not matter."""

    def __init__(self, patterns: Iterable[str]) -> None:
        lowered = [pattern.lower() for pattern in patterns]
        self._exact = {pattern for pattern in lowered if not pattern.endswith("*")}
        self._starts = tuple(pattern[:-1] for pattern in lowered if pattern.endswith("*"))

    def match(self, text: str | None) -> bool:
        plain = (text or "").strip().lower()
        return plain in self._exact or plain.startswith(self._starts)


def build(
    tree: Tree,
    *,
    gamma: float = 0.9,
    distance: str = "min",
    noise_actions: Sequence[str] = NOISE_ACTIONS,
    noise_observations: Sequence[str] = NOISE_OBSERVATIONS,
) -> StateGraph:
    """The state graph of `tree` with values in [0, 1]. A step that ends in success or failure is never pruned: the terminal
    node comes from the last step's result. Only validated trees (parents before children)."""
    graph = StateGraph(tree.task.id)
    index: dict[tuple[str, str], int] = {}
    counts: dict[tuple[int, int, str], int] = {}
    actions, observations = Patterns(noise_actions), Patterns(noise_observations)

    def node(kind: str, key: str) -> int:
        if (kind, key) not in index:
            index[kind, key] = len(graph.nodes)
            graph.nodes.append(Node(key, kind))
        return index[kind, key]

    for step, alive in zip(tree.steps, live_leaves(tree), strict=True):
        source, target, pruned = -1, -1, False
        if alive:
            source = graph.targets[step.parent] if step.parent is not None else node(STATE, step.state)
            graph.nodes[source].visits += step.parent is None
            kind = _kind(step)
            pruned = kind == STATE and (
                invalid(step)
                or step.state == step.next_state
                or index.get((STATE, step.next_state)) == source
                or actions.match(step.action)
                or observations.match(step.next_observation)
            )
            target = source if pruned else node(kind, step.next_state)
            if not pruned:
                graph.nodes[target].visits += 1
                edge = (source, target, step.action or "")
                counts[edge] = counts.get(edge, 0) + 1
        graph.sources.append(source)
        graph.targets.append(target)
        graph.pruned.append(pruned)
    _set_values(graph.nodes, counts, gamma, distance)
    for (source, target, action), count in counts.items():
        gain = graph.nodes[target].value - graph.nodes[source].value
        graph.edges.append(Edge(source, target, action, count, gain))
    return graph


def hops_to(goals: Iterable[int], edges: Iterable[tuple[int, int]], nodes: int) -> list[int | None]:
    """Fewest edges from every node to the nearest goal, None where there is no path: multi-source breadth-first search on
    the reversed edges, O(nodes + edges)."""
    before: list[list[int]] = [[] for _ in range(nodes)]
    for source, target in edges:
        before[target].append(source)
    hops: list[int | None] = [None] * nodes
    queue: deque[tuple[int, int]] = deque((goal, 0) for goal in goals)
    for goal, _ in queue:
        hops[goal] = 0
    while queue:
        here, far = queue.popleft()
        for source in before[here]:
            if hops[source] is None:
                hops[source] = far + 1
                queue.append((source, far + 1))
    return hops


def _kind(step: Step) -> str:
    if step.outcome is Outcome.SUCCESS:
        return SUCCESS
    return FAILURE if step.outcome is Outcome.FAILURE else STATE


def _set_values(nodes: list[Node], edges: Iterable[tuple[int, int, str]], gamma: float, distance: str) -> None:
    """002 eq. 3; distance mean (App. D.4) averages over the success nodes that can be reached."""
    pairs = list(dict.fromkeys((source, target) for source, target, _ in edges))
    goals = [number for number, node in enumerate(nodes) if node.kind == SUCCESS]
    searches = [goals] if distance == "min" else [[goal] for goal in goals]
    total, reached = [0] * len(nodes), [0] * len(nodes)
    for search in searches:
        for number, hops in enumerate(hops_to(search, pairs, len(nodes))):
            if hops is not None:
                total[number] += hops
                reached[number] += 1
    for node, hops, count in zip(nodes, total, reached, strict=True):
        if count:
            node.hops = hops / count
            node.value = gamma**node.hops
