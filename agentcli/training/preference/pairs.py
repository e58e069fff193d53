"""From trees to preference pairs: a trajectory that succeeded and one of the same tree
that did not (ETO, Song et al. 2024).

A failed and a truncated trajectory are failures alike; an errored one is neither. This
module knows no tokenizer and no model: a pair holds the steps as they were sampled.

Steps that both trajectories begin with (the shared prefix of a tree, or the same
response to the same prompt in separate samples) are left out of a pair: they add the
same number to both log-probabilities, so that neither DPO's loss nor its gradient
depends on them. A pair is left out, and counted, when one trajectory is nothing but the
beginning of the other.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from agentcli.errors import DataError
from agentcli.records.files import derive_seed, read_numbered
from agentcli.records.trees import path, validate_tree
from agentcli.records.types import Outcome, Step, StopReason, Tree

FAILED = (Outcome.FAILURE, Outcome.TRUNCATED)


class Pair(NamedTuple):
    """Two trajectories of one tree, from the first step in which they differ."""

    place: str
    """File and line, task and leaves, for messages."""
    chosen: list[Step]
    rejected: list[Step]


class PairCounts(msgspec.Struct, kw_only=True):
    """What became of the trees."""

    trees: int = 0
    successes: int = 0
    """Trajectories."""
    failures: int = 0
    """Trajectories, truncated ones included."""
    trees_without_pair: int = 0
    """Nothing but successes, nothing but failures, or neither."""
    pairs: int = 0
    pairs_beyond_limit: int = 0
    """Left out: more than pairs_per_task of a tree."""
    pairs_alike: int = 0
    """Left out: one trajectory is the other, or its beginning."""
    shared_steps: int = 0
    """Steps left out of both sides of the pairs."""


def read_pairs(
    trees: Path, pairs_per_task: int, seed: int, counts: PairCounts | None = None
) -> Iterator[Pair]:
    """Stream the pairs of all trees in file order, at most `pairs_per_task` of each,
    counting what is left out.

    Which pairs of a tree are taken depends on `seed`, its task and its line, and on
    nothing else in the file; all trajectories of a tree occur in them as evenly as
    their numbers allow. Raises DataError with file and line for a file that is no trees
    file, and for a step without token ids (no model was asked, or its server does not
    say them).
    """
    counts = counts if counts is not None else PairCounts()
    for number, tree in read_numbered(trees, Tree):
        place = f"{trees}:{number}"
        validate_tree(tree, place)
        won = [step for step in tree.steps if step.outcome == Outcome.SUCCESS]
        lost = [step for step in tree.steps if step.outcome in FAILED]
        counts.trees += 1
        counts.successes += len(won)
        counts.failures += len(lost)
        counts.trees_without_pair += not (won and lost)
        counts.pairs_beyond_limit += max(0, len(won) * len(lost) - pairs_per_task)
        chooser = np.random.default_rng(
            derive_seed("pairs", seed, tree.task.id, number)
        )
        for success, failure in _evenly(chooser, won, lost)[:pairs_per_task]:
            chosen, rejected = path(tree, success), _answered(path(tree, failure))
            _check_sampled([*chosen, *rejected], place)
            shared = _shared(chosen, rejected)
            if shared in (len(chosen), len(rejected)):
                counts.pairs_alike += 1
                continue
            counts.pairs += 1
            counts.shared_steps += shared
            where = f"{place}: task {tree.task.id}: leaves {success.id}, {failure.id}"
            yield Pair(where, chosen[shared:], rejected[shared:])


def _evenly(
    chooser: np.random.Generator, won: list[Step], lost: list[Step]
) -> list[tuple[Step, Step]]:
    """All combinations, both sides shuffled, ordered so that any first few use every
    trajectory about equally often.
    """
    if not (won and lost):
        return []
    wins, losses = (
        [side[index] for index in chooser.permutation(len(side))]
        for side in (won, lost)
    )
    period = math.lcm(
        len(wins), len(losses)
    )  # after it the two sides meet again: shift one against the other
    return [
        (wins[index % len(wins)], losses[(index + index // period) % len(losses)])
        for index in range(len(wins) * len(losses))
    ]


def _shared(one: list[Step], other: list[Step]) -> int:
    """How many steps the two trajectories have in common from the start: same prompt,
    same tokens.
    """
    for index, (first, second) in enumerate(zip(one, other, strict=False)):
        if first.id != second.id and (first.prompt, first.token_ids) != (
            second.prompt,
            second.token_ids,
        ):
            return index
    return min(len(one), len(other))


def _answered(steps: list[Step]) -> list[Step]:
    """Without a last step whose prompt was too long to be answered: the policy said
    nothing there.
    """
    return [step for step in steps if step.stop is not StopReason.OVERLONG]


def _check_sampled(steps: list[Step], place: str) -> None:
    for step in steps:
        if not step.token_ids:
            raise DataError(
                f"{place}: steps[{step.id}].token_ids: empty, so that there is "
                "nothing to compare probabilities of (no model was asked, or its "
                "server gives no token ids); use `agentcli sft` for demonstrations"
            )
