"""rewardflow as its release computes it (tmlr-group/RewardFlow, commit 1cdead8).

- All trajectories shorter than the batch's longest one share one terminal state,
  failures included. One as long as the longest (a truncated one always is) has no
  terminal state, and the gain of its last step is the environment's raw reward.
- A state's own reward is fixed when the state is first seen. If a failure comes first,
  the terminal state is worth 0 for the whole group.
- Gains and groups use the raw states: a step into a pruned state loses all value, and
  the step out of it regains it.
- Pruning goes by the release's own word lists (LOOKS, LOOKS_AT, NOTHING_HAPPENS), not
  by what the world reports. Malformed actions have no rule of their own: they are
  pruned as self-loops, or where the observation says that nothing happened.
- Values are success_reward * gamma ** hops.
"""

from collections.abc import Iterable

from agentcli.credit.graph import Moves, hops_to
from agentcli.credit.rewardflow import RewardFlowSettings
from agentcli.credit.states import states_of
from agentcli.credit.survey import Survey
from agentcli.records.types import GraphSize, Outcome, Step, Tree

LOOKS = ("look", "inventory")
"""Actions that the release prunes."""
LOOKS_AT = "examine "
"""Actions with this beginning are pruned too."""
NOTHING_HAPPENS = "nothing happens"
"""The beginning of the observation after an action without effect."""
TERMINAL = "\0terminal"
"""The key of the one terminal state; no environment's text is equal to it."""
Transition = tuple[str, str, float]
"""Source, target, and the reward at the target."""


def only_looks(action: str | None) -> bool:
    """Whether the release prunes this action."""
    plain = (action or "").strip().lower()
    return plain in LOOKS or plain.startswith(LOOKS_AT)


def nothing_happened(observation: str) -> bool:
    """Whether the release prunes an action with this result."""
    beginning = observation.strip()[: len(NOTHING_HAPPENS)]
    return beginning.lower() == NOTHING_HAPPENS


def release_moves(
    tree: Tree,
    survey: Survey,
    settings: RewardFlowSettings,
) -> Moves:
    """The values before and after every step, by raw state keys."""
    targets, transitions = release_walk(tree, survey, settings)
    state_values = propagated(transitions, settings.gamma)
    states = states_of(tree.steps, settings.state).before
    values = []
    next_values = []
    for step, state, target in zip(tree.steps, states, targets, strict=True):
        if target is None:
            # Without a terminal state the raw reward is the whole gain.
            values.append(0.0)
            next_values.append(_raw_reward(step, settings))
        else:
            values.append(state_values.get(state, 0.0))
            next_values.append(state_values.get(target, 0.0))
    edges = {(source, target) for source, target, _ in transitions}
    return Moves(
        states=states,
        values=values,
        next_values=next_values,
        # Pruned steps only leave the graph: the release keeps every step in its group.
        pruned=[False] * len(states),
        # Also without a success, where the release leaves the penalties in A_action.
        informed=True,
        size=GraphSize(
            nodes=len(state_values),
            edges=len(edges),
        ),
    )


def _raw_reward(step: Step, settings: RewardFlowSettings) -> float:
    return settings.success_reward * (step.outcome is Outcome.SUCCESS)


def release_walk(
    tree: Tree,
    survey: Survey,
    settings: RewardFlowSettings,
) -> tuple[list[str | None], list[Transition]]:
    """The raw state after each step, and the transitions that are not pruned.

    It is None for a last step without a terminal state. Steps that lead only to errored
    leaves add no transition.
    """
    depths: list[int] = []
    reached: list[str] = []
    targets: list[str | None] = []
    transitions: list[Transition] = []
    states = states_of(tree.steps, settings.state)
    for step, before, after in zip(tree.steps, *states, strict=True):
        depth = 1
        source = before
        if step.parent is not None:
            depth += depths[step.parent]
            source = reached[step.parent]
        target: str | None = after
        if step.outcome is not None:
            # A trajectory as long as the batch's longest loses its terminal state.
            longest = depth == settings.loop_steps
            lost = longest or step.outcome is Outcome.TRUNCATED
            target = None if lost else TERMINAL
        depths.append(depth)
        targets.append(target)
        live = survey.live[step.id]
        if live and target is not None and not _is_pruned(step, source, target):
            transitions.append((source, target, _raw_reward(step, settings)))
            source = target
        reached.append(source)
    return targets, transitions


def _is_pruned(
    step: Step,
    source: str,
    target: str,
) -> bool:
    """Whether the release leaves the transition out."""
    if target == source or only_looks(step.action):
        return True
    # A step into the terminal state is kept, whatever the observation says.
    return target != TERMINAL and nothing_happened(step.next_observation)


def propagated(transitions: Iterable[Transition], gamma: float) -> dict[str, float]:
    """The value of every state that occurs in a transition.

    It is the fixed point of V(s) = max(own reward, gamma * V(next)). A state's own
    reward is the one where it first occurs: either 0 or the common maximum.
    """
    rewards: dict[str, float] = {}
    pairs: dict[tuple[str, str], None] = {}
    for source, target, reward in transitions:
        rewards.setdefault(source, 0.0)
        rewards.setdefault(target, reward)
        pairs[source, target] = None
    index = {state: number for number, state in enumerate(rewards)}
    goals = [index[state] for state, reward in rewards.items() if reward > 0]
    edges = [(index[source], index[target]) for source, target in pairs]
    # All goals have the same reward, so the nearest decides the maximum over paths.
    highest = max(rewards.values(), default=0.0)
    values = {}
    hops = hops_to(goals, edges, len(rewards))
    for state, far in zip(rewards, hops, strict=True):
        values[state] = 0.0
        if far is not None:
            values[state] = highest * gamma**far
    return values
