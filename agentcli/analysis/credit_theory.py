"""What theory says of the mean of a method's estimator.

Two closed forms for independent trajectories. An unbiased advantage gives the gradient
itself: rloo's (Kool et al. 2019), and ppo's with exact values (Schulman et al. 2016). In
a group of n outcomes of which k are successes, grpo's advantages are (1 - k/n) / s and
-(k/n) / s. So its mean is the gradient times

    E[ k (n - k) / (n^2 (s + 1e-6)) ] / (p (1 - p)),   k ~ Bin(n, p),

where s^2 = k (n - k) / (n (n - 1)); groups without spread, k = 0 or n, add nothing.

In a small tunnel the mean of any method is exact: all trees that can grow are grown, by
the real exploration, and credited, each with its probability.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from agentcli.analysis.policy_gradients import (
    Logits,
    MeasuredArm,
    appraise,
    deviation,
    objective_gradient,
)
from agentcli.analysis.tabular import Choose, Field, TabularPolicy
from agentcli.credit.group import EPSILON
from agentcli.credit.registry import known
from agentcli.records.credit_quality import Foretold
from agentcli.worlds.tunnel.exact import Row
from agentcli.worlds.tunnel.rules import Tunnel

MOST_TREES = 5000
"""More trees than this are not enumerated."""
GRPO_LIKE = ("grpo", "spark", "arpo")
"""They compare a trajectory's outcome within its group."""
RANDOM_GROWTH = ("treerl", "treerpo")
"""Methods that draw the states that they fork."""


async def foretell(
    field: Field, arm: MeasuredArm, logits: Logits, games: Counter[Tunnel]
) -> Foretold | None:
    """Scale and bias by theory; None where there is none.

    `games` are those that are played, with the number of their groups.
    """
    truths = {}
    for game in games:
        truths[game] = logits.vector(objective_gradient(arm, field.exact(game)))
    source = "closed form"
    mean: Row | None = None
    factors = closed_form(field, arm, games)
    if factors is not None:
        rows = [factors[game] * truth for game, truth in truths.items()]
        mean = _mean(rows, games)
    elif len(games) == 1:
        source = "all trees"
        mean = await enumerated(field, arm, logits, next(iter(games)))
    if mean is None:
        return None
    scale, bias = deviation(mean, _mean(list(truths.values()), games))
    return Foretold(source=source, scale=scale, bias=bias)


def _mean(rows: Sequence[Row], games: Counter[Tunnel]) -> Row:
    return np.average(rows, axis=0, weights=list(games.values()))


def closed_form(
    field: Field, arm: MeasuredArm, games: Iterable[Tunnel]
) -> dict[Tunnel, float] | None:
    """The scale of the estimator in each game; None where no closed form is at hand."""
    options = field.world.options
    switches = arm.switches
    independent = arm.rollout.method == "chain"
    if not independent or not _weighed_alike(field, arm):
        return None
    # The penalty is no part of the return whose gradient is compared.
    if options.knocks and switches.invalid_penalty:
        return None
    pays = options.reward == "end" or switches.outcome == "score"
    reward = switches.success_reward
    if pays and _is_unbiased(arm):
        return dict.fromkeys(games, reward)
    if arm.credit not in GRPO_LIKE or options.reward != "end":
        return None
    if getattr(switches, "form", "paper") != "paper" or switches.normalise != "std":
        return None
    leaves = arm.rollout.leaves
    factors = {}
    for game in games:
        factors[game] = grpo_factor(leaves, field.exact(game).success, reward)
    return factors


def _weighed_alike(field: Field, arm: MeasuredArm) -> bool:
    """Whether all steps weigh alike, also those of trajectories of other lengths."""
    options = field.world.options
    # Without these every game takes the same number of steps.
    waste = options.turns or options.looks or options.knocks
    return arm.aggregate != "step" or (options.wrong == "on" and not waste)


def _is_unbiased(arm: MeasuredArm) -> bool:
    switches = arm.switches
    if arm.credit == "ppo":
        # The objective is not discounted.
        return bool(switches.gamma == 1)
    if arm.credit != "rloo":
        return False
    if switches.form == "paper":
        return arm.rollout.leaves > 1
    # The release leaves a single trajectory as it is: REINFORCE without a baseline.
    return arm.rollout.leaves == 1 and switches.over == "trajectories"


def grpo_factor(leaves: int, success: float, reward: float = 1.0) -> float:
    """The scale of grpo's mean for groups of `leaves` and a probability of success."""
    total = 0.0
    for won in range(1, leaves):
        lost = leaves - won
        chance = math.comb(leaves, won) * success**won * (1 - success) ** lost
        std = reward * math.sqrt(won * lost / (leaves * (leaves - 1)))
        total += chance * reward * won * lost / (leaves**2 * (std + EPSILON))
    return total / (success * (1 - success))


class Script:
    """Goes through all sequences of draws, one a tree."""

    def __init__(self) -> None:
        self._draws: list[int] = []
        self._sizes: list[int] = []
        self._place = 0
        self.chance = 1.0
        """The probability of the present sequence."""
        self.trees = 1
        """About how many sequences there are, by the present one."""

    def chooser(self, _: int) -> Choose:
        """Draws what the script says, whatever the seed."""
        return self._choose

    def _choose(self, chances: Sequence[float]) -> int:
        if self._place == len(self._draws):
            self._draws.append(0)
            self._sizes.append(len(chances))
        index = self._draws[self._place]
        self._place += 1
        self.chance *= chances[index]
        self.trees *= len(chances)
        return index

    def advance(self) -> bool:
        """Goes to the next sequence; False after the last one."""
        self._place = 0
        self.chance = 1.0
        self.trees = 1
        while self._draws:
            # As an odometer: the last draw moves on, and those before it are repeated.
            draw = self._draws.pop() + 1
            size = self._sizes.pop()
            if draw < size:
                self._draws.append(draw)
                self._sizes.append(size)
                return True
        return False


async def enumerated(
    field: Field, arm: MeasuredArm, logits: Logits, game: Tunnel
) -> Row | None:
    """The exact mean of the estimator over all trees.

    None where there are more than MOST_TREES, or where the growth draws something
    itself. The order in which a tree asks its policy depends on the replies alone, so a
    sequence of draws is a tree.
    """
    if _draws_itself(arm):
        return None
    script = Script()
    policy = TabularPolicy(field.table, script.chooser)
    exact = field.exact(game)
    facts = known(arm.credit)
    total = np.zeros(logits.size)
    weight = 0.0
    trees = 0
    while True:
        tree = await field.grow(arm.rollout, 0, policy)
        trees += 1
        # A large tunnel ends at its first tree by the estimate, and by the count
        # where the first path was short.
        if max(trees, script.trees) > MOST_TREES:
            return None
        if facts.needs_values or facts.needs_scores:
            appraise(tree, game, exact)
        credit = arm.assign(tree, arm.switches)
        push, rows = logits.push(tree, credit, arm.aggregate)
        total += script.chance * push
        weight += script.chance * rows
        if not script.advance():
            # A mean over steps, made as long as a sum over a game (Pushes.length).
            return exact.steps * total / (weight or 1.0)


def _draws_itself(arm: MeasuredArm) -> bool:
    """Whether the growth of a tree depends on more than the policy's replies."""
    rollout = arm.rollout
    by_coin = str(getattr(rollout, "branch", "")).startswith("fixed")
    is_random = getattr(rollout, "criterion", "") == "random"
    return rollout.method in RANDOM_GROWTH or by_coin or is_random
