"""rewardflow: how much closer to success a step led than others from its state.

RewardFlow sections 3-4:

1. Build the state graph of the tree (graph.py) and give every state R(s) = gamma **
   hops to the nearest success (eq. 3).
2. A step's gain is r = R(s') - R(s) (eq. 4). A pruned step stays in its state, s' = s.
3. A_action = (r - mean) / F over Group(s): the steps of the tree that leave s by a
   transition in T (eq. 5-7). The only step from a state gets 0, and so does a pruned
   step, which is in no group: it has A_traj alone, its penalty included.
4. A = alpha_action A_action + alpha_traj A_traj (eq. 9), where A_traj is grpo's (eq. 8;
   group.outcome_scale).

Without a success every R is 0 and A_action is 0. Under `group: all` pruned steps are
members too, with gain 0 less their penalty. The release's algorithm differs in several
details: see release/rewardflow.py.
"""

from collections.abc import Hashable, Sequence
from typing import Literal

import msgspec

from agentcli.credit.equations import ADVANTAGE, Equation, Evidence
from agentcli.credit.graph import SUCCESS, Moves, StateGraph, build
from agentcli.credit.group import Grouping, division, outcome_scale, step_grouping
from agentcli.credit.once import once
from agentcli.credit.release.rewardflow import release_moves
from agentcli.credit.similarity import representatives, require_states
from agentcli.credit.states import states_of
from agentcli.credit.survey import AdvantageParts, Survey, survey_of
from agentcli.credit.switches import StateSwitches, in_range, require
from agentcli.credit.terms import (
    add_group,
    group_evidence,
    outcome_among_leaves,
    row_leaves,
)
from agentcli.records.types import Credit, Tree

WITHOUT = {
    "rewards": "its rewards are differences of state values",
    "w": "its weights are alpha_action and alpha_traj",
}
EQUATIONS = (
    *outcome_among_leaves("compared"),
    Equation("hops", None, "from the state it leaves to a success (credit.distance)"),
    Equation(
        "value",
        "gamma ** hops",
        "value of the state it leaves",
        "RewardFlow eq. 3",
    ),
    Equation(
        "next_hops", None, "from the state it leads to to a success (credit.distance)"
    ),
    Equation(
        "next_value",
        "gamma ** next_hops",
        "value of the state it leads to",
        "RewardFlow eq. 3",
    ),
    Equation(
        "gain",
        "discount * next_value - value",
        "what the step gains",
        "RewardFlow eq. 4",
    ),
    Equation(
        "closer",
        "gain - penalty - no_op_penalty * idle",
        "how the gain, less penalties, compares in its state",
        "RewardFlow eq. 5-7",
        among="state",
    ),
    Equation("action", "alpha_action * closer", "its part of the advantage"),
    Equation("trajectory", "alpha_traj * compared", "its part of the advantage"),
    Equation(
        ADVANTAGE,
        "action + trajectory",
        "both parts",
        "RewardFlow eq. 9",
    ),
)


class RewardFlowSettings(StateSwitches, kw_only=True):
    """Settings of rewardflow, with the defaults of RewardFlow Table 8."""

    gamma: float = 0.9
    """Factor on a state's value per hop away from success, in (0, 1]."""
    distance: Literal["min", "mean"] = "min"
    """Distance to success. min: hops to the nearest success. mean: mean hops over the
    reachable successes (App. D.4).
    """
    alpha_action: float = 1.0
    alpha_traj: float = 1.0
    scale: Literal["std", "none"] | None = None
    """Divisor F of A_action: std plus 1e-6, or none. Unset: std (paper, eq. 6-7), none
    (release).
    """
    group: Literal["eq5", "all"] | None = None
    """Members of Group(s). eq5: the steps that leave s by a transition in T (eq. 5).
    all: pruned steps too, with gain 0. Unset: eq5 (paper), all (release).
    """
    gain: Literal["difference", "discounted"] = "difference"
    """Gain r of a step. difference: R(s') - R(s). discounted: gamma R(s') - R(s), so
    that standing still loses (1 - gamma) R(s); it only counts under group all.
    """
    no_op_penalty: float = 0.0
    """Only with group all: subtracted from the gain of a valid step that changed
    nothing. Otherwise its gain of 0 beats every move away from success.
    """
    pruning: bool = True
    """Leave steps that change nothing out of the graph: invalid ones and self-loops
    (App. B.2), and those that only looked (Step.looked; App. C.1).
    """
    pool: Literal["max", "mean"] | None = None
    """Value of a cluster of similar states: that of its best member (max), or the mean
    over its members (mean; App. C.4). Unset: max.
    """
    loop_steps: int | None = None
    """Only with form release: steps of the batch's longest trajectory. A trajectory of
    this length loses its terminal node.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        release = self.form == "release"
        self.scale = self.scale or ("none" if release else "std")
        self.group = self.group or ("all" if release else "eq5")
        in_range(self, "gamma", positive=True, most=1)
        in_range(self, "alpha_action", "alpha_traj", "no_op_penalty")
        self._require_loop_steps(release)
        clustered = self.similarity != "exact"
        unpooled = "unset where similarity is exact: states are not pooled"
        require(clustered or self.pool is None, "pool", self.pool, unpooled)
        self.pool = self.pool or ("max" if clustered else None)
        one_way = self.pool != "mean" or self.distance == "min"
        require(one_way, "pool", self.pool, "max where distance is mean")
        listed = (self.group == "all" and self.pruning) or not self.no_op_penalty
        wanted = "0 unless group is all and pruning is on: it acts on pruned steps"
        require(listed, "no_op_penalty", self.no_op_penalty, wanted)
        paper_only = {
            "group": "all",
            "distance": "min",
            "gain": "difference",
            "no_op_penalty": 0.0,
            "pruning": True,
            "similarity": "exact",
        }
        for name, usual in paper_only.items():
            value = getattr(self, name)
            wanted = f"{usual!r} where form is release"
            require(not release or value == usual, name, value, wanted)

    def _require_loop_steps(self, release: bool) -> None:
        """Requires at least 1, and the release form, where loop_steps is set."""
        steps = self.loop_steps
        if steps is not None:
            require(steps > 0, "loop_steps", steps, "at least 1")
            require(release, "loop_steps", steps, "unset where form is paper")


def assign(tree: Tree, settings: RewardFlowSettings) -> Credit:
    """Returns one StepCredit per row; raises DataError for a tree without state keys.

    parts: action and trajectory (the summands, weights included), value and next_value
    (R(s) and R(s'), in the release form times success_reward), gain (r before
    penalties).
    """
    survey = survey_of(tree, settings)
    require_states(tree, survey, "rewardflow")
    moves = _moves(tree, survey, settings)
    gains = _gains(moves, settings)
    grouping = _grouping(gains, moves, survey, settings)
    trajectory_scale = outcome_scale(survey, settings, settings.normalise)

    def advantage(step: int, reward: float) -> AdvantageParts:
        action = 0.0
        if grouping is not None:
            action = settings.alpha_action * grouping.compared(step)
        outcome = reward - survey.penalties[step]
        trajectory = settings.alpha_traj * trajectory_scale(outcome)
        parts = {
            "action": action,
            "trajectory": trajectory,
            "gain": gains[step],
            "value": moves.values[step],
            "next_value": moves.next_values[step],
        }
        return action + trajectory, parts  # RewardFlow eq. 9

    rows = survey.rows(settings.prefix)
    return survey.credit("rewardflow", rows, advantage, moves.size)


@once
def state_graph(
    tree: Tree,
    survey: Survey,
    settings: RewardFlowSettings,
) -> StateGraph:
    """The graph that the paper's form takes its values from."""
    states = states_of(tree.steps, settings.state)
    return build(
        tree,
        gamma=settings.gamma,
        distance=settings.distance,
        pruning=settings.pruning,
        states=states,
        clusters=representatives(states.texts, settings),
        pool=settings.pool or "max",
        survey=survey,
    )


def graph_of(tree: Tree, settings: msgspec.Struct) -> StateGraph:
    """The state graph for rewardflow's settings; for other settings, with its defaults.

    The release form builds no such graph and gets the default one too.
    """
    if not isinstance(settings, RewardFlowSettings) or settings.form != "paper":
        settings = RewardFlowSettings()
    return state_graph(tree, survey_of(tree, settings), settings)


@once
def _moves(
    tree: Tree,
    survey: Survey,
    settings: RewardFlowSettings,
) -> Moves:
    """The values before and after every step."""
    if settings.form == "release":
        return release_moves(tree, survey, settings)
    graph = state_graph(tree, survey, settings)
    # One more value, at -1, for steps that lead only to errored leaves.
    values = [*(node.value for node in graph.nodes), 0.0]
    return Moves(
        states=graph.sources,
        values=[values[source] for source in graph.sources],
        next_values=[values[target] for target in graph.targets],
        pruned=graph.pruned,
        informed=any(node.kind == SUCCESS for node in graph.nodes),
        size=graph.size,
    )


@once
def _gains(moves: Moves, settings: RewardFlowSettings) -> list[float]:
    """The gain r of every step (RewardFlow eq. 4)."""
    discount = _discount(settings)
    states = zip(moves.values, moves.next_values, strict=True)
    return [discount * after - before for before, after in states]


@once
def _grouping(
    gains: list[float],
    moves: Moves,
    survey: Survey,
    settings: RewardFlowSettings,
) -> Grouping | None:
    """Group(s): the steps by state, scored by r less their penalties (RewardFlow eq. 5).

    None without a success: all states then have the same value.
    """
    if not moves.informed:
        return None
    scores = []
    for step, gain in enumerate(gains):
        scores.append(gain - settings.no_op_penalty * _idle(moves, survey, step))
    groups = _groups(moves, settings)
    normalise = division(settings.scale)
    return step_grouping(groups, scores, survey, settings.prefix, normalise)


def _groups(moves: Moves, settings: RewardFlowSettings) -> Sequence[Hashable]:
    """The group of every step, by step id: its state, unless it is in no Group(s).

    Such a step is a group of its own, where its score compares as 0.
    """
    if settings.group == "all":
        return moves.states
    groups: list[Hashable] = list(moves.states)
    for step, pruned in enumerate(moves.pruned):
        if pruned:
            groups[step] = ("pruned", step)
    return groups


def _idle(moves: Moves, survey: Survey, step: int) -> bool:
    """Whether the step was valid but pruned."""
    return moves.pruned[step] and not survey.invalid[step]


def _discount(settings: RewardFlowSettings) -> float:
    return settings.gamma if settings.gain == "discounted" else 1.0


def evidence(
    tree: Tree,
    settings: RewardFlowSettings,
    row: int,
) -> Evidence:
    """The evidence that EQUATIONS need for one row."""
    survey = survey_of(tree, settings)
    evidence = group_evidence(tree, survey, settings, row)
    step, _ = row_leaves(survey, settings, row)
    moves = _moves(tree, survey, settings)
    _add_values(evidence, tree, survey, moves, settings, step)
    words = "1: gain is difference"
    if settings.gain == "discounted":
        words = "gamma: gain is discounted"
    evidence.add("discount", _discount(settings), words)
    words = "1 for a valid step that changed nothing"
    if moves.pruned[step]:
        words += "; the step stays where it is (it is pruned)"
    evidence.add("idle", _idle(moves, survey, step), words)
    grouping = _grouping(_gains(moves, settings), moves, survey, settings)
    if grouping is None:
        words = "nobody succeeded: no state is worth more than another"
        evidence.add("closer", 0.0, words)
    else:
        words = "gains, less penalties, of the steps that leave the same state"
        if settings.group == "eq5":
            words += " by a transition in T"
            if moves.pruned[step]:
                words = "a pruned step is no transition in T: it is in no group"
        add_group(evidence, "state", words, grouping, step)
    return evidence


def _add_values(
    evidence: Evidence,
    tree: Tree,
    survey: Survey,
    moves: Moves,
    settings: RewardFlowSettings,
    step: int,
) -> None:
    """Adds the values of both states, or their hops where these determine them."""
    hops = next_hops = None
    if settings.form == "paper" and settings.pool != "mean":
        graph = state_graph(tree, survey, settings)
        hops = graph.nodes[graph.sources[step]].hops
        next_hops = graph.nodes[graph.targets[step]].hops
    for name, far, value, verb in (
        ("", hops, moves.values[step], "leaves"),
        ("next_", next_hops, moves.next_values[step], "leads to"),
    ):
        if far is not None:
            evidence.add(f"{name}hops", far)
            continue
        words = f"value of the state it {verb}"
        if value == 0:
            words += ": no success can be reached from there"
        evidence.add(f"{name}value", value, words)
