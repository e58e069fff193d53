"""Trees with successes and failures, sampled tokens and real log-probabilities."""

import random

from agentcli.records.types import Outcome
from tiny_rollout import make_tree

S, F, T, E = Outcome.SUCCESS, Outcome.FAILURE, Outcome.TRUNCATED, Outcome.ERRORED
FORKED = ([None, 0, 1, 1, 3, None, 5, 0], {2: S, 4: F, 6: T, 7: E})
"""A shared prefix of two steps (leaves 2, 4), one of none (6), and an errored leaf (7)."""
GROUP = ([None, 0, None, 2, None, 4, 5, None], {1: S, 3: F, 6: S, 7: F})
HOPELESS = ([None, 0, None], {1: F, 2: T})
SOLVED = ([None, 0, None], {1: S, 2: S})
PATHS = {"FORKED": {2: [0, 1, 2], 4: [0, 1, 3, 4], 6: [5, 6]}, "GROUP": {1: [0, 1], 3: [2, 3], 6: [4, 5, 6], 7: [7]}}
"""The trajectories written out."""


def pair_tree(number, shape, model, tokenizer, seed=0):
    parents, outcomes = shape
    tree = make_tree(number, parents, model, tokenizer, random.Random(seed + number))
    for step in tree.steps:
        step.outcome = outcomes.get(step.id)
    return tree
