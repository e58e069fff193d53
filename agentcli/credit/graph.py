"""The state graph of a tree: states, transitions, and how far success is.

RewardFlow (002 sections 3.2 and 4.1, App. B.2, D.4) gives credit with it,
`assign-credit --graph` draws it. Nodes are states as `credit.state` says (states.py). A
trajectory that succeeded ends in a node of kind success, one that failed in a node of
kind failure, one that was truncated in an ordinary state. Steps that change nothing are
pruned: malformed and inadmissible ones, self-loops, and those of which the world says
that they only looked (Step.looked). After a pruned step the walk is in the state before
it. Steps that lead only to errored leaves are left out.

Plain dictionaries and one breadth-first search: linear in the steps (`distance: mean`:
times the number of success nodes), no networkx, no recursion.
"""

import math
from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agentcli.credit.states import States, states_of
from agentcli.credit.survey import ROOT, Survey, survey_of
from agentcli.credit.switches import Switches
from agentcli.records.siblings import named_action
from agentcli.records.types import GraphSize, Outcome, Step, StopReason, Tree

SUCCESS, FAILURE, STATE = "success", "failure", "state"
KINDS = {
    Outcome.TRUNCATED: STATE,
    Outcome.ERRORED: STATE,
    Outcome.SUCCESS: SUCCESS,
    Outcome.FAILURE: FAILURE,
}
"""The kind of the node that a leaf leads to, by its outcome."""
OUTSIDE = -1
"""In the place of a node, for a step that leads only to errored leaves."""


@dataclass(slots=True)
class StateNode:
    """A state, or a cluster of similar ones."""

    key: str
    kind: str
    visits: int = 0
    """How often it was started in or arrived in."""
    truncated: int = 0
    """Trajectories that were cut off here."""
    hops: float | None = None
    """To the nearest success; fractional under distance mean. None: cannot reach one."""
    value: float = 0.0
    """gamma ** hops in [0, 1]; 0 when no success is reachable (002 eq. 3). A
    mean-pooled cluster has the mean over its members.
    """


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
    """Nodes and transitions; the last four lists are indexed by step id."""

    task: str
    nodes: list[StateNode] = field(default_factory=list)
    counts: dict[tuple[int, int, str], int] = field(default_factory=dict)
    """Steps by (source, target, action)."""
    sources: list[int] = field(default_factory=list)
    """The node that a step leaves, noise before it skipped. OUTSIDE: leads only to
    errored leaves.
    """
    targets: list[int] = field(default_factory=list)
    """The node after the step; its source when pruned."""
    pruned: list[bool] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)

    def add(self, source: int, target: int, *, pruned: bool) -> None:
        """Puts the next step, by its id, between two nodes."""
        self.sources.append(source)
        self.targets.append(target)
        self.pruned.append(pruned)

    @property
    def size(self) -> GraphSize:
        """Nodes and edges as 002 Fig. 12 and Table 9 have them.

        All successes are one node there.
        """
        goals = set(self.goals)
        nodes = len(self.nodes)
        if len(goals) < 2:
            return GraphSize(nodes=nodes, edges=len(self.counts))
        # An action that leads from one state to several successes is one edge.
        edges = set()
        for source, target, action in self.counts:
            merged_target = SUCCESS if target in goals else target
            edges.add((source, merged_target, action))
        return GraphSize(nodes=nodes - len(goals) + 1, edges=len(edges))

    @property
    def goals(self) -> list[int]:
        """The numbers of the success nodes."""
        return [n for n, node in enumerate(self.nodes) if node.kind == SUCCESS]

    @property
    def edges(self) -> list[Edge]:
        """The transitions with their gains."""
        edges = []
        for (source, target, action), count in self.counts.items():
            value = self.nodes[source].value
            next_value = self.nodes[target].value
            gain = next_value - value  # 002 eq. 4
            edges.append(Edge(source, target, action, count, gain))
        return edges


@dataclass(slots=True)
class Moves:
    """The gains of all steps, by step id, in either form of rewardflow."""

    states: Sequence[Hashable]
    """The state it leaves."""
    values: list[float]
    """R(s)."""
    next_values: list[float]
    """R(s')."""
    idle: list[bool]
    """Valid, and nothing changed."""
    informed: bool
    """Whether there is an action term at all."""
    size: GraphSize
    """Of the state graph."""


def build(
    tree: Tree,
    *,
    gamma: float = 0.9,
    distance: str = "min",
    pruning: bool = True,
    states: States | None = None,
    clusters: Mapping[str, str] | None = None,
    pool: str = "max",
    survey: Survey | None = None,
) -> StateGraph:
    """The state graph of a valid `tree`, with values in [0, 1].

    A step that ends in success or failure is never pruned: the terminal node comes from
    the last step's result.

    `states` are those of the steps by id, the papers' where it is left out. `clusters`
    maps a state to its cluster's representative: one node per cluster, whose value is
    that of its best member (`pool` max: the search on the merged graph) or the mean
    over its members, each by its own transitions. `survey`: the tree's, where there is
    one.
    """
    survey = survey or survey_of(tree, Switches())
    states = states or states_of(tree.steps, "paper")
    graph = StateGraph(tree.task.id)
    arrived = _walk(graph, tree, survey, states, clusters, pruning)
    for step in tree.steps:
        graph.actions.append(named_action(step))
        if step.outcome is Outcome.TRUNCATED:
            graph.nodes[graph.targets[step.id]].truncated += 1
    _set_values(graph, gamma, distance)
    if pool == "mean":
        _pool(graph, _exits(graph, survey, states, arrived), gamma)
    return graph


def _walk(
    graph: StateGraph,
    tree: Tree,
    survey: Survey,
    states: States,
    clusters: Mapping[str, str] | None,
    pruning: bool,
) -> list[bool]:
    """Fills the graph step by step.

    Returns by step id whether the state it leads to was looked up, and so is a node.
    """
    nodes = graph.nodes
    keys = states if clusters is None else _clustered(states, clusters)
    numbers: dict[str, dict[str, int]] = {SUCCESS: {}, FAILURE: {}, STATE: {}}
    arrived = [False] * len(tree.steps)
    for step, parent in zip(tree.steps, survey.parents, strict=True):
        place = step.id
        if not survey.live[place]:
            graph.add(OUTSIDE, OUTSIDE, pruned=False)
            continue
        if parent == ROOT:
            source = _number(nodes, numbers[STATE], keys.before[place], STATE)
            nodes[source].visits += 1
        else:
            source = graph.targets[parent]
        kind = _kind_after(step)
        target = source
        unchanged = states.before[place] == states.after[place]
        is_noise = survey.invalid[place] or step.looked or unchanged
        pruned = pruning and kind == STATE and is_noise
        if not pruned:
            arrived[place] = True
            target = _number(nodes, numbers[kind], keys.after[place], kind)
            # Two states of one cluster are one node: a self-loop.
            pruned = pruning and target == source
        if not pruned:
            nodes[target].visits += 1
            edge = (source, target, named_action(step))
            graph.counts[edge] = graph.counts.get(edge, 0) + 1
        graph.add(source, target, pruned=pruned)
    return arrived


def _clustered(states: States, clusters: Mapping[str, str]) -> States:
    """The representatives of the states' clusters."""
    return States(
        before=[clusters[state] for state in states.before],
        after=[clusters[state] for state in states.after],
    )


def _kind_after(step: Step) -> str:
    """The kind of the node that a step leads to."""
    # Where the prompt was too long no action ended the episode: no terminal node.
    if step.outcome is None or step.stop is StopReason.OVERLONG:
        return STATE
    return KINDS[step.outcome]


def _number(
    nodes: list[StateNode], numbers: dict[str, int], key: str, kind: str
) -> int:
    """The number of a node of this kind, which is made when it is first asked for."""
    number = numbers.get(key)
    if number is None:
        number = numbers[key] = len(nodes)
        nodes.append(StateNode(key, kind))
    return number


def hops_to(
    goals: Iterable[int],
    edges: Iterable[tuple[int, int]],
    nodes: int,
) -> list[int | None]:
    """Fewest edges from every node to the nearest goal, None where there is no path.

    One breadth-first search from all goals on the reversed edges, O(nodes + edges).
    """
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


def _set_values(graph: StateGraph, gamma: float, distance: str) -> None:
    """Gives every node its R(s) (002 eq. 3).

    distance mean (App. D.4) averages the hops over the successes that can be reached.
    """
    nodes = graph.nodes
    goals = graph.goals
    # Two actions between the same states are one edge of the search.
    pairs = dict.fromkeys((source, target) for source, target, _ in graph.counts)
    searches = [goals]
    if distance == "mean":
        searches = [[goal] for goal in goals]
    totals = [0] * len(nodes)
    reached = [0] * len(nodes)
    for search in searches:
        hops_by_node = hops_to(search, pairs, len(nodes))
        for number, hops in enumerate(hops_by_node):
            if hops is not None:
                totals[number] += hops
                reached[number] += 1
    for node, total, count in zip(nodes, totals, reached, strict=True):
        if count:
            node.hops = total / count
            node.value = gamma**node.hops  # 002 eq. 3


def _exits(
    graph: StateGraph,
    survey: Survey,
    states: States,
    arrived: list[bool],
) -> dict[tuple[int, str], set[int]]:
    """The nodes that a state's transitions lead to, by the state and its cluster's node.

    Edges of the graph are those of whole clusters. `arrived` is what _walk returns.
    """
    exits: dict[tuple[int, str], set[int]] = {}
    standing: list[str] = []
    """The state after each step; where it was pruned, the one before it."""
    for step, parent in enumerate(survey.parents):
        here = states.before[step] if parent == ROOT else standing[parent]
        source = graph.sources[step]
        target = graph.targets[step]
        after = states.after[step]
        if source != OUTSIDE:
            exits.setdefault((source, here), set())
        if arrived[step]:
            exits.setdefault((target, after), set())
        if source != OUTSIDE and not graph.pruned[step]:
            exits[source, here].add(target)
            here = after
        standing.append(here)
    return exits


def _pool(
    graph: StateGraph,
    exits: Mapping[tuple[int, str], set[int]],
    gamma: float,
) -> None:
    """Gives every cluster the mean value of its members (002 App. C.4).

    A member is worth 1 where it is a success, else gamma ** (1 + hops of the nearest
    node that a transition of its own leads to), 0 where none leads to a success.
    """
    nodes = graph.nodes
    values: dict[int, list[float]] = {}
    for (number, _), targets in exits.items():
        hops = [nodes[target].hops for target in targets]
        nearest = min([far for far in hops if far is not None], default=None)
        value = 0.0
        if nodes[number].kind == SUCCESS:
            value = 1.0
        elif nearest is not None:
            value = gamma ** (1 + nearest)
        values.setdefault(number, []).append(value)
    for number, members in values.items():
        nodes[number].value = math.fsum(members) / len(members)
