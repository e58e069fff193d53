"""From trees and credit to training rows: what was sampled, with one number that says
how good it was.

Both files are streamed side by side, tree n with credit n. This module knows no
tokenizer and no model: a row still holds its prompt as text, and exactly the token ids
and log-probabilities that were sampled.

A row's `share` is what aggregation `step` (RewardFlow, eq. 11: mean over trajectories
of mean over steps of mean over tokens) needs. A trajectory is a leaf that is not
errored; T of it is the number of steps on its path that are trained. Each trained step
gets 1/T from every trajectory it lies on, so a shared prefix belongs to all its
trajectories, and a step that lies only on errored ones has share 0. A step that occurs
k times in the credit (prefix: duplicate) splits its share in k equal parts. Shares sum
to the number of trajectories; dividing by their sum (`losses.token_weights`) gives the
mean.

CARL's selective update (003 eq. 13) is a choice of rows, whatever assigned the credit:
`update: critical` keeps steps whose state was left by another step too, errored
trajectories aside.

A row keeps the temperature it was sampled at: every probability of the loss is one of
softmax(logits / T). A greedy response has no such distribution. Stored
log-probabilities of another temperature serve only where the trainer computes them
anew.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import msgspec

from agentcli.errors import DataError
from agentcli.records.faults import shown
from agentcli.records.files import read_numbered
from agentcli.records.trees import leaves, path, validate_credit, validate_tree
from agentcli.records.types import (
    INHERITED,
    Credit,
    Outcome,
    Step,
    StepCredit,
    StopReason,
    Tree,
)


@dataclass(slots=True, frozen=True)
class Row:
    """One sampled response and its credit."""

    place: str
    """File, line and step, for messages."""
    prompt: str
    token_ids: list[int]
    logprobs: list[float]
    advantage: float
    weight: float
    share: float
    temperature: float = 1.0
    """T that the response was sampled at; above 0."""
    logprob_temperature: float = 1.0
    """T of the distribution that `logprobs` are of."""


class RowCounts(msgspec.Struct, kw_only=True):
    """What became of the credit's entries."""

    trees: int = 0
    trajectories: int = 0
    """Leaves that are not errored."""
    rows: int = 0
    unassigned: int = 0
    """Left out: advantage None."""
    inherited: int = 0
    """Of the rows: only children with the advantage of the step before."""
    not_critical: int = 0
    """Left out: no sibling."""
    without_tokens: int = 0
    """Left out: no model was asked (an error before sampling)."""


def read_rows(
    trees: Path, credit: Path, update: str = "assigned", recompute: bool = False
) -> tuple[list[Row], RowCounts]:
    """All rows that `update` (TrainSettings.update) chooses and that have sampled
    tokens, in file order, and the count of what was left out.

    Raises DataError with file and line when the two files do not belong together, when
    the credit is not all of one method, when an advantage or weight is not finite, when
    a tree was not sampled from a model, when a response is greedy, and when its
    log-probabilities are not those of the distribution that it was sampled from, unless
    the trainer is to `recompute` them.
    """
    rows: list[Row] = []
    method: str | None = None
    counts = RowCounts()
    for (line, tree), (credit_line, given) in _aligned(trees, credit):
        place = f"{trees}:{line}"
        validate_tree(tree, place)
        validate_credit(given, tree, f"{credit}:{credit_line}")
        _check_sampled(tree, place)
        method = method or given.method
        if given.method != method:
            raise DataError(
                f"{credit}:{credit_line}: method: is {shown(given.method)}, of the "
                f"lines before {shown(method)}; run assign-credit again"
            )
        entries = _trained_entries(
            tree, given, f"{credit}:{credit_line}", counts, update
        )
        shares = _shares(tree, {entry.step for entry in entries})
        repeats = Counter(entry.step for entry in entries)
        counts.trees += 1
        counts.trajectories += sum(
            leaf.outcome != Outcome.ERRORED for leaf in leaves(tree)
        )
        for entry in entries:
            step = tree.steps[entry.step]
            _check_distribution(step, f"{place}: steps[{step.id}]", recompute)
            rows.append(
                Row(
                    place=f"{place}: steps[{step.id}]",
                    prompt=step.prompt,
                    token_ids=step.token_ids,
                    logprobs=step.logprobs,
                    advantage=float(entry.advantage or 0.0),
                    weight=entry.weight,
                    share=shares.get(step.id, 0.0) / repeats[step.id],
                    temperature=step.temperature,
                    logprob_temperature=step.logprob_temperature,
                )
            )
    counts.rows = len(rows)
    return rows, counts


def _aligned(
    trees: Path, credit: Path
) -> Iterator[tuple[tuple[int, Tree], tuple[int, Credit]]]:
    """Every tree with its credit, each with its line."""
    pairs = zip_longest(read_numbered(trees, Tree), read_numbered(credit, Credit))
    for number, (tree, given) in enumerate(pairs):
        if tree is None or given is None:
            short, long = (trees, credit) if tree is None else (credit, trees)
            raise DataError(
                f"{short}: ends after {number} records, {long} goes on; run "
                "assign-credit again"
            )
        yield tree, given


def _check_sampled(tree: Tree, place: str) -> None:
    ends = [leaf for leaf in leaves(tree) if leaf.outcome != Outcome.ERRORED]
    # Where the very first prompt was too long, the policy was never asked: nothing is
    # missing.
    answered = any(
        leaf.parent is not None or leaf.stop is not StopReason.OVERLONG for leaf in ends
    )
    if answered and not any(step.token_ids for step in tree.steps):
        raise DataError(
            f"{place}: task {tree.task.id}: no step has token_ids: its policy gave "
            "none (an endpoint must return token ids and log-probabilities, as vLLM "
            "does; expert, search and random have none); sample with --policy "
            "transformers or such an endpoint, or use `agentcli sft` for "
            "demonstrations"
        )


def _check_distribution(step: Step, place: str, recompute: bool) -> None:
    if step.temperature == 0:
        raise DataError(
            f"{place}.temperature: 0: a greedy response has no behaviour policy to "
            "take a ratio to; sample with --temperature above 0"
        )
    if step.logprob_temperature != step.temperature and not recompute:
        raise DataError(
            f"{place}.logprob_temperature: sampled at temperature "
            f"{step.temperature:g}, but its log-probabilities are those at "
            f"{step.logprob_temperature:g}; compute them anew with --set "
            "train.recompute_logprobs=true, or sample from a server that returns "
            "processed log-probabilities (policy.endpoint.logprobs=processed)"
        )


def _trained_entries(
    tree: Tree, given: Credit, place: str, counts: RowCounts, update: str
) -> list[StepCredit]:
    critical = _critical(tree) if update == "critical" else None
    entries = []
    for position, entry in enumerate(given.steps):
        where = f"{place}: steps[{position}]"
        if not (math.isfinite(entry.weight) and entry.weight >= 0):
            raise DataError(
                f"{where}.weight: {entry.weight} is not a finite number >= 0"
            )
        inherits = (
            update == "all" and entry.advantage is None and INHERITED in entry.parts
        )
        if inherits:
            entry = msgspec.structs.replace(entry, advantage=entry.parts[INHERITED])
        if entry.advantage is None:
            counts.unassigned += 1
        elif not math.isfinite(entry.advantage):
            raise DataError(f"{where}.advantage: {entry.advantage} is not finite")
        elif not tree.steps[entry.step].token_ids:
            counts.without_tokens += 1
        elif critical is not None and entry.step not in critical:
            counts.not_critical += 1
        else:
            counts.inherited += inherits
            entries.append(entry)
    return entries


def _critical(tree: Tree) -> set[int]:
    """Steps with a sibling (003 eq. 13), of those that lead to a leaf that is not
    errored.
    """
    alive = {
        step.id
        for leaf in leaves(tree)
        if leaf.outcome != Outcome.ERRORED
        for step in path(tree, leaf)
    }
    children = Counter(tree.steps[step].parent for step in alive)
    return {step for step in alive if children[tree.steps[step].parent] > 1}


def _shares(tree: Tree, trained: set[int]) -> dict[int, float]:
    shares: dict[int, float] = {}
    for leaf in leaves(tree):
        if leaf.outcome == Outcome.ERRORED:
            continue
        steps = [step.id for step in path(tree, leaf) if step.id in trained]
        for step in steps:
            shares[step] = shares.get(step, 0.0) + 1 / len(steps)
    return shares
