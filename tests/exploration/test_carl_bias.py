"""Where CARL's expected rewards are unbiased and where they are not: trees of the real algorithm, a policy whose value is known."""

import math
import random
from statistics import fmean, stdev

from agentcli.credit import carl
from agentcli.policies.protocol import Reply, Request
from agentcli.prompts.tagged import write_tagged
from agentcli.records.types import Credit, StopReason
from scripted import Answering
from word_trees import grow_word

TREES = 1500
RARE = 0.2


class Gambler(Answering):
    """Wins at once with probability .2, else says "a"; after that "die" or "b" with 1/2 each, worth nothing. Its value is .2."""

    async def respond(self, request: Request) -> Reply:
        first, second, chance = ("die", "b", 0.5) if request.moment.copies[0].actions else ("win", "a", RARE)
        rare = random.Random(request.seed).random() < chance
        text = write_tagged("think", "go", first if rare else second)
        surprise = -math.log(chance if rare else 1 - chance)
        return Reply(text=text, token_ids=(1,), logprobs=(-surprise,), prompt_tokens=1, stop=StopReason.STOP)


def credits(roots: int, leaves: int) -> list[Credit]:
    """carl's credit of many trees of one task, each with a seed of its own."""
    switches = carl.CarlSettings(update="all")
    found = []
    for seed in range(TREES):
        tree = grow_word("carl", Gambler(), max_steps=2, seed=seed, roots=roots, leaves=leaves)
        found.append(carl.assign(tree, switches))
    return found


def deviation(values: list[float], truth: float) -> float:
    """z of the mean."""
    return (fmean(values) - truth) / (stdev(values) / math.sqrt(len(values)))


def test_forks_that_do_not_depend_on_the_sampled_actions_leave_it_unbiased() -> None:
    """Two trajectories from scratch, whatever they did: E[R(root)] = .2. A sample is part of its own baseline: with n siblings the
    advantage is (1 - 1/n) of the gain in expectation, with two siblings half of 1 - .2 for the winning action."""
    found = credits(roots=2, leaves=2)
    assert abs(deviation([credit.steps[0].parts["baseline"] for credit in found], RARE)) < 3
    gains = [credit.steps[0].parts for credit in found]
    won = [parts["expected"] - parts["baseline"] for parts in gains if parts["expected"] == 1.0]
    assert abs(deviation(won, (1 - RARE) / 2)) < 3


def test_algorithm_1_stops_early_where_nothing_rare_was_sampled_and_so_is_biased() -> None:
    """One trajectory, then one fork at the largest H/n. A first "win" is rare, ends the trajectory, and the root is forked: the
    estimate is (1 + .2) / 2 on average. A first "a" is no surprise (.22 nats against log 2 after it): the root keeps its one child
    and the estimate 0. Together .2 * .6 = .12, not .2."""
    found = credits(roots=1, leaves=2)
    values = [credit.steps[0].parts["expected"] for credit in found]
    baselines = [credit.steps[0].parts["baseline"] for credit in found]
    assert set(values) <= {0.0, 1.0}
    assert abs(deviation(baselines, RARE * (1 + RARE) / 2)) < 3
    assert deviation(baselines, RARE) < -8
