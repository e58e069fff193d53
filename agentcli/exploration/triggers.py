"""Triggers for branching: what the policy says, a coin, or the entropy.

A trigger is called once for each state that a step led to, parents first. Entropies
come from the log-probabilities stored when the step was sampled; nothing is computed
again. They must be those of the distribution that the step was sampled from.
"""

import math
import random
from collections.abc import Callable

from agentcli.errors import UsageError
from agentcli.exploration.actor import Actor
from agentcli.exploration.nodes import Node, spelled
from agentcli.records.files import derive_seed
from agentcli.records.section import Finite, Section
from agentcli.records.types import Step

Trigger = Callable[[Node], bool]

BY_ENTROPY = "forks by the entropy of responses, and greedy ones have none"
"""Why a method that does so needs sampled responses (RolloutSettings.needs_chance)."""


class EntropySettings(Section, kw_only=True):
    """Branch where base + weight * dH > threshold (CARL eq. 28).

    dH is H minus the H of the trajectory's first step, in nats per token and not
    normalised by the vocabulary size.
    """

    base: Finite = 0.5
    """alpha: the score of a step without a change in entropy."""
    weight: Finite = 0.2
    """beta: the weight of the change in entropy."""
    threshold: Finite = 0.5
    """tau: the score above which to branch."""


def surprise(step: Step, instead: str) -> float | None:
    """-log pi(Y | s) / |Y| of the sampled response, in nats per token.

    None for a response without text and tokens. It is a one-sample estimate of the
    action entropy (CARL eq. 7-8). Raises UsageError, which says what to use `instead`,
    if the policy gives no log-probabilities, or those of another distribution than it
    samples from.
    """
    if not step.logprobs:
        if not step.response:
            return None
        raise UsageError(
            "entropies need log-probabilities and this policy gives none; use one "
            f"that does (--policy transformers) or {instead}"
        )
    stored = step.logprob_temperature
    # Eq. 6 takes the expectation under the policy that acts. At another temperature,
    # -log pi is not a sample of its entropy.
    if stored != step.temperature:
        raise UsageError(
            "entropies are those of the sampled distribution, at temperature "
            f"{step.temperature:g}, and this policy's log-probabilities are those at "
            f"{stored:g}; use --temperature {stored:g}, or a server that returns "
            f"processed ones (policy.endpoint.logprobs=processed), or {instead}"
        )
    # Eq. 8: per token, or long responses would always be the most surprising.
    return -math.fsum(step.logprobs) / len(step.logprobs)


def trigger(branch: str, entropy: EntropySettings, actor: Actor) -> Trigger:
    """The trigger that `rollout.branch` names: explore, fixed:P or entropy.

    Raises UsageError for any other, and for a P outside [0, 1].
    """
    probability = probability_of(branch)
    if probability is not None:
        return coin(probability, actor)
    if branch == "entropy":
        return rising_entropy(entropy, "--branch explore")
    return lambda node: node.explores  # SPARK eq. 5


def probability_of(branch: str) -> float | None:
    """P of the trigger fixed:P; None for explore and entropy.

    Raises UsageError for any other.
    """
    if branch in ("explore", "entropy"):
        return None
    name, _, value = branch.partition(":")
    try:
        probability = float(value)
    except ValueError:
        probability = -1.0
    # NaN fails this comparison too, and is refused.
    if name != "fixed" or not 0 <= probability <= 1:
        raise UsageError(
            f"rollout.branch is {branch!r}; use explore, or fixed:P with P from 0 to "
            "1, or entropy"
        )
    return probability


def coin(probability: float, actor: Actor) -> Trigger:
    """Branches with a fixed probability (SPARK Table 4)."""

    def throw(node: Node) -> bool:
        # Seeded by the state, so that the order of states does not matter.
        seed = derive_seed("branch", actor.seed, actor.task.id, spelled(node.lineage))
        return random.Random(seed).random() < probability

    return throw


def rising_entropy(settings: EntropySettings, instead: str) -> Trigger:
    """Branches where entropy rose enough since the trajectory's first step."""
    first_entropies: dict[int, float] = {}

    def rises(node: Node) -> bool:
        if node.step is None:
            return False
        entropy = surprise(node.step, instead)
        if entropy is None:
            return False
        # Parents come first, so the first entropy is that of the first step that has
        # one.
        first = first_entropies.setdefault(node.lineage[0], entropy)
        # alpha + beta * (H_t - H_initial)
        score = settings.base + settings.weight * (entropy - first)  # CARL eq. 28
        return score > settings.threshold

    return rises
