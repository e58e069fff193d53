"""What a run's own trees say about which method can help it (docs/which-method.md).

Every share is of what the sentence beside it speaks of; nothing here is a prediction.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from agentcli.analysis.tree_measures import tells_entropy, token_entropy
from agentcli.credit.states import standing_states
from agentcli.evaluation.episodes import episodes
from agentcli.records.files import read_records
from agentcli.records.grouping import mean
from agentcli.records.runs import RunDirectory
from agentcli.records.siblings import Branching
from agentcli.records.trees import first_phase, leaves, path
from agentcli.records.types import Count, Outcome, Record, Step, Tree

OFTEN = 0.5
"""Above this share something is said of what recurs or is missing."""
FEW = 0.75
"""Below this share of distinct siblings: in pairs, half of the forks repeat."""
SOME = 0.05
"""Above this share of refused moves something is said of the penalty."""
SURE = 0.9
"""Probability above which the policy was sure of a response."""
FIRST = 0.9
"""Above this share of forks after the first step, no later state was forked."""


State = tuple[tuple[int, str], ...]
"""The state of each copy."""


class RunTraits(Record, kw_only=True):
    """Measurements of the trees of one run. None: there is nothing to measure."""

    trees: Count
    trajectories: Count
    """Those that are draws of the policy: without the leaves behind forks."""
    success: float
    lost: float | None
    """Share of the trees of several trajectories in which none succeeded."""
    won: float | None
    """Share of them in which all did."""
    steps: float
    """Mean length of a trajectory."""
    truncated: float
    """Share of the trajectories that ran out of steps."""
    shared: float
    """Share of the steps that leave a state which another trajectory of the tree left.
    """
    alike: float | None
    """Share of these whose state, as it is seen, stands for several true ones."""
    returned: float
    """Share of the steps that leave a state in which the trajectory was before."""
    sure: float | None
    """Share of the responses that the policy gave with a probability of 0.9 or more."""
    refused: float
    """Share of the moves that the world refused."""
    distinct: float | None
    """Share of distinct actions among siblings at forks."""
    forks: Count
    first_forks: float | None
    """Share of the forks that continue after the first step."""


class Trait(NamedTuple):
    """A measurement in words, and what follows from it."""

    measured: str
    share: float
    advice: str


def measure(trees: Iterable[Tree], redrawn: bool = False) -> RunTraits:
    """The measurements of some trees. Raises ValueError without any trajectory.

    `redrawn` as in `draws`.
    """
    groups: list[list[Outcome]] = []
    every: list[Outcome] = []
    lengths: list[int] = []
    counts = Counter[str]()
    branching = Branching()
    for tree in trees:
        drawn = [
            leaf for leaf in draws(tree, redrawn) if leaf.outcome is not Outcome.ERRORED
        ]
        if not drawn:
            continue
        every += [leaf.outcome for leaf in drawn if leaf.outcome is not None]
        # Credit compares all leaves, also those behind forks.
        ended = [leaf.outcome for leaf in leaves(tree) if leaf.outcome is not None]
        groups.append([one for one in ended if one is not Outcome.ERRORED])
        lengths += [len(path(tree, leaf)) for leaf in drawn]
        counts += _visits(tree, drawn)
        counts += _certainty(tree, drawn)
        for row in episodes(tree):
            counts["moves"] += row.moves
            counts["refused"] += row.inadmissible_steps
        branching.add(tree.steps)
    if not groups:
        raise ValueError("there is no trajectory that ended")
    # One trajectory alone has nothing to be compared with.
    several = [group for group in groups if len(group) > 1]
    wins = [[outcome is Outcome.SUCCESS for outcome in group] for group in several]
    forks = branching.forks.total()
    return RunTraits(
        trees=len(groups),
        trajectories=len(every),
        success=every.count(Outcome.SUCCESS) / len(every),
        lost=mean(not any(group) for group in wins),
        won=mean(all(group) for group in wins),
        steps=fmean(lengths),
        truncated=every.count(Outcome.TRUNCATED) / len(every),
        shared=counts["shared"] / max(1, counts["steps"]),
        alike=counts["alike"] / counts["shared"] if counts["shared"] else None,
        returned=counts["returned"] / max(1, counts["steps"]),
        sure=counts["sure"] / counts["sampled"] if counts["sampled"] else None,
        refused=counts["refused"] / max(1, counts["moves"]),
        distinct=branching.of_forks.share,
        forks=forks,
        first_forks=branching.forks[1] / forks if forks else None,
    )


def draws(tree: Tree, redrawn: bool = False) -> list[Step]:
    """The leaves of the trajectories that are draws of the policy.

    They are all leaves of a tree without forks, else those of its first phase: a leaf
    behind a fork is not an independent draw. Where siblings that repeated an action
    were `redrawn`, only the first trajectory is one.
    """
    ends = leaves(tree)
    if tree.roots is not None:
        first = first_phase(tree)
        ends = [leaf for leaf in ends if leaf.id in first]
    if redrawn:
        ends = [leaf for leaf in ends if path(tree, leaf)[0].id == 0]
    return ends


def redraws(run: RunDirectory) -> bool:
    """Whether the siblings in a rollout were drawn again to differ (rollout.distinct)."""
    record = run.finished("rollout")
    return record is not None and bool(record.settings["rollout"].get("distinct"))


class FromScratch(NamedTuple):
    """What an iteration's draws of the policy show."""

    success: float
    """Their share; 0 without any."""
    entropy: float | None
    """In nats a token. A training prints that of the tokens it trains on, which methods
    choose differently: carl takes those after the most uncertain states."""


def from_scratch(folder: Path) -> FromScratch:
    """Success and entropy of an iteration's draws; errored ones are left out."""
    wins: list[bool] = []
    steps: list[Step] = []
    run = RunDirectory(folder)
    redrawn = redraws(run)
    for tree in read_records(run.existing_trees(), Tree):
        drawn: dict[int, Step] = {}
        for leaf in draws(tree, redrawn):
            if leaf.outcome is not Outcome.ERRORED:
                wins.append(leaf.outcome is Outcome.SUCCESS)
                drawn |= {step.id: step for step in path(tree, leaf)}
        steps += drawn.values()
    return FromScratch(sum(wins) / max(1, len(wins)), token_entropy(steps))


def _visits(tree: Tree, drawn: Sequence[Step]) -> Counter[str]:
    """Over the steps of the draws: all, those that leave a state in which the same
    trajectory was before, those that leave one that another trajectory left too, and
    those of these whose state stands for several true ones (credit.state=exact).

    A state is that of all copies together, in the papers' form (credit.state=paper).
    """
    seen, true = standing_states(tree, "paper"), standing_states(tree, "exact")
    walks = []
    behind: dict[State, set[State]] = {}
    for leaf in drawn:
        steps = [step.id for step in path(tree, leaf)]
        # An imported tree may have no states: none is known to be shared.
        steps = [step for step in steps if any(seen[step].values())]
        walk = [tuple(sorted(seen[step].items())) for step in steps]
        for state, step in zip(walk, steps, strict=True):
            behind.setdefault(state, set()).add(tuple(sorted(true[step].items())))
        walks.append(walk)
    leaving = Counter(state for walk in walks for state in set(walk))
    counts = Counter[str]()
    for walk in walks:
        counts["steps"] += len(walk)
        counts["returned"] += len(walk) - len(set(walk))
        shared = [state for state in walk if leaving[state] > 1]
        counts["shared"] += len(shared)
        counts["alike"] += sum(len(behind[state]) > 1 for state in shared)
    return counts


def _certainty(tree: Tree, drawn: Sequence[Step]) -> Counter[str]:
    """Over the steps of the draws: those that were sampled, and those of them that the
    policy was sure of.
    """
    counts = Counter[str]()
    for leaf in drawn:
        for step in path(tree, leaf):
            if tells_entropy(step):
                counts["sampled"] += 1
                counts["sure"] += math.fsum(step.logprobs) >= math.log(SURE)
    return counts


RULES: tuple[tuple[str, str, Callable[[float], bool], str], ...] = (
    (
        "success",
        "success of a draw",
        lambda share: share == 0,
        "nothing to reinforce yet: imitate first",
    ),
    (
        "lost",
        "groups without any success",
        lambda share: share > OFTEN,
        "no advantage within them but penalties: more imitation, easier tasks or more "
        "leaves come before any method",
    ),
    (
        "won",
        "groups with nothing but success",
        lambda share: share > OFTEN,
        "they teach nothing either: take harder tasks",
    ),
    (
        "truncated",
        "trajectories that ran out of steps",
        lambda share: share > OFTEN,
        "the horizon may be too short: raise --max-steps and see",
    ),
    (
        "shared",
        "steps from states that others left too",
        lambda share: share > OFTEN,
        "gigpo or rewardflow, if what is seen says all that matters",
    ),
    (
        "alike",
        "of these, states that look alike and are not",
        lambda share: share > OFTEN,
        "what is seen does not say all: rewardflow judges them as one; in a simulator, "
        "credit.state=exact does not",
    ),
    ("returned", "steps from states seen before", lambda _: False, ""),
    (
        "sure",
        "responses given with probability 0.9 or more",
        lambda share: share > OFTEN,
        "if they are right, they decide little: where updates are what costs, carl trains "
        "mostly the others",
    ),
    (
        "refused",
        "refused moves",
        lambda share: share > SOME,
        "keep their penalty outside the division: credit.penalty=outside",
    ),
    (
        "distinct",
        "distinct actions at forks",
        lambda share: share < FEW,
        "forks buy the same action again; rollout.distinct draws others, which has helped "
        "nowhere yet",
    ),
    (
        "first_forks",
        "forks right after the first step",
        lambda share: share >= FIRST,
        "no later state was forked: fewer tags in the demonstrations, or carl",
    ),
)
"""Field, its name, when something is said, and what. docs/which-method.md has the
study or the algebra behind each sentence.
"""


def traits(of: RunTraits) -> Iterator[Trait]:
    """Every measurement in words, with what follows from it."""
    for field, name, speaks, advice in RULES:
        value = getattr(of, field)
        if value is not None:
            yield Trait(name, value, advice if speaks(value) else "")
