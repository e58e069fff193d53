"""The state graph of a tree: states as nodes, what led from one to the other as edges, and how far success is.

RewardFlow (002 sections 3.2 and 4.1, App. B.2, D.4) gives credit with it, `assign-credit --graph` draws it. Nodes are states as
`credit.state` says (states.py). A trajectory that succeeded ends in a node of kind success, one that failed in a node of kind
failure, one that was truncated in an ordinary state. Steps that change nothing are pruned: malformed and inadmissible ones,
those the engine answers with "Nothing happens", self-loops, and pure looking. After a pruned step the walk goes on from the
state before it. Steps that lead only to errored leaves are left out.

Plain dictionaries and one breadth-first search: linear in the steps (`distance: mean`: times the number of success nodes), no
networkx, no recursion.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agentcli.credit.common import Switches
from agentcli.credit.group import ROOT, Survey, survey
from agentcli.credit.states import States, states_of
from agentcli.records.types import GraphSize, Outcome, StopReason, Tree

NOISE_ACTIONS = ("look", "inventory", "examine *")
"""Actions that only look (ALFWorld, ScienceWorld). A trailing * stands for any ending."""
NOISE_OBSERVATIONS = ("Nothing happens*",)
"""Answers that say the state did not change (ALFWorld)."""

SUCCESS, FAILURE, STATE = "success", "failure", "state"
KINDS: dict[Outcome | None, str] = {
    None: STATE,
    Outcome.TRUNCATED: STATE,
    Outcome.ERRORED: STATE,
    Outcome.SUCCESS: SUCCESS,
    Outcome.FAILURE: FAILURE,
}
"""Of the node a step leads to, by its outcome."""


@dataclass
class Node:
    """A state. `hops` to the nearest success (fractional under distance mean), None when none is reachable."""

    key: str
    kind: str
    visits: int = 0
    """How often it was started in or arrived in."""
    hops: float | None = None
    value: float = 0.0
    """gamma ** hops in [0, 1]; 0 when no success is reachable (002 eq. 3). Of a mean-pooled cluster the mean over its members."""


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
    """Nodes and transitions; the last three lists are indexed by step id (-1: leads only to errored leaves)."""

    task: str
    nodes: list[Node] = field(default_factory=list)
    counts: dict[tuple[int, int, str], int] = field(default_factory=dict)
    """Steps by (source, target, action)."""
    sources: list[int] = field(default_factory=list)
    """Node a step leaves, noise before it skipped."""
    targets: list[int] = field(default_factory=list)
    """Node after the step; its source when pruned."""
    pruned: list[bool] = field(default_factory=list)

    @property
    def size(self) -> GraphSize:
        """Nodes and edges as 002 Fig. 12 and Table 9 have them: all successes are one node."""
        goals = {number for number, node in enumerate(self.nodes) if node.kind == SUCCESS}
        edges = {(source, -1 if target in goals else target, action) for source, target, action in self.counts}
        return GraphSize(nodes=len(self.nodes) - len(goals) + (len(goals) > 0), edges=len(edges))

    @property
    def edges(self) -> list[Edge]:
        """The transitions with their gains."""
        return [
            Edge(source, target, action, count, self.nodes[target].value - self.nodes[source].value)
            for (source, target, action), count in self.counts.items()
        ]


class Patterns:
    """Texts, or beginnings of texts where a pattern ends with *; case and outer blanks do not matter."""

    def __init__(self, patterns: Iterable[str]) -> None:
        lowered = [pattern.lower() for pattern in patterns]
        self._exact = {pattern for pattern in lowered if not pattern.endswith("*")}
        self._starts = tuple(pattern[:-1] for pattern in lowered if pattern.endswith("*"))
        self._enough = max(map(len, lowered), default=0) + 1
        self._any = "" in self._exact or "" in self._starts
        self._first = {letter for pattern in lowered for letter in (pattern[:1], pattern[:1].upper())}

    def match(self, text: str | None) -> bool:
        if not text:
            return self._any
        if text[0] not in self._first and not text[0].isspace() and not self._any:
            return False
        plain = text.strip()[: self._enough].lower()
        return plain in self._exact or plain.startswith(self._starts)


def build(
    tree: Tree,
    *,
    gamma: float = 0.9,
    distance: str = "min",
    pruning: bool = True,
    noise_actions: Sequence[str] = NOISE_ACTIONS,
    noise_observations: Sequence[str] = NOISE_OBSERVATIONS,
    states: States | None = None,
    clusters: Mapping[str, str] | None = None,
    pool: str = "max",
    seen: Survey | None = None,
) -> StateGraph:
    """The state graph of `tree` with values in [0, 1]. A step that ends in success or failure is never pruned: the terminal
    node comes from the last step's result. Only validated trees (parents before children).

    `states` are those of the steps by id, the papers' where it is left out. `clusters` maps a state to its cluster's
    representative: one node per cluster, whose value is that of its best member (`pool` max: the search on the merged graph) or
    the mean over its members, each by its own transitions. `seen`: the tree's survey, where there is one.
    """
    graph = StateGraph(tree.task.id)
    members: dict[tuple[int, str], set[int]] = {}
    looks, nothing = Patterns(noise_actions).match, Patterns(noise_observations).match
    sources, targets, nodes, counts = graph.sources, graph.targets, graph.nodes, graph.counts
    seen = seen or survey(tree, Switches())
    states = states or states_of(tree.steps, "paper")
    reached: list[str] = []
    pooled = pool == "mean"
    node = _numbering(nodes, clusters, members if pooled else None)
    for step, leaving, following, parent, alive, bad in zip(
        tree.steps, *states, seen.parents, seen.live, seen.invalid, strict=False
    ):
        source, target, pruned = -1, -1, False
        before = after = leaving if parent == ROOT else reached[parent]
        if alive:
            if parent == ROOT:
                source = node(STATE, before)
                nodes[source].visits += 1
            else:
                source = targets[parent]
            kind = STATE if step.stop is StopReason.OVERLONG else KINDS[step.outcome]
            if kind == STATE and pruning:
                pruned = bad or leaving == following or looks(step.action) or nothing(step.next_observation)
            target = source if pruned else node(kind, following)
            pruned = pruned or (pruning and target == source)
            if not pruned:
                nodes[target].visits += 1
                edge = (source, target, step.action or "")
                counts[edge] = counts.get(edge, 0) + 1
                after = following
                if pooled:
                    members[source, before].add(target)
        reached.append(after)
        sources.append(source)
        targets.append(target)
        graph.pruned.append(pruned)
    _set_values(nodes, counts, gamma, distance)
    if pooled:
        _pool(nodes, members, gamma)
    return graph


def _numbering(
    nodes: list[Node], clusters: Mapping[str, str] | None, members: dict[tuple[int, str], set[int]] | None
) -> Callable[[str, str], int]:
    """Gives the number of the node of (kind, state key), made when first asked for; `members` gets every key of a node."""
    index: dict[str, dict[str, int]] = {SUCCESS: {}, FAILURE: {}, STATE: {}}

    def node(kind: str, raw: str) -> int:
        key = raw if clusters is None else clusters[raw]
        number = index[kind].get(key)
        if number is None:
            number = index[kind][key] = len(nodes)
            nodes.append(Node(key, kind))
        if members is not None:
            members.setdefault((number, raw), set())
        return number

    return node


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


def _pool(nodes: list[Node], members: Mapping[tuple[int, str], set[int]], gamma: float) -> None:
    """A cluster's value as the mean over its members, each 1 where it is a success, else gamma ** (1 + hops of the nearest node
    that a transition of its own leads to), 0 where none leads to a success."""
    values: dict[int, list[float]] = {}
    for (number, _), following in members.items():
        hops = [nodes[target].hops for target in following]
        near = min([far for far in hops if far is not None], default=None)
        own = 1.0 if nodes[number].kind == SUCCESS else 0.0 if near is None else gamma ** (1 + near)
        values.setdefault(number, []).append(own)
    for number, pooled in values.items():
        nodes[number].value = math.fsum(pooled) / len(pooled)
