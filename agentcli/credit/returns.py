"""Rewards of single steps and what they are worth before they come: discounted returns
and GAE, along a path or up a tree.

A step that the policy did not choose (Step.mask) takes part in no discounting: what
follows it is carried through, its own reward added. One baseline, the state's, is taken
from one return; how many steps follow, hence where the policy stops, decides nothing.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Literal

from agentcli.credit.group import Survey
from agentcli.records.types import Tree

Rewards = Literal["outcome", "environment"]


def step_rewards(tree: Tree, survey: Survey, rewards: Rewards) -> list[float]:
    """Per step. outcome: the outcome reward (Switches.outcome) on the leaf, else 0.
    environment: the record's own (Step.reward).
    """
    if rewards == "environment":
        return [step.reward for step in tree.steps]
    step_rewards = [0.0] * len(tree.steps)
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
    """Generalised advantage estimation (Schulman et al. 2016, eq. 11-16), last step
    first.

        A_t = r_t + gamma V(s_t+1) - V(s_t) + gamma lambda A_t+1

    with V = A = 0 after the last step.

    Where a step has several children (`below`, ids after its own), V(s_t+1) and A_t+1
    are their means with `weights` (leaves), which makes A_t the mean over the paths. A
    step that was not chosen hands on V = r_t + V(s_t+1) and A = A_t+1. Returns V and A
    by step; V + A is the return, with values 0 and lambda 1 the discounted one: R_t =
    r_t + gamma R_t+1.
    """
    value, advantage = list(values), [0.0] * len(values)
    decay = gamma * gae_lambda
    for t in range(len(value) - 1, -1, -1):
        after = below[t]
        if not after:
            next_value = next_advantage = 0.0
        elif len(after) == 1:
            next_value, next_advantage = value[after[0]], advantage[after[0]]
        else:
            total = sum([weights[n] for n in after])
            next_value = math.fsum([weights[n] * value[n] for n in after]) / total
            next_advantage = (
                math.fsum([weights[n] * advantage[n] for n in after]) / total
            )
        if chosen[t]:
            advantage[t] = (
                rewards[t] + gamma * next_value - value[t] + decay * next_advantage
            )
        else:
            value[t], advantage[t] = rewards[t] + next_value, next_advantage
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
) -> Iterator[tuple[int, float, float, float]]:
    """The training rows, in the order of group.rows, as (step id, outcome reward, V,
    A).
    """
    chosen = [reason is None for reason in survey.masked]
    if prefix == "merge":
        merged = estimates(
            rewards, values, chosen, survey.children(), survey.live, gamma, gae_lambda
        )
        yield from zip(
            range(len(survey.parents)), survey.rewards, *merged, strict=False
        )
        return
    # Steps without a live leaf that have had their row.
    lost: set[int] = set()
    for end in survey.ends:
        path = survey.path(end)
        if not survey.live[end]:
            for step in path:
                if not survey.live[step] and step not in lost:
                    lost.add(step)
                    yield step, 0.0, 0.0, 0.0
            continue
        estimated = path_estimates(
            [rewards[step] for step in path],
            [values[step] for step in path],
            [chosen[step] for step in path],
            gamma,
            gae_lambda,
        )
        for step, value, advantage in zip(path, *estimated, strict=True):
            yield step, survey.rewards[end], value, advantage
