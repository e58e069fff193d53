"""Discounted returns and generalised advantages, along a path or up a tree.

A step that the policy did not choose (Step.mask) is not discounted: it passes on the
return of what follows, with its own reward added. Each return has exactly one baseline
subtracted, the value of its state, no matter how many steps follow.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Literal

from agentcli.credit.equations import listed
from agentcli.credit.survey import Survey

Rewards = Literal["outcome", "environment"]
EstimatedRow = tuple[int, float, float, float]
"""Step id, outcome reward, V and A; the return is V + A."""


def step_rewards(survey: Survey, rewards: Rewards) -> list[float]:
    """The reward of every step.

    outcome: the outcome reward (Switches.outcome) on a leaf, 0 on other steps.
    environment: the world's own reward (Step.reward).
    """
    steps = survey.tree.steps
    if rewards == "environment":
        return [step.reward for step in steps]
    step_rewards = [0.0] * len(steps)
    for end in survey.ends:
        step_rewards[end] = survey.rewards[end]
    return step_rewards


def estimates(
    rewards: Sequence[float],
    values: Sequence[float],
    chosen: Sequence[bool],
    below: Sequence[Sequence[int]],
    weights: Sequence[int],
    gamma: float,
    gae_lambda: float,
) -> tuple[list[float], list[float]]:
    """Generalised advantage estimation (Schulman et al. 2016, eq. 11-16).

        A_t = r_t + gamma V(s_t+1) - V(s_t) + gamma lambda A_t+1

    with V = A = 0 after the last step.

    `below` lists the children of each step, whose ids are above its own. Where there
    are several, V(s_t+1) and A_t+1 are means over them, weighted by `weights` (leaves),
    so A_t is the mean over the paths. A step that was not chosen passes on V = r_t +
    V(s_t+1) and A = A_t+1. Returns V and A by step. V + A is the return; with values 0
    and lambda 1 it is the discounted return R_t = r_t + gamma R_t+1.
    """
    value = list(values)
    advantage = [0.0] * len(values)
    decay = gamma * gae_lambda
    for t in range(len(value) - 1, -1, -1):
        after = below[t]
        next_value = 0.0
        next_advantage = 0.0
        if len(after) == 1:
            next_value = value[after[0]]
            next_advantage = advantage[after[0]]
        elif after:
            # By leaves: the mean over paths, not over children, as of outcome rewards.
            leaves = sum([weights[n] for n in after])
            value_sum = math.fsum([weights[n] * value[n] for n in after])
            advantage_sum = math.fsum([weights[n] * advantage[n] for n in after])
            next_value = value_sum / leaves
            next_advantage = advantage_sum / leaves
        if chosen[t]:
            delta = rewards[t] + gamma * next_value - value[t]  # eq. 11
            advantage[t] = delta + decay * next_advantage  # eq. 16
        else:
            value[t] = rewards[t] + next_value
            advantage[t] = next_advantage
    return value, advantage


def path_estimates(
    rewards: Sequence[float],
    values: Sequence[float],
    chosen: Sequence[bool],
    gamma: float,
    gae_lambda: float,
) -> tuple[list[float], list[float]]:
    """`estimates` along one path."""
    size = len(rewards)
    below: list[list[int]] = [[t + 1] for t in range(size)]
    if below:
        below[-1] = []
    return estimates(rewards, values, chosen, below, [1] * size, gamma, gae_lambda)


def estimated_rows(
    survey: Survey,
    prefix: str | None,
    rewards: Sequence[float],
    values: Sequence[float],
    gamma: float,
    gae_lambda: float,
) -> Iterator[EstimatedRow]:
    """The training rows with V and A, in the order of Survey.rows."""
    chosen = [reason is None for reason in survey.masked]
    if prefix == "merge":
        value, advantage = estimates(
            rewards, values, chosen, survey.children(), survey.live, gamma, gae_lambda
        )
        outcomes = survey.rewards[: len(value)]
        yield from zip(range(len(value)), outcomes, value, advantage, strict=True)
        return
    for end, steps in survey.leaf_rows():
        value, advantage = path_estimates(
            [rewards[step] for step in steps],
            [values[step] for step in steps],
            [chosen[step] for step in steps],
            gamma,
            gae_lambda,
        )
        outcomes = [survey.rewards[end]] * len(steps)
        yield from zip(steps, outcomes, value, advantage, strict=True)


def following(
    survey: Survey,
    prefix: str | None,
    estimated: Sequence[EstimatedRow],
    row: int,
) -> tuple[float, float, str]:
    """Mean value and advantage of what follows a row of `estimated_rows`.

    The mean is weighted by leaves. The last element says in words what follows.
    """
    step = estimated[row][0]
    if survey.tree.steps[step].outcome is not None:
        return 0.0, 0.0, "nothing follows"
    if prefix != "merge":
        # The rows of a leaf are in the order of its path, and this is not the last.
        next_step, _, value, advantage = estimated[row + 1]
        return value, advantage, f"step {next_step} follows"
    children = survey.children()[step]
    leaves = sum(survey.live[child] for child in children)
    value = 0.0
    advantage = 0.0
    for child in children:
        _, _, child_value, child_advantage = estimated[child]
        value += survey.live[child] * child_value
        advantage += survey.live[child] * child_advantage
    words = f"step {children[0]} follows"
    if len(children) > 1:
        words = f"mean by leaves over the steps {listed(children)}"
    return value / leaves, advantage / leaves, words
