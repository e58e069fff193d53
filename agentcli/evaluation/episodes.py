"""Turns trees into episodes: the counts of each trajectory, from which metrics follow.

A response that acts in several copies of the environment is one step of as many moves.
A step in one environment is one move, in copy 1, as in credit.dpepo. A move may be
repeated or inadmissible; a response may be malformed or tagged.
"""

from collections.abc import Iterable, Iterator, Sequence

from agentcli.records.siblings import was_sampled
from agentcli.records.trees import acts_by_copy, paths
from agentcli.records.types import (
    Episode,
    Move,
    Outcome,
    Step,
    Tree,
    Validity,
)


def episodes(tree: Tree) -> Iterator[Episode]:
    """One Episode per trajectory, in the order of the tree's leaves.

    The first carries the tree's ledger.
    """
    for sample, trajectory in enumerate(paths(tree)):
        last = trajectory[-1]
        # What was not asked, or never answered, is no step of the policy.
        sampled = [step for step in trajectory if was_sampled(step)]
        tags = [step.tag for step in trajectory]
        validities = [step.validity for step in trajectory]
        move_validities: list[Validity] = []
        for step in sampled:
            move_validities += [act.validity for _, act in acts_by_copy(step)]
        yield Episode(
            task=tree.task.id,
            kind=tree.task.kind,
            sample=sample,
            outcome=last.outcome or Outcome.ERRORED,
            score=score_of(trajectory),
            steps=len(sampled),
            moves=len(move_validities),
            tokens=sum(step.tokens for step in trajectory),
            repetitive_steps=repetitions(trajectory),
            explore_steps=tags.count("explore"),
            malformed_steps=validities.count(Validity.MALFORMED),
            inadmissible_steps=move_validities.count(Validity.INADMISSIBLE),
            error=last.error,
            ledger=tree.ledger if sample == 0 else None,
        )


def score_of(trajectory: Iterable[Step]) -> float:
    """The sum of rewards in the copy that earned most: copies score separately."""
    earned: dict[int, float] = {}
    for step in trajectory:
        for copy, act in acts_by_copy(step):
            earned[copy] = earned.get(copy, 0) + act.reward
    return max(earned.values(), default=0.0)


def repetitions(trajectory: Iterable[Step]) -> int:
    """The moves that repeat an action from the same true state and copy (SPARK Table 6).

    The last text is not part of a state, so trying an action again that had no effect
    counts as a repetition; also where the true state counts the time, as ScienceWorld's
    does. A malformed move has no action to repeat.
    """
    transitions: set[tuple[int, str, str]] = set()
    repeated = 0
    # By copy: the state that refused actions and looks have left as it was.
    left: dict[int, str] = {}
    for step in trajectory:
        for copy, act in acts_by_copy(step):
            if act.action is None or act.validity is Validity.MALFORMED:
                continue
            state = left.pop(copy, act.state)
            transition = (copy, state, act.action)
            repeated += transition in transitions
            transitions.add(transition)
            if _had_no_effect(act):
                left[copy] = state
    return repeated


def _had_no_effect(act: Step | Move) -> bool:
    """Whether it was refused or only looked, and f(s) is the same after it."""
    idle = act.looked or act.validity is Validity.INADMISSIBLE
    return idle and act.canonical is not None and act.canonical == act.next_canonical


TAIL = 5
"""Number of last steps from which the ending is determined."""
REPEATED = "repeated"
ENDINGS = (
    Outcome.SUCCESS,
    REPEATED,
    Validity.INADMISSIBLE,
    Validity.MALFORMED,
    Outcome.FAILURE,
    Outcome.TRUNCATED,
    Outcome.ERRORED,
)


def ending(trajectory: Sequence[Step]) -> str:
    """One of ENDINGS: what most of the last steps did, where that explains a failure.

    repeated: they took an action again in its state. inadmissible: the world refused
    them. malformed: they had no action that could be read. Otherwise the outcome.
    """
    outcome = trajectory[-1].outcome
    assert outcome is not None
    if outcome in (Outcome.SUCCESS, Outcome.ERRORED):
        return outcome
    tail = trajectory[-TAIL:]
    validities = [step.validity for step in tail]
    # Of the whole trajectory, since a late move may repeat an early one.
    earlier = trajectory[: -len(tail)]
    repeated = repetitions(trajectory) - repetitions(earlier)
    # A malformed response has no admissible action, and an inadmissible one may repeat.
    counts = {
        Validity.MALFORMED: validities.count(Validity.MALFORMED),
        Validity.INADMISSIBLE: validities.count(Validity.INADMISSIBLE),
        REPEATED: repeated,
    }
    # A step in several copies has a move in each, and repetitions are of moves.
    moves = sum(len(acts_by_copy(step)) for step in tail)
    for name, count in counts.items():
        if 2 * count > (moves if name == REPEATED else len(tail)):
            return name
    return outcome
