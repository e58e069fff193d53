"""rewardflow: how much closer to a success a step came, against other steps from the
same state (002 sections 3-4).

1. Build the state graph of the tree (graph.py) and give every state R(s) = gamma **
   hops to the nearest success (eq. 3).
2. A step's gain is r = R(s') - R(s) (eq. 4), less its penalty. A pruned step stays
   where it is, s' = s.
3. A_action = (r - mean) / F over Group(s), all steps of the tree that leave s (eq.
   5-7); 0 for a step alone in its state.
4. A = alpha_action A_action + alpha_traj A_traj (eq. 9), A_traj being grpo's (eq. 8;
   group.outcome_scale).

Where nobody succeeded every R is 0 and A_action is 0. The release is another algorithm
in several small ways: release/rewardflow.py.
"""

from typing import Literal

import msgspec

from agentcli.credit.common import StateSwitches, in_range, require, unassigned
from agentcli.credit.equations import ADVANTAGE, Equation, Evidence
from agentcli.credit.graph import SUCCESS, Moves, StateGraph, build
from agentcli.credit.group import Grouping, Survey, rows, scale_for, survey_of
from agentcli.credit.release.rewardflow import release_moves
from agentcli.credit.similarity import representatives, require_states
from agentcli.credit.states import states_of
from agentcli.credit.terms import (
    add_group,
    outcome_among_leaves,
    outcome_evidence,
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
    Equation("value", "gamma ** hops", "value of the state it leaves", "002 eq. 3"),
    Equation(
        "next_hops", None, "from the state it leads to to a success (credit.distance)"
    ),
    Equation(
        "next_value",
        "gamma ** next_hops",
        "value of the state it leads to",
        "002 eq. 3",
    ),
    Equation(
        "gain", "discount * next_value - value", "what the step gains", "002 eq. 4"
    ),
    Equation(
        "closer",
        "gain - penalty - no_op_penalty * idle",
        "how the gain, less penalties, compares in its state",
        "002 eq. 5-7",
        among="state",
    ),
    Equation("action", "alpha_action * closer", "its part of the advantage"),
    Equation("trajectory", "alpha_traj * compared", "its part of the advantage"),
    Equation(ADVANTAGE, "action + trajectory", "both parts", "002 eq. 9"),
)


class RewardFlowSettings(StateSwitches, kw_only=True):
    """Defaults of 002 Table 8. Raises UsageError naming the field."""

    gamma: float = 0.9
    """Value lost per hop away from success, in (0, 1]."""
    distance: Literal["min", "mean"] = "min"
    """Hops to the nearest success, or the mean over the successes that can be reached
    (App. D.4).
    """
    alpha_action: float = 1.0
    alpha_traj: float = 1.0
    scale: Literal["std", "none"] | None = None
    """F of A_action. Unset: std (paper, eq. 6-7), none (release)."""
    gain: Literal["difference", "discounted"] = "difference"
    """difference: R(s') - R(s). discounted: gamma R(s') - R(s), where standing still
    loses (1 - gamma) R(s).
    """
    no_op_penalty: float = 0.0
    """Taken from the gain of a valid step that changed nothing: gain 0 otherwise beats
    every move away from success.
    """
    pruning: bool = True
    """Leave out steps that change nothing: invalid ones, self-loops, and those that
    only looked (Step.looked; App. B.2).
    """
    pool: Literal["max", "mean"] | None = None
    """Value of a cluster of similar states: its best member's, or the mean over its
    members (App. C.4). Unset: max.
    """
    loop_steps: int | None = None
    """release: steps of the batch's longest trajectory; a trajectory of this length
    loses its terminal node.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        release = self.form == "release"
        self.scale = self.scale or ("none" if release else "std")
        in_range(self, "gamma", above=0, most=1)
        in_range(self, "alpha_action", "alpha_traj", "no_op_penalty", least=0)
        require(
            self.loop_steps is None or self.loop_steps > 0,
            "loop_steps",
            self.loop_steps,
            "at least 1",
        )
        require(
            release or self.loop_steps is None,
            "loop_steps",
            self.loop_steps,
            "unset where form is paper",
        )
        clustered = self.similarity != "exact"
        require(
            clustered or self.pool is None,
            "pool",
            self.pool,
            "unset where similarity is exact: states are not pooled",
        )
        self.pool = self.pool or ("max" if clustered else None)
        one_way = self.pool != "mean" or self.distance == "min"
        require(one_way, "pool", self.pool, "max where distance is mean")
        plain = {
            "distance": "min",
            "gain": "difference",
            "no_op_penalty": 0.0,
            "pruning": True,
            "similarity": "exact",
        }
        for name, only in plain.items():
            value = getattr(self, name)
            require(
                not release or value == only,
                name,
                value,
                f"{only!r} where form is release",
            )


def assign(tree: Tree, settings: RewardFlowSettings) -> Credit:
    """One StepCredit per row. Raises DataError for a tree without state keys.

    parts: action and trajectory (the summands, weights included), value and next_value
    (R(s) and R(s'); in the release form times success_reward), gain (r before
    penalties).
    """
    survey = survey_of(tree, settings)
    require_states(tree, survey, "rewardflow")
    moves = _moves(tree, survey, settings)
    gains, grouping = _gains(moves, survey, settings)
    trajectory_scale = scale_for(survey, settings, settings.normalise)
    action = 0.0
    credits = []
    for step, reward in rows(survey, settings.prefix):
        reason = survey.masked[step]
        if reason is not None:
            credits.append(unassigned(step, reason))
            continue
        if grouping is not None:
            _, score, _ = grouping.entries[step]
            action = settings.alpha_action * grouping.scales[moves.states[step]](score)
        trajectory = settings.alpha_traj * trajectory_scale(
            reward - survey.penalties[step]
        )
        parts = {
            "action": action,
            "trajectory": trajectory,
            "gain": gains[step],
            "value": moves.values[step],
            "next_value": moves.next_values[step],
        }
        credits.append(survey.credited(step, action + trajectory, parts))
    return Credit(
        task=tree.task.id, method="rewardflow", steps=credits, graph=moves.size
    )


def state_graph(tree: Tree, survey: Survey, settings: RewardFlowSettings) -> StateGraph:
    """The graph whose values the paper's form takes."""
    states = states_of(tree.steps, settings.state)
    clusters = None
    if settings.similarity != "exact":
        clusters = representatives(states.texts, settings)
    return build(
        tree,
        gamma=settings.gamma,
        distance=settings.distance,
        pruning=settings.pruning,
        states=states,
        clusters=clusters,
        pool=settings.pool or "max",
        survey=survey,
    )


def graph_of(tree: Tree, settings: msgspec.Struct) -> StateGraph:
    """`state_graph` with the settings of rewardflow's paper form, with its defaults for
    those of anything else.
    """
    if not isinstance(settings, RewardFlowSettings) or settings.form != "paper":
        settings = RewardFlowSettings()
    return state_graph(tree, survey_of(tree, settings), settings)


def _moves(tree: Tree, survey: Survey, settings: RewardFlowSettings) -> Moves:
    if settings.form == "release":
        return release_moves(tree, survey, settings)
    graph = state_graph(tree, survey, settings)
    # One more value for the node -1 of a step that leads only to errored leaves.
    values = [node.value for node in graph.nodes] + [0.0]
    return Moves(
        states=graph.sources,
        values=[values[source] for source in graph.sources],
        next_values=[values[target] for target in graph.targets],
        idle=[
            pruned and not invalid
            for pruned, invalid in zip(graph.pruned, survey.invalid, strict=True)
        ],
        informed=any(node.kind == SUCCESS for node in graph.nodes),
        size=graph.size,
    )


def _gains(
    moves: Moves, survey: Survey, settings: RewardFlowSettings
) -> tuple[list[float], Grouping | None]:
    """Per step r, and Group(s) of r less the step's penalties; None where no state is
    worth more than another.
    """
    discount = _discount(settings)
    gains = [
        discount * after - before
        for before, after in zip(moves.values, moves.next_values, strict=True)
    ]
    if not moves.informed:
        return gains, None
    duplicated = settings.prefix == "duplicate"
    entries = []
    for step, (gain, penalty, idle) in enumerate(
        zip(gains, survey.penalties, moves.idle, strict=True)
    ):
        score = gain - penalty
        if settings.no_op_penalty:
            score -= settings.no_op_penalty * idle
        # A merged step counts once in its group, a duplicated one once per leaf.
        weight = float(survey.live[step]) if duplicated else 1.0
        entries.append((step, score, weight if survey.masked[step] is None else 0.0))
    return gains, Grouping(moves.states, entries, _how(settings))


def _discount(settings: RewardFlowSettings) -> float:
    return settings.gamma if settings.gain == "discounted" else 1.0


def _how(settings: RewardFlowSettings) -> str:
    return "std" if settings.scale == "std" else "mean"


def evidence(tree: Tree, settings: RewardFlowSettings, row: int) -> Evidence:
    """What EQUATIONS need for one row."""
    survey = survey_of(tree, settings)
    step, ends = row_leaves(survey, settings.prefix, row)
    outcomes = scale_for(survey, settings, settings.normalise)
    evidence = outcome_evidence(
        tree, survey, settings, step, ends, outcomes, settings.normalise
    )
    moves = _moves(tree, survey, settings)
    _add_values(evidence, tree, survey, moves, settings, step)
    words = (
        "1: gain is difference"
        if settings.gain == "difference"
        else "gamma: gain is discounted"
    )
    evidence.add("discount", _discount(settings), words)
    stays = "; the step stays where it is (it is pruned)" if moves.idle[step] else ""
    evidence.add(
        "idle", moves.idle[step], f"1 for a valid step that changed nothing{stays}"
    )
    _, grouping = _gains(moves, survey, settings)
    if grouping is None:
        evidence.add(
            "closer", 0.0, "nobody succeeded: no state is worth more than another"
        )
    else:
        what = "gains, less penalties, of the steps that leave the same state"
        add_group(evidence, "state", what, grouping, step, _how(settings))
    return evidence


def _add_values(
    evidence: Evidence,
    tree: Tree,
    survey: Survey,
    moves: Moves,
    settings: RewardFlowSettings,
    step: int,
) -> None:
    """The values of both states, by their hops where these alone decide."""
    by_hops = settings.form == "paper" and settings.pool != "mean"
    graph = state_graph(tree, survey, settings) if by_hops else None
    for prefix, values, where in (
        ("", moves.values, "leaves"),
        ("next_", moves.next_values, "leads to"),
    ):
        hops = None
        if graph is not None:
            nodes = graph.targets if prefix else graph.sources
            hops = graph.nodes[nodes[step]].hops
        if hops is not None:
            evidence.add(f"{prefix}hops", hops)
        else:
            lost = ": no success can be reached from there" if values[step] == 0 else ""
            evidence.add(
                f"{prefix}value", values[step], f"value of the state it {where}{lost}"
            )
