"""rewardflow: how much closer to success a step led than others from its state.

RewardFlow sections 3-4:

1. Build the state graph of the tree (eq. 2; graph.py) and give every state R(s) =
   gamma ** hops to the nearest success (eq. 3; `graph._set_values`).
2. A step's gain is r = R(s') - R(s) (eq. 4). A pruned step stays in its state, s' = s.
3. A_action = (r - mean) / F over Group(s): the steps of the tree that leave s by a
   transition in T (eq. 5-7). The only step from a state gets 0, and so does a pruned
   step, which is in no group: it has A_traj alone, its penalty included.
4. A = alpha_action A_action + alpha_traj A_traj (eq. 9), where A_traj is grpo's (eq. 8;
   leaves.Leaves).

Without a success every R is 0 and A_action is 0. Under `group: all` pruned steps are
members too, with gain 0 less their penalty. The release's algorithm differs in several
details: see release/rewardflow.py.
"""

from collections.abc import Callable, Hashable
from typing import Literal

from agentcli.credit.equations import ADVANTAGE, Equation, Evidence
from agentcli.credit.graph import SUCCESS, Moves, StateGraph, build
from agentcli.credit.group import Grouping, division
from agentcli.credit.leaves import Leaves, outcome_among_leaves
from agentcli.credit.registry import with_release
from agentcli.credit.similarity import representatives, require_states
from agentcli.credit.states import states_of
from agentcli.credit.survey import AdvantageParts, Survey, survey_of
from agentcli.credit.switches import StateSwitches, in_range, require
from agentcli.records.types import Credit, Tree


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
    that standing still loses (1 - gamma) R(s). Among steps that all move, as under
    group eq5, it only multiplies the differences by gamma.
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
        steps = self.loop_steps
        require(steps is None or steps > 0, "loop_steps", steps, "at least 1")
        paper = "unset where form is paper"
        require(steps is None or release, "loop_steps", steps, paper)
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


def state_graph(tree: Tree, survey: Survey, settings: RewardFlowSettings) -> StateGraph:
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


def graph_moves(tree: Tree, survey: Survey, settings: RewardFlowSettings) -> Moves:
    """The values before and after every step, from the state graph."""
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
        # A mean over the members of a cluster is not determined by hops.
        graph=None if settings.pool == "mean" else graph,
    )


@with_release
def assign(
    tree: Tree,
    settings: RewardFlowSettings,
    leaves_of: type[Leaves] = Leaves,
    moves_by: Callable[[Tree, Survey, RewardFlowSettings], Moves] = graph_moves,
) -> Credit:
    """Returns one StepCredit per row; raises DataError for a tree without state keys.

    parts: action and trajectory (the summands, weights included), value and next_value
    (R(s) and R(s'), in the release times success_reward), gain (r before penalties).
    """
    survey = survey_of(tree, settings)
    require_states(survey, "rewardflow")
    leaves = leaves_of(survey, settings, settings.normalise)
    moves = moves_by(tree, survey, settings)
    discount = settings.gamma if settings.gain == "discounted" else 1.0
    gains = []
    idle = []
    scores = []
    groups: list[Hashable] = []
    for step, value in enumerate(moves.values):
        pruned = moves.pruned[step]
        gains.append(discount * moves.next_values[step] - value)  # RewardFlow eq. 4
        idle.append(pruned and not survey.invalid[step])  # ours, as is its penalty
        scores.append(gains[step] - settings.no_op_penalty * idle[step])
        # A pruned step is in no Group(s) of eq. 5. Alone in a group it compares as 0.
        is_out = pruned and settings.group == "eq5"
        groups.append(("pruned", step) if is_out else moves.states[step])
    members = survey.entries(scores, settings.prefix)
    states = Grouping(groups, members, division(settings.scale))  # mu, F: eq. 6

    def advantage(step: int, reward: float) -> AdvantageParts:
        action = 0.0
        # Without a success all states have the same value.
        if moves.informed:
            action = settings.alpha_action * states.compared(step)  # eq. 6-7
        compared = leaves.scale(reward - survey.penalties[step])  # RewardFlow eq. 8
        parts = {
            "action": action,
            "trajectory": settings.alpha_traj * compared,
            "gain": gains[step],
            "value": moves.values[step],
            "next_value": moves.next_values[step],
        }
        return action + parts["trajectory"], parts  # RewardFlow eq. 9

    def facts(row: int, step: int, reward: float) -> Evidence:
        evidence = leaves.facts(row, step)
        evidence.add("discount", discount, DISCOUNTS[settings.gain])
        _add_move(evidence, moves, step, idle[step])
        if moves.informed:
            left_out = moves.pruned[step] and settings.group == "eq5"
            words = PRUNED if left_out else GROUPS[settings.group or "eq5"]
            evidence.compare("state", words, states, step)
        else:
            evidence.add("closer", 0.0, UNINFORMED)
        return evidence

    rows = survey.rows(settings.prefix)
    return survey.credit("rewardflow", rows, advantage, moves.size, facts)


def _add_move(evidence: Evidence, moves: Moves, step: int, idle: bool) -> None:
    """Adds the values of both states, or their hops where these determine them."""
    pair = (("", "leaves"), ("next_", "leads to"))
    values = moves.values[step], moves.next_values[step]
    for (name, verb), far, value in zip(pair, moves.hops(step), values, strict=True):
        if far is not None:
            evidence.add(f"{name}hops", far)
            continue
        words = f"value of the state it {verb}"
        if value == 0:
            words += ": no success can be reached from there"
        evidence.add(f"{name}value", value, words)
    words = "1 for a valid step that changed nothing"
    if moves.pruned[step]:
        words += "; the step stays where it is (it is pruned)"
    evidence.add("idle", idle, words)


DISCOUNTS = {
    "difference": "1: gain is difference",
    "discounted": "gamma: gain is discounted",
}
UNINFORMED = "nobody succeeded: no state is worth more than another"
PRUNED = "a pruned step is no transition in T: it is in no group"
MEMBERS = "gains, less penalties, of the steps that leave the same state"
GROUPS = {"all": MEMBERS, "eq5": f"{MEMBERS} by a transition in T"}
EQUATIONS = (
    *outcome_among_leaves("compared"),
    Equation("hops", None, "from the state it leaves to a success (credit.distance)"),
    Equation(
        "value", "gamma ** hops", "value of the state it leaves", "RewardFlow eq. 3"
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
    Equation(ADVANTAGE, "action + trajectory", "both parts", "RewardFlow eq. 9"),
)
