"""Where a trajectory branches: by what the policy says, by a coin, or by its entropy.

A trigger looks at the state that a step led to, once, parents first. Entropies come
from the log-probabilities that were stored when the step was sampled; nothing is
computed a second time. They must be those of the distribution it was sampled from.
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


class EntropySettings(Section, kw_only=True):
    """Branch after a step where base + weight * dH > threshold (003 eq. 28).

    dH is H - H of the trajectory's first step, in nats per token, not normalised by a
    vocabulary.
    """

    base: Finite = 0.5
    """alpha."""
    weight: Finite = 0.2
    """beta."""
    threshold: Finite = 0.5
    """tau."""


def surprise(step: Step, instead: str) -> float:
    """-log pi(Y | s) / |Y| of the sampled response, in nats per token.

    This is one draw of the action entropy (003 eq. 7-8). Raises UsageError, saying what
    to use `instead`, where the policy gives no log-probabilities, or those of another
    distribution than the one it samples from.
    """
    if not step.logprobs:
        raise UsageError(
            "entropies need log-probabilities and this policy gives none; use one "
            f"that does (--policy transformers) or {instead}"
        )
    if step.temperature == 0:
        raise UsageError(
            "a greedy response has no entropy; sample with --temperature above 0, or "
            f"use {instead}"
        )
    stored = step.logprob_temperature
    if stored != step.temperature:
        raise UsageError(
            "entropies are those of the sampled distribution, at temperature "
            f"{step.temperature:g}, and this policy's log-probabilities are those at "
            f"{stored:g}; use --temperature {stored:g}, or a server that returns "
            f"processed ones (policy.endpoint.logprobs=processed), or {instead}"
        )
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
    return lambda node: node.explores  # eq. 5 of 000


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
    # A NaN is in no interval, and refused.
    if name != "fixed" or not 0 <= probability <= 1:
        raise UsageError(
            f"rollout.branch is {branch!r}; use explore, or fixed:P with P from 0 to "
            "1, or entropy"
        )
    return probability


def coin(probability: float, actor: Actor) -> Trigger:
    """Branches with a probability, thrown from the state's own seed (000 Table 4)."""

    def throw(node: Node) -> bool:
        # The state's own seed: in which order states are reached changes nothing.
        seed = derive_seed("branch", actor.seed, actor.task.id, spelled(node.lineage))
        return random.Random(seed).random() < probability

    return throw


def rising_entropy(settings: EntropySettings, instead: str) -> Trigger:
    """True of a step whose entropy is above that of the trajectory's first."""
    first_entropies: dict[int, float] = {}

    def rises(node: Node) -> bool:
        if node.step is None:
            return False
        entropy = surprise(node.step, instead)
        # Parents come first, so a trajectory's first step is compared with itself.
        first = first_entropies.setdefault(node.lineage[0], entropy)
        score = settings.base + settings.weight * (entropy - first)  # 003 eq. 28
        return score > settings.threshold

    return rises
