"""The state graph of a tree: states, transitions, and distances to a success.

RewardFlow (sections 3.2 and 4.1, App. B.2, D.4) computes credit from it, and
`assign-credit --graph` writes it to files. Nodes are states, as chosen by
`credit.state` (states.py). A trajectory that succeeded ends in a node of kind success,
one that failed in a node of kind failure, and a truncated one in an ordinary state.
Steps that change nothing are pruned: malformed and inadmissible ones, self-loops (also
within a cluster of similar states), and those that only looked according to the world
(Step.looked). A pruned step does not move along the graph. Steps that lead only to
errored leaves are left out. It is linear in the steps, times the number of success
nodes under `distance: mean`.
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
    Outcome.SUCCESS: SUCCESS,
    Outcome.FAILURE: FAILURE,
}
"""The kind of the node that a leaf leads to, by its outcome."""
Member = tuple[int, str]
"""The node of a cluster, and the state of one of its members."""
OUTSIDE = -1
"""Stands for a node, for a step that leads only to errored leaves."""


@dataclass(slots=True)
class StateNode:
    """A state, or a cluster of similar ones."""

    key: str
    kind: str
    visits: int = 0
    """Steps of the tree that started or arrived in it; a shared one counts once."""
    truncated: int = 0
    """Trajectories that were cut off here."""
    hops: float | None = None
    """Edges to the nearest success, or their mean under distance mean. None: no success
    is reachable.
    """
    value: float = 0.0
    """gamma ** hops, in [0, 1]; 0 when no success is reachable (RewardFlow eq. 3).
    Under pool mean, a cluster has the mean over its members.
    """


@dataclass
class Edge:
    """All steps with one action between two states."""

    source: int
    target: int
    action: str
    count: int
    gain: float
    """value(target) - value(source) (RewardFlow eq. 4)."""


@dataclass
class StateGraph:
    """Nodes and transitions; the last four lists are indexed by step id."""

    task: str
    nodes: list[StateNode] = field(default_factory=list)
    counts: dict[tuple[int, int, str], int] = field(default_factory=dict)
    """Steps by (source, target, action)."""
    sources: list[int] = field(default_factory=list)
    """The node that the step starts in; pruned steps before it do not count. OUTSIDE:
    the step leads only to errored leaves.
    """
    targets: list[int] = field(default_factory=list)
    """The node after the step; equal to its source when the step is pruned."""
    pruned: list[bool] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)

    def add(self, source: int, target: int, *, pruned: bool) -> None:
        """Adds the next step (in order of ids) between two nodes."""
        self.sources.append(source)
        self.targets.append(target)
        self.pruned.append(pruned)

    @property
    def size(self) -> GraphSize:
        """Nodes and edges as RewardFlow Fig. 11, Fig. 12 and Table 9 count them.

        There all successes are one node.
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
            gain = next_value - value  # RewardFlow eq. 4
            edges.append(Edge(source, target, action, count, gain))
        return edges


@dataclass(slots=True)
class Moves:
    """The states and values that rewardflow computes gains from, by step id."""

    states: Sequence[Hashable]
    """The state that the step is taken from."""
    values: list[float]
    """R(s), the value of that state."""
    next_values: list[float]
    """R(s'), the value of the state after the step."""
    pruned: list[bool]
    """Whether the step makes no transition in T (paper form only)."""
    informed: bool
    """Whether there is an action term: some success was reached (release: always)."""
    size: GraphSize
    """The size of the state graph."""
    graph: StateGraph | None = None
    """The graph, where the hops of its nodes determine the values."""

    def hops(self, step: int) -> tuple[float | None, float | None]:
        """Hops before and after a step; None where they do not determine the value."""
        if self.graph is None:
            return None, None
        source, target = self.graph.sources[step], self.graph.targets[step]
        return self.graph.nodes[source].hops, self.graph.nodes[target].hops


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

    A step that ends in success or failure is never pruned: it leads to the terminal
    node.

    `states` are the states of the steps by id; without them the paper's form is used.
    `clusters` maps a state to its cluster's representative, and a cluster becomes one
    node. Under `pool` max its value is that of its best member (the search runs on the
    merged graph). Under mean it is the mean over its members, each valued by its own
    transitions. `survey` may be passed if the tree's survey exists already.
    """
    survey = survey or survey_of(tree, Switches())
    states = states or states_of(tree.steps, "paper")
    actions = [named_action(step) for step in tree.steps]
    graph = StateGraph(tree.task.id, actions=actions)
    arrived = _walk(graph, tree, survey, states, clusters, pruning)
    for step in tree.steps:
        if step.outcome is Outcome.TRUNCATED:
            graph.nodes[graph.targets[step.id]].truncated += 1
    _set_values(graph, gamma, distance)
    if pool == "mean":
        _pool(graph, *_exits(graph, survey, states, arrived), gamma)
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

    Returns, by step id, whether the state after the step was given a node.
    """
    nodes = graph.nodes
    keys = states if clusters is None else _clustered(states, clusters)
    # By kind: a terminal node never merges with an ordinary state of the same text,
    # which others may only pass through.
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
            # Not the step's own key: after noise the walk goes on from before it.
            source = graph.targets[parent]
        kind = _kind_after(step)
        target = source
        unchanged = states.before[place] == states.after[place]
        # After an overlong prompt nothing was done, and there is no observation.
        idle = unchanged or not survey.asked[place]
        is_noise = survey.invalid[place] or step.looked or idle
        pruned = pruning and kind == STATE and is_noise
        if not pruned:
            # Also where the move stays in its cluster: its state is a member of it.
            arrived[place] = True
            target = _number(nodes, numbers[kind], keys.after[place], kind)
            # Two states of one cluster are one node, so this may be a self-loop.
            pruned = pruning and target == source
        if not pruned:
            nodes[target].visits += 1
            edge = (source, target, graph.actions[place])
            # A triple of T (RewardFlow eq. 2): the union over trajectories, with its
            # count.
            graph.counts[edge] = graph.counts.get(edge, 0) + 1
        graph.add(source, target, pruned=pruned)
    return arrived


def _clustered(states: States, clusters: Mapping[str, str]) -> States:
    """The states with each one replaced by its cluster's representative."""
    return States(
        before=[clusters[state] for state in states.before],
        after=[clusters[state] for state in states.after],
    )


def _kind_after(step: Step) -> str:
    """The kind of the node that a step leads to."""
    # After an overlong prompt no action ended the episode, so no terminal node.
    if step.outcome is None or step.stop is StopReason.OVERLONG:
        return STATE
    return KINDS[step.outcome]


def _number(
    nodes: list[StateNode], numbers: dict[str, int], key: str, kind: str
) -> int:
    """The number of the node with this key and kind; creates it if it is new."""
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
    """Fewest edges from every node to the nearest goal; None where there is no path.

    One breadth-first search from all goals on the reversed edges, O(nodes + edges).
    """
    # "Multi-source inverse BFS" (RewardFlow 4.1): T is walked backwards.
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
    """Sets R(s) of every node (RewardFlow eq. 3).

    With distance mean (App. D.4), hops are averaged over the reachable successes.
    """
    nodes = graph.nodes
    goals = graph.goals
    # Two actions between the same states are one edge of the search.
    pairs = dict.fromkeys((source, target) for source, target, _ in graph.counts)
    # d(s) of eq. 3: one search from all of S_succ finds the nearest of them.
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
        # Without a path d is infinite, so R stays 0.
        if count:
            node.hops = total / count
            node.value = gamma**node.hops  # RewardFlow eq. 3


def _exits(
    graph: StateGraph,
    survey: Survey,
    states: States,
    arrived: list[bool],
) -> tuple[dict[Member, set[int]], dict[Member, list[Member]]]:
    """The nodes that each member's own transitions lead to, and moves in its cluster.

    The moves are the members that each member was reached from. The graph cannot tell:
    its edges belong to whole clusters. `arrived` is the result of _walk.
    """
    exits: dict[Member, set[int]] = {}
    came_from: dict[Member, list[Member]] = {}
    standing: list[str] = []
    """The state after each step; after a step that was given no node, the one before
    it.
    """
    for step, parent in enumerate(survey.parents):
        here = states.before[step] if parent == ROOT else standing[parent]
        source = graph.sources[step]
        target = graph.targets[step]
        after = states.after[step]
        if source != OUTSIDE:
            exits.setdefault((source, here), set())
        if arrived[step]:
            exits.setdefault((target, after), set())
            if target == source:
                came_from.setdefault((target, after), []).append((source, here))
            else:
                exits[source, here].add(target)
            here = after
        standing.append(here)
    return exits, came_from


def _pool(
    graph: StateGraph,
    exits: Mapping[Member, set[int]],
    came_from: Mapping[Member, list[Member]],
    gamma: float,
) -> None:
    """Gives every cluster the mean value of its members (RewardFlow App. C.4).

    A member that is a success has value 1. Any other has gamma ** (1 + hops), with the
    fewest hops among the nodes that its own transitions lead to, or those of members
    that it moved to; 0 where none of them leads to a success.
    """
    nodes = graph.nodes
    own: dict[Member, float] = {}
    for member, targets in exits.items():
        hops = [nodes[target].hops for target in targets]
        own[member] = min([far for far in hops if far is not None], default=math.inf)
    nearest: dict[Member, float] = {}
    # The nearest exits first: whoever moved there has them too. As in the graph, a move
    # within a cluster is no hop.
    for member in sorted(own, key=own.__getitem__):
        reached = [member]
        while reached:
            here = reached.pop()
            if here not in nearest:
                nearest[here] = own[member]
                reached += came_from.get(here, [])
    values: dict[int, list[float]] = {}
    for (number, _), far in nearest.items():
        value = 0.0
        if nodes[number].kind == SUCCESS:
            value = 1.0
        elif far < math.inf:
            value = gamma ** (1 + far)
        values.setdefault(number, []).append(value)
    for number, members in values.items():
        nodes[number].value = math.fsum(members) / len(members)
