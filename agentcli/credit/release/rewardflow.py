"""rewardflow as its release computes it (tmlr-group/RewardFlow, commit 1cdead8).

- All trajectories that ended before the batch's longest one share one terminal state,
  failures too; one as long as the longest (a truncated one always is) has none, and the
  gain of its last step is the environment's raw reward.
- A state's own reward is the one at its first mention, so a failure mentioned first
  silences the terminal for the whole group.
- Gains and groups are those of the raw states: a step into noise loses all value and
  the step out of it wins it back.
- What is pruned is found by words, the release's own (LOOKS, NOTHING_HAPPENS), not by
  what the world says: malformed actions only where the observation says that nothing
  happened.
- Values are success_reward * gamma ** hops.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from agentcli.credit.graph import Moves, hops_to
from agentcli.credit.group import Survey
from agentcli.credit.states import states_of
from agentcli.records.types import GraphSize, Outcome, Tree

if TYPE_CHECKING:
    from agentcli.credit.rewardflow import RewardFlowSettings

LOOKS = ("look", "inventory")
"""Actions that the release prunes."""
LOOKS_AT = "examine "
"""How further actions begin that it prunes."""
NOTHING_HAPPENS = "nothing happens"
"""How an observation begins that says so."""
TERMINAL = "\0terminal"
"""The one terminal state's key; no environment's text."""


def only_looks(action: str | None) -> bool:
    """Whether the release prunes this action."""
    plain = (action or "").strip().lower()
    return plain in LOOKS or plain.startswith(LOOKS_AT)


def nothing_happened(observation: str) -> bool:
    """Whether the release prunes an action that was answered with this."""
    return observation.strip()[: len(NOTHING_HAPPENS)].lower() == NOTHING_HAPPENS


def release_moves(tree: Tree, survey: Survey, settings: "RewardFlowSettings") -> Moves:
    """What every step did, by raw state keys."""
    targets, transitions = release_walk(tree, survey, settings)
    known = propagated(transitions, settings.gamma)
    states = states_of(tree.steps, settings.state).before
    values, next_values = [], []
    for step, state, target in zip(tree.steps, states, targets, strict=True):
        raw = settings.success_reward * (step.outcome is Outcome.SUCCESS)
        values.append(0.0 if target is None else known.get(state, 0.0))
        next_values.append(raw if target is None else known.get(target, 0.0))
    edges = {(source, target) for source, target, _ in transitions}
    size = GraphSize(nodes=len(known), edges=len(edges))
    return Moves(
        states, values, next_values, [False] * len(states), informed=True, size=size
    )


def release_walk(
    tree: Tree, survey: Survey, settings: "RewardFlowSettings"
) -> tuple[list[str | None], list[tuple[str, str, float]]]:
    """Per step the raw state it leads to, and the cleaned transitions (source, target,
    reward of the target).

    A last step without a terminal leads to None. Steps that lead only to errored leaves
    add no transition.
    """
    depth: list[int] = []
    reached: list[str] = []
    targets: list[str | None] = []
    transitions: list[tuple[str, str, float]] = []
    states = states_of(tree.steps, settings.state)
    for step, before, after, leaves in zip(
        tree.steps, *states, survey.live, strict=False
    ):
        above = step.parent
        depth.append(1 if above is None else depth[above] + 1)
        reached.append(before if above is None else reached[above])
        target: str | None = after
        if step.outcome is not None:
            lost = step.outcome is Outcome.TRUNCATED or depth[-1] == settings.loop_steps
            target = None if lost else TERMINAL
        targets.append(target)
        if (
            not leaves
            or target is None
            or target == reached[-1]
            or only_looks(step.action)
        ):
            continue
        if target != TERMINAL and nothing_happened(step.next_observation):
            continue
        transitions.append(
            (
                reached[-1],
                target,
                settings.success_reward * (step.outcome is Outcome.SUCCESS),
            )
        )
        reached[-1] = target
    return targets, transitions


def propagated(
    transitions: Iterable[tuple[str, str, float]], gamma: float
) -> dict[str, float]:
    """Value of every state that is mentioned in (source, target, reward of the target)
    triples.

    It is the fixed point of V(s) = max(own reward, gamma * V(next)). Own rewards are
    fixed at first mention; each is 0 or one common maximum.
    """
    rewards: dict[str, float] = {}
    pairs: dict[tuple[str, str], None] = {}
    for source, target, reward in transitions:
        rewards.setdefault(source, 0.0)
        rewards.setdefault(target, reward)
        pairs[source, target] = None
    index = {state: number for number, state in enumerate(rewards)}
    goals = [index[state] for state, reward in rewards.items() if reward > 0]
    hops = hops_to(
        goals,
        [(index[source], index[target]) for source, target in pairs],
        len(rewards),
    )
    top = max(rewards.values(), default=0.0)
    return {
        state: 0.0 if far is None else top * gamma**far
        for state, far in zip(rewards, hops, strict=True)
    }
