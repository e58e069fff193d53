"""rewardflow: how much closer to a success a step came, against other steps from the same state (002 sections 3-4).

1. Build the state graph of the tree (graph.py) and give every state R(s) = gamma ** hops to the nearest success (eq. 3).
2. A step's gain is r = R(s') - R(s) (eq. 4), less its penalty. A pruned step stays where it is, s' = s.
3. A_action = (r - mean) / F over Group(s), all steps of the tree that leave s (eq. 5-7); 0 for a step alone in its state.
4. A = alpha_action A_action + alpha_traj A_traj (eq. 9), A_traj being grpo's (eq. 8; common.group_of).

Where nobody succeeded every R is 0 and A_action is 0. The release is another algorithm in several small ways:
rewardflow_release.py.
"""

from typing import Literal

from agentcli.credit.common import ERRORED, LeafGroup, Scale, Switches, group_of, invalid, require, rows, scale_of
from agentcli.credit.graph import NOISE_ACTIONS, NOISE_OBSERVATIONS, SUCCESS, build
from agentcli.credit.rewardflow_release import release_moves
from agentcli.records.types import Credit, StepCredit, Tree

Move = tuple[object, float, float]
"""What a step did: the state it leaves (any hashable), value of that state, value of the next one."""


class RewardFlowSettings(Switches, kw_only=True):
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
    noise_actions: tuple[str, ...] = NOISE_ACTIONS
    """Actions of this world that only look and are pruned; a trailing * stands for any ending."""
    noise_observations: tuple[str, ...] = NOISE_OBSERVATIONS
    """Answers of this world that say nothing happened; such steps are pruned."""
    loop_steps: int | None = None
    """release: steps of the batch's longest trajectory; a trajectory of this length loses its terminal node."""

    def __post_init__(self) -> None:
        super().__post_init__()
        release = self.form == "release"
        self.scale = self.scale or ("none" if release else "std")
        require(0 < self.gamma <= 1, "gamma", self.gamma, "above 0 and at most 1")
        for name in ("alpha_action", "alpha_traj", "no_op_penalty"):
            require(0 <= getattr(self, name) < float("inf"), name, getattr(self, name), "finite and at least 0")
        require(self.loop_steps is None or self.loop_steps > 0, "loop_steps", self.loop_steps, "at least 1")
        require(release or self.loop_steps is None, "loop_steps", self.loop_steps, "unset where form is paper")
        for name, only in (("distance", "min"), ("gain", "difference"), ("no_op_penalty", 0.0)):
            value = getattr(self, name)
            require(not release or value == only, name, value, f"{only!r} where form is release")


def assign(tree: Tree, settings: RewardFlowSettings) -> Credit:
    """One StepCredit per row. parts: action and trajectory (the summands, weights included), value and next_value (R(s) and
    R(s'); in the release form times success_reward), gain (r before penalties)."""
    group = group_of(tree, settings)
    if settings.form == "release":
        moves, no_op, informed = release_moves(tree, settings), [False] * len(tree.steps), True
    else:
        moves, no_op, informed = _moves(tree, settings)
    factor = settings.gamma if settings.gain == "discounted" else 1.0
    gains = [factor * after - before for _, before, after in moves]
    charged = [
        gain - penalty - settings.no_op_penalty * idle
        for gain, penalty, idle in zip(gains, group.penalties, no_op, strict=True)
    ]
    scales = _state_scales(moves, charged, group, settings) if informed else {}
    credits = []
    for step, reward in rows(tree, group, settings.prefix):
        if reward is None:
            credits.append(StepCredit(step=step, advantage=None, masked=ERRORED))
            continue
        state, value, next_value = moves[step]
        action = settings.alpha_action * scales[state](charged[step]) if informed else 0.0
        trajectory = settings.alpha_traj * group.advantage(step, reward)
        parts = {"action": action, "trajectory": trajectory, "gain": gains[step]}
        parts |= {"value": value, "next_value": next_value}
        credits.append(StepCredit(step=step, advantage=action + trajectory, parts=parts))
    return Credit(task=tree.task.id, method="rewardflow", steps=credits)


def _moves(tree: Tree, settings: RewardFlowSettings) -> tuple[list[Move], list[bool], bool]:
    """Per step its move and whether it was valid without effect; and whether anyone succeeded."""
    graph = build(
        tree,
        gamma=settings.gamma,
        distance=settings.distance,
        noise_actions=settings.noise_actions,
        noise_observations=settings.noise_observations,
    )
    values = [node.value for node in graph.nodes] + [0.0]
    moves: list[Move] = [
        (source, values[source], values[target]) for source, target in zip(graph.sources, graph.targets, strict=True)
    ]
    no_op = [pruned and not invalid(step) for pruned, step in zip(graph.pruned, tree.steps, strict=True)]
    return moves, no_op, any(node.kind == SUCCESS for node in graph.nodes)


def _state_scales(
    moves: list[Move], charged: list[float], group: LeafGroup, settings: RewardFlowSettings
) -> dict[object, Scale]:
    """Normalisation of every Group(s). A merged step counts once, a duplicated one once per leaf."""
    members: dict[object, list[tuple[float, float]]] = {}
    for (state, _, _), score, leaves in zip(moves, charged, group.leaves, strict=True):
        weight = leaves if settings.prefix == "duplicate" else min(leaves, 1)
        members.setdefault(state, []).append((score, float(weight)))
    normalise = "std" if settings.scale == "std" else "mean"
    return {state: scale_of(entries, normalise) for state, entries in members.items()}
