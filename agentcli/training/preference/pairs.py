"""Makes preference pairs from trees: a success and a failure of the same tree.

These are the pairs of ETO (Song et al. 2024). Failed and truncated trajectories both
count as failures; errored ones are not used. This module uses no tokenizer and no
model: a pair contains the steps as they were sampled.

Steps that both trajectories begin with (the shared prefix of a tree, or the same
response to the same prompt in separate samples) are left out of a pair: they add the
same number to both log-probabilities, so neither DPO's loss nor its gradient depends on
them. A pair is left out and counted if one trajectory is only the beginning of the
other.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from agentcli.errors import DataError
from agentcli.records.files import derive_seed
from agentcli.records.trees import path, read_trees
from agentcli.records.types import Outcome, Step, StopReason

FAILED = (Outcome.FAILURE, Outcome.TRUNCATED)


class Pair(NamedTuple):
    """Two trajectories of one tree, from the first step in which they differ."""

    place: str
    """File and line, task and leaves, for error messages."""
    chosen: list[Step]
    rejected: list[Step]
    task: str
    """Task id of the tree."""
    line: int
    """The tree's line in its file."""


class PairCounts(msgspec.Struct, kw_only=True):
    """Numbers of trees, trajectories and pairs, by how they were used."""

    trees: int = 0
    successes: int = 0
    """Number of trajectories."""
    failures: int = 0
    """Number of trajectories, truncated ones included."""
    trees_without_pair: int = 0
    """Trees with only successes, only failures, or neither."""
    pairs: int = 0
    pairs_beyond_limit: int = 0
    """Left out: more than pairs_per_task in a tree."""
    pairs_alike: int = 0
    """Left out: one trajectory equals the other or its beginning."""
    shared_steps: int = 0
    """Steps left out of both sides of the pairs."""


def read_pairs(
    trees: Path,
    pairs_per_task: int,
    seed: int,
    counts: PairCounts | None = None,
    *,
    sampled: bool = True,
) -> Iterator[Pair]:
    """Streams the pairs of all trees in file order, at most `pairs_per_task` of each.

    What is left out is counted. Which of a tree's pairs are taken depends only on
    `seed`, its task and its line. The trajectories of a tree are used as evenly as
    their numbers allow. Raises DataError with file and line for a file that is not a
    trees file and, if all must be `sampled`, for a step without token ids.
    """
    counts = counts if counts is not None else PairCounts()
    for line, tree in read_trees(trees):
        place = f"{trees}:{line}"
        won = [step for step in tree.steps if step.outcome == Outcome.SUCCESS]
        lost = [step for step in tree.steps if step.outcome in FAILED]
        counts.trees += 1
        counts.successes += len(won)
        counts.failures += len(lost)
        counts.trees_without_pair += not (won and lost)
        counts.pairs_beyond_limit += max(0, len(won) * len(lost) - pairs_per_task)
        chooser = np.random.default_rng(derive_seed("pairs", seed, tree.task.id, line))
        for success, failure in _evenly(chooser, won, lost)[:pairs_per_task]:
            chosen = path(tree, success)
            # If a prompt was too long to be answered, the policy produced nothing.
            rejected = [
                step
                for step in path(tree, failure)
                if step.stop is not StopReason.OVERLONG
            ]
            if sampled:
                _check_sampled([*chosen, *rejected], place)
            shared = _shared(chosen, rejected)
            if shared in (len(chosen), len(rejected)):
                # One trajectory equals the other or its beginning.
                counts.pairs_alike += 1
                continue
            counts.pairs += 1
            counts.shared_steps += shared
            where = f"{place}: task {tree.task.id}: leaves {success.id}, {failure.id}"
            yield Pair(where, chosen[shared:], rejected[shared:], tree.task.id, line)


def _evenly(
    chooser: np.random.Generator,
    won: list[Step],
    lost: list[Step],
) -> list[tuple[Step, Step]]:
    """All combinations, ordered so that trajectories are used equally often."""
    if not (won and lost):
        return []
    wins = [won[index] for index in chooser.permutation(len(won))]
    losses = [lost[index] for index in chooser.permutation(len(lost))]
    # After this many pairs the same combinations would repeat: shift one side.
    period = math.lcm(len(wins), len(losses))
    combinations = []
    for index in range(len(wins) * len(losses)):
        success = wins[index % len(wins)]
        failure = losses[(index + index // period) % len(losses)]
        combinations.append((success, failure))
    return combinations


def _shared(one: list[Step], other: list[Step]) -> int:
    """Number of leading steps that both have: same prompt, same response."""
    shared = 0
    for first, second in zip(one, other, strict=False):
        same_response = first.token_ids == second.token_ids
        if not first.token_ids:
            same_response = same_response and first.response == second.response
        if first.request != second.request or not same_response:
            break
        shared += 1
    return shared


def _check_sampled(steps: list[Step], place: str) -> None:
    """Raises DataError for a step without token ids."""
    for step in steps:
        if not step.token_ids:
            raise DataError(
                f"{place}: steps[{step.id}].token_ids: empty, so that there is "
                "nothing to compare probabilities of (no model was asked, or its "
                "server gives no token ids); use `agentcli sft RUN` for demonstrations"
            )
