"""Reads trees for training: credited steps, rows of sampled steps, preference pairs.

Trees and credit are streamed in parallel, tree n with credit n. This module uses no
tokenizer and no model: a row still has its prompt as text, and exactly the token ids and
log-probabilities that were sampled.

A row's `share` is needed for aggregation `step` (RewardFlow, eq. 11: mean over
trajectories of mean over steps of mean over tokens). A trajectory is a leaf that is not
errored; its T is the number of steps on its path that are trained. Each trained step
gets 1/T from every trajectory that contains it, so a shared prefix belongs to all its
trajectories, and a step that is only on errored ones has share 0. If a step has one
entry per trajectory (prefix: duplicate), each entry gets the 1/T of its trajectory,
which is exactly eq. 11. If the entries are merged, one entry gets the sum, and its
advantage is their mean; this is the same if the trajectories are equally long. Shares
sum to the number of trajectories; dividing by their sum (`losses.token_weights`) gives
the mean.

A row keeps the temperature at which it was sampled: every probability in the loss
refers to softmax(logits / T). A greedy response has no such distribution. Stored
log-probabilities at another temperature can be used only if the trainer recomputes
them, and not in the importance weights of train.importance_cap.

A preference pair is a success and a failure of the same tree, as in ETO (Song et al.
2024), with the steps as they were sampled. Failed and truncated trajectories both count
as failures; errored ones are not used.

Steps that both trajectories begin with (the shared prefix of a tree, or the same
response to the same prompt in separate samples) are left out of a pair: they add the
same number to both log-probabilities, so neither DPO's loss nor its gradient depends on
them. A pair is left out and counted if one trajectory is only the beginning of the
other.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from agentcli.environments.protocol import Picture
from agentcli.errors import DataError
from agentcli.prompts.protocol import Exchange, Message
from agentcli.prompts.recorded import message_of, turns_before
from agentcli.records.faults import shown
from agentcli.records.files import derive_seed
from agentcli.records.pictures import folder_beside, read_picture
from agentcli.records.step_rows import first_trajectories
from agentcli.records.trees import (
    not_forked,
    path,
    read_trees,
    read_with_credit,
    unbroken_paths,
)
from agentcli.records.types import (
    INHERITED,
    Credit,
    Outcome,
    Step,
    StepCredit,
    StopReason,
    Tree,
)


class PictureShelf:
    """The pictures of trees; each is read once."""

    def __init__(self) -> None:
        self._pictures: dict[str, Picture] = {}

    def of(self, step: Step, trees: Path) -> tuple[Picture, ...]:
        """The pictures that the policy saw in a step of this trees file, in order.

        Raises DataError if one is missing or altered.
        """
        folder = folder_beside(trees)
        pictures = []
        for name in step.pictures or ():
            if name not in self._pictures:
                self._pictures[name] = Picture(read_picture(folder, name))
            pictures.append(self._pictures[name])
        return tuple(pictures)


def refuse_pictures(pictures: object, place: str, reader: str) -> None:
    """Raises DataError if there are pictures but their reader supports only text."""
    if pictures:
        raise DataError(
            f"{place}.pictures: {reader} reads texts only; learn from pictures with a "
            "model that sees, by sft or train.objective=policy-gradient"
        )


class CreditedStep(NamedTuple):
    """A step with one entry of its credit."""

    step: Step
    entry: StepCredit
    place: str
    """File, line and step of the tree, for error messages."""
    entry_place: str
    """The same for the entry of the credit."""
    trajectory: int
    """The first trajectory of the tree that contains the step, from 1."""


class TreeAndCredit(NamedTuple):
    """A tree with its credit, and where they are."""

    tree: Tree
    credit: Credit
    line: int
    """Line of the tree in its file."""
    place: str
    """File and line of the tree."""
    credit_place: str

    def steps(self) -> Iterator[CreditedStep]:
        """The entries of the credit in order, each with its step.

        Raises DataError for an advantage or weight that is not valid: a file refuses
        such numbers, but a method called from Python may give them.
        """
        trajectories = first_trajectories(self.tree)
        for position, entry in enumerate(self.credit.steps):
            place = f"{self.credit_place}: steps[{position}]"
            _check_numbers(entry, place)
            step = self.tree.steps[entry.step]
            yield CreditedStep(
                step=step,
                entry=entry,
                place=f"{self.place}: steps[{step.id}]",
                entry_place=place,
                trajectory=trajectories[step.id],
            )


def credited_trees(trees: Path, credit: Path) -> Iterator[TreeAndCredit]:
    """Streams every tree with its credit.

    Raises DataError for damaged files, and for files that do not belong together.
    """
    for (line, tree), (credit_line, given) in read_with_credit(trees, credit):
        place = f"{trees}:{line}"
        yield TreeAndCredit(tree, given, line, place, f"{credit}:{credit_line}")


@dataclass(slots=True, frozen=True)
class Row:
    """One sampled response and its credit."""

    place: str
    """File, line and step, for error messages."""
    message: Message
    """The prompt, with the pictures that the policy saw."""
    token_ids: list[int]
    logprobs: list[float]
    advantage: float
    weight: float
    share: float
    temperature: float = 1.0
    """T at which the response was sampled; above 0."""
    logprob_temperature: float = 1.0
    """T of the distribution that `logprobs` refer to."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """The parts of its credit."""
    tree: int = 0
    """Line of its tree in the file."""
    prompt_ids: list[int] | None = None
    """The prompt's tokens, where its text does not give them (Step.prompt_ids)."""
    trajectory: int = 0
    """The first trajectory of its tree that contains its step, from 1."""
    turns: tuple[Exchange, ...] = ()
    """What was said before in its conversation."""


class RowCounts(msgspec.Struct, kw_only=True):
    """Numbers of credit entries, by how they were used."""

    trees: int = 0
    trajectories: int = 0
    """Leaves that are not errored."""
    rows: int = 0
    rows_unassigned: int = 0
    """Left out: advantage None."""
    rows_inherited: int = 0
    """Rows of only children, which inherit the advantage of the step before."""
    rows_not_critical: int = 0
    """Left out: step without a sibling, or of the first phase and not forked."""
    rows_without_spread: int = 0
    """Left out: every advantage of the tree is 0."""
    rows_without_tokens: int = 0
    """Left out: no model was asked (an error before sampling)."""


def read_rows(
    trees: Path,
    credit: Path,
    update: str = "assigned",
    recompute: bool = False,
) -> tuple[list[Row], RowCounts]:
    """The rows selected by `update` (TrainSettings.update), in file order, and counts.

    Raises DataError with file and line if the two files do not belong together, if the
    credit mixes methods, if a tree was not sampled from a model, if a response is
    greedy, and if its log-probabilities are not those of the distribution it was
    sampled from, unless the trainer is to `recompute` them.
    """
    rows: list[Row] = []
    shelf = PictureShelf()
    method: str | None = None
    counts = RowCounts()
    for given in credited_trees(trees, credit):
        tree = given.tree
        check_sampled(tree, given.place)
        method = method or given.credit.method
        if given.credit.method != method:
            raise DataError(
                f"{given.credit_place}: method: is {shown(given.credit.method)}, of the "
                f"lines before {shown(method)}; run assign-credit with --overwrite"
            )
        trajectories = first_trajectories(tree)
        for entry, share in shared_entries(given, update, counts):
            step = tree.steps[entry.step]
            place = f"{given.place}: steps[{step.id}]"
            _check_distribution(step, place, recompute)
            rows.append(
                Row(
                    place=place,
                    message=message_of(step, shelf.of(step, trees)),
                    token_ids=step.token_ids,
                    logprobs=step.logprobs,
                    advantage=float(entry.advantage or 0.0),
                    weight=entry.weight,
                    share=share,
                    temperature=step.temperature,
                    logprob_temperature=step.logprob_temperature,
                    parts=entry.parts,
                    tree=given.line,
                    prompt_ids=step.prompt_ids or None,
                    trajectory=trajectories[step.id],
                    turns=turns_before(tree, step),
                )
            )
    counts.rows = len(rows)
    return rows, counts


def shared_entries(
    given: TreeAndCredit, update: str, counts: RowCounts
) -> Iterator[tuple[StepCredit, float]]:
    """The entries of a tree that are trained on, each with its share.

    `update` as in TrainSettings. Raises DataError for a number that is not valid.
    """
    trajectories = unbroken_paths(given.tree)
    entries = _trained_entries(given, update, counts)
    if update in ("critical", "forked"):
        critical = _critical_steps(trajectories)
        if update == "forked":
            critical -= _not_forked(given, trajectories)
        counts.rows_not_critical += sum(entry.step not in critical for entry in entries)
        entries = [entry for entry in entries if entry.step in critical]
    shares = _shares(trajectories, entries)
    counts.trees += 1
    counts.trajectories += len(trajectories)
    return zip(entries, shares, strict=True)


def check_sampled(tree: Tree, place: str) -> None:
    """Raises DataError for a tree without any token sampled from a model."""
    # If the very first prompt was too long, the policy was never asked, and nothing is
    # missing.
    answered = any(
        len(steps) > 1 or steps[-1].stop is not StopReason.OVERLONG
        for steps in unbroken_paths(tree)
    )
    if answered and not any(step.token_ids for step in tree.steps):
        raise DataError(
            f"{place}: task {tree.task.id}: no step has token_ids: its policy gave "
            "none (an endpoint must return token ids and log-probabilities, as vLLM "
            "does; expert, search and random have none); sample with --policy "
            "transformers or such an endpoint, or use `agentcli sft RUN` for "
            "demonstrations"
        )


def refuse_greedy(step: Step, place: str) -> None:
    """Raises DataError for a response for which no ratio is defined."""
    if step.temperature == 0:
        raise DataError(
            f"{place}.temperature: 0: a greedy response has no behaviour policy to "
            "take a ratio to; sample with --temperature above 0"
        )


def refuse_missing_part(
    parts: Mapping[str, float], name: str, place: str, remedy: str
) -> None:
    """Raises DataError if the credit at `place` has no part with this name to learn."""
    if name not in parts:
        raise DataError(
            f"{place}: has no part {shown(name)} to learn, but "
            f"{shown(', '.join(sorted(parts))) or 'none'}; {remedy}"
        )


def _check_distribution(step: Step, place: str, recompute: bool) -> None:
    """Raises DataError where the stored log-probabilities are of no use."""
    refuse_greedy(step, place)
    if step.logprob_temperature != step.temperature and not recompute:
        raise DataError(
            f"{place}.logprob_temperature: sampled at temperature "
            f"{step.temperature:g}, but its log-probabilities are those at "
            f"{step.logprob_temperature:g}; compute them anew with --set "
            "train.recompute_logprobs=true, without train.importance_cap, or sample "
            "from a server that returns processed log-probabilities "
            "(policy.endpoint.logprobs=processed)"
        )


def _check_numbers(entry: StepCredit, place: str) -> None:
    """Raises DataError for an advantage or weight that is not valid."""
    if not (math.isfinite(entry.weight) and entry.weight >= 0):
        raise DataError(f"{place}.weight: {entry.weight} is not a finite number >= 0")
    if entry.advantage is not None and not math.isfinite(entry.advantage):
        raise DataError(f"{place}.advantage: {entry.advantage} is not finite")


def _trained_entries(
    given: TreeAndCredit, update: str, counts: RowCounts
) -> list[StepCredit]:
    """The entries with an advantage and sampled tokens; the others are only counted."""
    entries = []
    for each in given.steps():
        entry = each.entry
        inherited = entry.parts.get(INHERITED) if update == "all" else None
        inherits = entry.advantage is None and inherited is not None
        if inherits:
            # An only child inherits the advantage of the step before it (CARL eq. 16).
            entry = msgspec.structs.replace(entry, advantage=inherited)
        if entry.advantage is None:
            counts.rows_unassigned += 1
        elif not each.step.token_ids:
            counts.rows_without_tokens += 1
        else:
            counts.rows_inherited += inherits
            entries.append(entry)
    # As in DAPO's dynamic sampling (section 3.2), such a tree leaves every mean, and
    # not only the gradient.
    if update == "spread" and not any(entry.advantage for entry in entries):
        counts.rows_without_spread += len(entries)
        return []
    return entries


def _critical_steps(trajectories: list[list[Step]]) -> set[int]:
    """The steps on these trajectories that have a sibling (CARL eq. 13)."""
    # Only trajectories that count: a sibling that errored compares with nothing.
    parents = {step.id: step.parent for steps in trajectories for step in steps}
    children = Counter(parents.values())
    return {step for step, parent in parents.items() if children[parent] > 1}


def _not_forked(given: TreeAndCredit, trajectories: list[list[Step]]) -> set[int]:
    """The steps of the first phase whose state was not forked (CARL Table 4 #1).

    Raises DataError for a tree that does not record its first phase (Tree.roots).
    """
    if given.tree.roots is None:
        raise DataError(
            f"{given.place}: roots: is not set, so the first phase is not known; take "
            "--update critical"
        )
    live = {step.id for steps in trajectories for step in steps}
    return not_forked(given.tree, live)


def _shares(trajectories: list[list[Step]], entries: list[StepCredit]) -> list[float]:
    """The share of every entry (RewardFlow eq. 11).

    A step has one entry that counts for all its trajectories, or one for each of them
    (`prefix: duplicate`).
    """
    repeats = Counter(entry.step for entry in entries)
    portions: dict[int, list[float]] = {step: [] for step in repeats}
    for steps in trajectories:
        trained = [step.id for step in steps if step.id in repeats]
        for step in trained:
            portions[step].append(1 / len(trained))
    taken = Counter[int]()
    shares = []
    for entry in entries:
        of_step = portions[entry.step]
        if repeats[entry.step] == len(of_step):
            # One entry per trajectory, in the order of the trajectories.
            shares.append(of_step[taken[entry.step]])
            taken[entry.step] += 1
        else:
            shares.append(sum(of_step) / repeats[entry.step])
    return shares


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
    tree: Tree


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
            trimmed = chosen[shared:], rejected[shared:]
            yield Pair(where, *trimmed, tree.task.id, line, tree)


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
        # Two empty lists are equal: where no model was asked, texts decide.
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
