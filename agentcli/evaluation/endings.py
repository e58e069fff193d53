"""How trajectories end: their outcome, or what kept them from a success."""

from collections.abc import Sequence

from agentcli.evaluation.episodes import repetitions
from agentcli.records.types import Outcome, Step, Validity

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
    repeated = repetitions(trajectory) - repetitions(trajectory[: -len(tail)])
    # A malformed response has no admissible action, and an inadmissible one may repeat.
    counts = {
        Validity.MALFORMED: validities.count(Validity.MALFORMED),
        Validity.INADMISSIBLE: validities.count(Validity.INADMISSIBLE),
        REPEATED: repeated,
    }
    for name, count in counts.items():
        if 2 * count > len(tail):
            return name
    return outcome
