"""What the trees of a panel show and its summary does not: further measures of a study.

A trajectory is a path from the root to a leaf; errored ones are left out. A state is
that of one copy, in the papers' form (credit.state=paper): what was seen, without
feedback on a move that changed nothing.
"""

from collections import Counter
from collections.abc import Iterable
from statistics import fmean, pstdev
from typing import NamedTuple

from agentcli.credit.rewardflow import RewardFlowSettings, state_graph
from agentcli.credit.states import standing_states
from agentcli.credit.survey import survey_of
from agentcli.credit.switches import Switches
from agentcli.records.study import TreeMeasured
from agentcli.records.trees import acts_by_copy, paths
from agentcli.records.types import Outcome, Step, Tree, Validity


class TreeTraits(NamedTuple):
    """Counts over the trajectories of one tree."""

    counts: Counter[str]
    """moves: all of them. refusals: those that answer a refusal. visits, states: states
    that a move leaves, all and distinct. actions: distinct ones of each trajectory.
    pairs: distinct states with an action.
    """
    moves: list[int]
    """How many moves each response makes."""


def traits_of(tree: Tree) -> TreeTraits:
    """What the measures of one tree are made from."""
    standing = standing_states(tree, "paper")
    counts = Counter[str]()
    moves: list[int] = []
    states: set[str] = set()
    pairs: set[tuple[str, str]] = set()
    for walk in paths(tree):
        if walk[-1].outcome is Outcome.ERRORED:
            continue
        actions: set[str] = set()
        refused: set[int] = set()
        for step in walk:
            acts = acts_by_copy(step)
            counts["moves"] += len(acts)
            moves += [len(acts)] if acts else []
            counts["refusals"] += sum(copy in refused for copy, _ in acts)
            refused -= {copy for copy, _ in acts}
            refused |= {
                copy for copy, act in acts if act.validity is not Validity.VALID
            }
            for state, action in _taken(step, standing[step.id]):
                counts["visits"] += 1
                states.add(state)
                pairs.add((state, action))
                actions.add(action)
        counts["actions"] += len(actions)
    counts["states"], counts["pairs"] = len(states), len(pairs)
    return TreeTraits(counts, moves)


def _taken(step: Step, standing: dict[int, str]) -> Iterable[tuple[str, str]]:
    """The actions of a step that could be read, each with the state that it leaves."""
    for copy, act in acts_by_copy(step):
        if copy in standing and act.action is not None:
            yield standing[copy], act.action


def measure_trees(trees: Iterable[Tree], wanted: set[str]) -> dict[str, float]:
    """The measures among `wanted` that trees have, by name.

    invalid_states: share of the moves that answer a refusal and no new state
    (RewardFlow C.1, Table 6, which gives no formula). unique_states, unique_actions:
    distinct states, and distinct actions in a state, among all visits of a task's
    trajectories (RewardFlow eq. 1, Fig. 4). diversity: distinct actions among all of a
    trajectory and its copies (DPEPO section 5.4). actions, actions_std: moves of a
    response, mean and standard deviation (DPEPO Table 5). nodes, edges: of a task's
    state graph (RewardFlow Table 9).
    """
    counts = Counter[str]()
    moves: list[int] = []
    sizes = []
    for tree in trees:
        found = traits_of(tree)
        counts += found.counts
        moves += found.moves
        if wanted & {"nodes", "edges"}:
            survey = survey_of(tree, Switches())
            sizes.append(state_graph(tree, survey, RewardFlowSettings()).size)
    visits = max(1, counts["visits"])
    measures: dict[TreeMeasured, float] = {
        "invalid_states": counts["refusals"] / max(1, counts["moves"]),
        "unique_states": counts["states"] / visits,
        "unique_actions": counts["pairs"] / visits,
        "diversity": counts["actions"] / visits,
        "actions": fmean(moves) if moves else 0.0,
        "actions_std": pstdev(moves) if moves else 0.0,
    }
    if sizes:
        measures["nodes"] = fmean(size.nodes for size in sizes)
        measures["edges"] = fmean(size.edges for size in sizes)
    return {str(name): value for name, value in measures.items() if name in wanted}
