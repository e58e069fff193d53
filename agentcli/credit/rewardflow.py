"""rewardflow: how much closer to a success a step came, against other steps from the same state (002 sections 3-4).

1. Build the state graph of the tree (graph.py) and give every state R(s) = gamma ** hops to the nearest success (eq. 3).
2. A step's gain is r = R(s') - R(s) (eq. 4), less its penalty. A pruned step stays where it is, s' = s.
3. A_action = (r - mean) / F over Group(s), all steps of the tree that leave s (eq. 5-7); 0 for a step alone in its state.
4. A = alpha_action A_action + alpha_traj A_traj (eq. 9), A_traj being grpo's (eq. 8; group.outcome_scale).

Where nobody succeeded every R is 0 and A_action is 0. The release is another algorithm in several small ways:
rewardflow_release.py.
"""

from typing import Literal

import msgspec

from agentcli.credit.account import Sheet
from agentcli.credit.common import StateSwitches, in_range, require, unassigned
from agentcli.credit.graph import NOISE_ACTIONS, NOISE_OBSERVATIONS, SUCCESS, StateGraph, build
from agentcli.credit.group import Survey, rows, scale_for, scales_within, survey
from agentcli.credit.rewardflow_release import Moves, release_moves
from agentcli.credit.similarity import representatives, require_states
from agentcli.credit.states import states_of
from agentcli.credit.terms import alike, among_leaves, charge, end_line, told
from agentcli.records.types import Credit, Tree

WITHOUT = {"rewards": "its rewards are differences of state values", "w": "its weights are alpha_action and alpha_traj"}
NOISE = ("noise_actions", "noise_observations")


class RewardFlowSettings(StateSwitches, kw_only=True):
    """Defaults of 002 Table 8. Raises UsageError naming the field."""

    gamma: float = 0.9
    """Value lost per hop away from success, in (0, 1]."""
    distance: Literal["min", "mean"] = "min"
    """Hops to the nearest success, or the mean over the successes that can be reached (App. D.4)."""
    alpha_action: float = 1.0
    alpha_traj: float = 1.0
    scale: Literal["std", "none"] | None = None
    """F of A_action. Unset: std (paper, eq. 6-7), none (release)."""
    gain: Literal["difference", "discounted"] = "difference"
    """difference: R(s') - R(s). discounted: gamma R(s') - R(s), where standing still loses (1 - gamma) R(s)."""
    no_op_penalty: float = 0.0
    """Taken from the gain of a valid step that changed nothing: gain 0 otherwise beats every move away from success."""
    pruning: bool = True
    """Leave out steps that change nothing: invalid ones, self-loops and the noise below (App. B.2)."""
    noise_actions: tuple[str, ...] = NOISE_ACTIONS
    """Actions of this world that only look and are pruned; a trailing * stands for any ending."""
    noise_observations: tuple[str, ...] = NOISE_OBSERVATIONS
    """Answers of this world that say nothing happened; such steps are pruned."""
    pool: Literal["max", "mean"] | None = None
    """Value of a cluster of similar states: its best member's, or the mean over its members (App. C.4). Unset: max."""
    loop_steps: int | None = None
    """release: steps of the batch's longest trajectory; a trajectory of this length loses its terminal node."""

    def __post_init__(self) -> None:
        super().__post_init__()
        release = self.form == "release"
        self.scale = self.scale or ("none" if release else "std")
        in_range(self, "gamma", above=0, most=1)
        in_range(self, "alpha_action", "alpha_traj", "no_op_penalty", least=0)
        require(self.loop_steps is None or self.loop_steps > 0, "loop_steps", self.loop_steps, "at least 1")
        require(release or self.loop_steps is None, "loop_steps", self.loop_steps, "unset where form is paper")
        clustered = self.similarity != "exact"
        require(
            clustered or self.pool is None, "pool", self.pool, "unset where similarity is exact: states are not pooled"
        )
        self.pool = self.pool or ("max" if clustered else None)
        one_way = self.pool != "mean" or self.distance == "min"
        require(one_way, "pool", self.pool, "max where distance is mean")
        plain = {"distance": "min", "gain": "difference", "no_op_penalty": 0.0, "pruning": True, "similarity": "exact"}
        for name, only in plain.items():
            value = getattr(self, name)
            require(not release or value == only, name, value, f"{only!r} where form is release")
        noise = (self.noise_actions, self.noise_observations)
        for name, given, usual in zip(NOISE, noise, (NOISE_ACTIONS, NOISE_OBSERVATIONS), strict=True):
            require(self.pruning or given == usual, name, given, "left alone where pruning is off")


def assign(tree: Tree, settings: RewardFlowSettings) -> Credit:
    """One StepCredit per row. parts: action and trajectory (the summands, weights included), value and next_value (R(s) and
    R(s'); in the release form times success_reward), gain (r before penalties)."""
    seen = survey(tree, settings)
    require_states(tree, seen, "rewardflow")
    moves = _moves(tree, seen, settings)
    gains, charged = _gains(moves, seen, settings)
    trajectory_scale = scale_for(seen, settings, settings.normalise)
    scales = scales_within(moves.states, charged, _weights(seen, settings), _how(settings)) if moves.informed else {}
    alpha_action, alpha_traj, action = settings.alpha_action, settings.alpha_traj, 0.0
    penalties, values, next_values = seen.penalties, moves.values, moves.next_values
    credits = []
    for step, reward in rows(seen, settings.prefix):
        reason = seen.masked[step]
        if reason is not None:
            credits.append(unassigned(step, reason))
            continue
        if moves.informed:
            action = alpha_action * scales[moves.states[step]](charged[step])
        trajectory = alpha_traj * trajectory_scale(reward - penalties[step])
        parts = {
            "action": action,
            "trajectory": trajectory,
            "gain": gains[step],
            "value": values[step],
            "next_value": next_values[step],
        }
        credits.append(seen.credited(step, action + trajectory, parts))
    return Credit(task=tree.task.id, method="rewardflow", steps=credits, graph=moves.size)


def state_graph(tree: Tree, seen: Survey, settings: RewardFlowSettings) -> StateGraph:
    """The graph whose values the paper's form takes."""
    states, clusters = states_of(tree.steps, settings.state), None
    if settings.similarity != "exact":
        clusters = representatives(states.texts, settings)
    return build(
        tree,
        gamma=settings.gamma,
        distance=settings.distance,
        pruning=settings.pruning,
        noise_actions=settings.noise_actions,
        noise_observations=settings.noise_observations,
        states=states,
        clusters=clusters,
        pool=settings.pool or "max",
        seen=seen,
    )


def graph_of(tree: Tree, settings: msgspec.Struct) -> StateGraph:
    """`state_graph` with the settings of rewardflow's paper form, with its defaults for those of anything else."""
    own = settings if isinstance(settings, RewardFlowSettings) and settings.form == "paper" else RewardFlowSettings()
    return state_graph(tree, survey(tree, own), own)


def _moves(tree: Tree, seen: Survey, settings: RewardFlowSettings) -> Moves:
    if settings.form == "release":
        return release_moves(tree, seen, settings)
    graph = state_graph(tree, seen, settings)
    values = [node.value for node in graph.nodes] + [0.0]
    return Moves(
        states=graph.sources,
        values=[values[source] for source in graph.sources],
        next_values=[values[target] for target in graph.targets],
        idle=[pruned and not bad for pruned, bad in zip(graph.pruned, seen.invalid, strict=True)],
        informed=any(node.kind == SUCCESS for node in graph.nodes),
        size=graph.size,
    )


def _gains(moves: Moves, seen: Survey, settings: RewardFlowSettings) -> tuple[list[float], list[float]]:
    """Per step r, and r less the step's penalties."""
    factor = settings.gamma if settings.gain == "discounted" else 1.0
    gains = [factor * after - before for before, after in zip(moves.values, moves.next_values, strict=True)]
    charged = [gain - penalty for gain, penalty in zip(gains, seen.penalties, strict=True)]
    if settings.no_op_penalty:
        charged = [score - settings.no_op_penalty * idle for score, idle in zip(charged, moves.idle, strict=True)]
    return gains, charged


def _how(settings: RewardFlowSettings) -> str:
    return "std" if settings.scale == "std" else "mean"


def _weights(seen: Survey, settings: RewardFlowSettings) -> list[float]:
    """Of every step in its Group(s): a merged step counts once, a duplicated one once per leaf."""
    each = settings.prefix == "duplicate"
    return [
        0.0 if reason is not None else float(leaves) if each else 1.0
        for reason, leaves in zip(seen.masked, seen.live, strict=False)
    ]


def explain(tree: Tree, settings: RewardFlowSettings, row: int) -> Sheet:
    """The account of one row."""
    sheet, seen = Sheet(), survey(tree, settings)
    moves, about = _moves(tree, seen, settings), told(seen, settings.prefix, row)
    outcomes = scale_for(seen, settings, settings.normalise)
    among_leaves(sheet, tree, seen, about, settings, outcomes, settings.normalise, "compared")
    _explain_values(sheet, tree, seen, moves, settings, about.step)
    _explain_gain(sheet, moves, settings, about.step)
    _, charged = _gains(moves, seen, settings)
    members = list(zip(range(len(charged)), charged, _weights(seen, settings), strict=True))
    what = "gains, less penalties, of the steps that leave the same state"
    group = alike(sheet, "state", what, seen, members, moves.states, about.step)
    if moves.informed:
        scale = scales_within(moves.states, charged, _weights(seen, settings), _how(settings))[moves.states[about.step]]
        what = "how the gain compares among them"
        sheet.compare("closer", "y", group, scale, _how(settings), what, "002 eq. 5-7")
    else:
        sheet.line("closer", "0", "nobody succeeded: no state is worth more than another", "002 eq. 5-7")
    sheet.given("alpha_action", settings.alpha_action, "setting")
    sheet.given("alpha_traj", settings.alpha_traj, "setting")
    sheet.line("action", "alpha_action * closer", "its part of the advantage")
    sheet.line("trajectory", "alpha_traj * compared", "its part of the advantage")
    sheet.line(end_line(seen), "action + trajectory", "both parts", "002 eq. 9")
    return charge(sheet, seen, about.step)


def _explain_values(
    sheet: Sheet, tree: Tree, seen: Survey, moves: Moves, settings: RewardFlowSettings, step: int
) -> None:
    """R(s) and R(s'), by their hops where these alone decide."""
    sheet.given("gamma", settings.gamma, "setting")
    plain = settings.form == "paper" and settings.pool != "mean"
    graph = state_graph(tree, seen, settings) if plain else None
    for name, value, nodes, where in (
        ("R_s", moves.values[step], graph and graph.sources, "the state it leaves"),
        ("R_next", moves.next_values[step], graph and graph.targets, "the state it leads to"),
    ):
        hops = graph.nodes[nodes[step]].hops if graph and nodes else None
        if hops is not None:
            sheet.given(f"hops_{name}", hops, f"from {where} to a success ({settings.distance})")
            sheet.line(name, f"gamma ** hops_{name}", f"value of {where}", "002 eq. 3")
        else:
            lost = ": no success can be reached from there" if value == 0 else ""
            sheet.given(name, value, f"value of {where}{lost}")


def _explain_gain(sheet: Sheet, moves: Moves, settings: RewardFlowSettings, step: int) -> None:
    """r, and its score y: less the penalties."""
    stays = ", which is where the step stays (it is pruned)" if moves.idle[step] else ""
    discounted = settings.gain == "discounted"
    sheet.line(
        "gain", "gamma * R_next - R_s" if discounted else "R_next - R_s", f"what the step gains{stays}", "002 eq. 4"
    )
    if settings.no_op_penalty:
        sheet.given("idle", moves.idle[step], "1 for a valid step that changed nothing")
        sheet.given("no_op_penalty", settings.no_op_penalty, "setting")
        sheet.line("y", "gain - p - no_op_penalty * idle", "score of the step")
    else:
        sheet.line("y", "gain - p", "score of the step")
