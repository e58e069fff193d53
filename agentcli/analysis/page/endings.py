"""How trajectories end, in more detail than their outcomes say."""

from collections.abc import Sequence

from agentcli.evaluation.episodes import repetitions
from agentcli.records.types import Outcome, Step, Validity

TAIL = 5
"""Number of last steps from which the ending is determined."""
ENDINGS = ("solved", "looped", "rejected", "unreadable", "other", "broke")


def ending(trajectory: Sequence[Step]) -> str:
    """One of ENDINGS.

    looped: most of the last steps repeated an action in its state. rejected: the world
    refused most of them. unreadable: most had no action that could be read. broke: the
    engine or the policy did.
    """
    outcome = trajectory[-1].outcome
    if outcome is Outcome.SUCCESS:
        return "solved"
    if outcome is Outcome.ERRORED:
        return "broke"
    tail = trajectory[-TAIL:]
    validities = [step.validity for step in tail]
    repeated = repetitions(trajectory) - repetitions(trajectory[: -len(tail)])
    # What could not be read was not refused, and what was refused may repeat too.
    counts = {
        "unreadable": validities.count(Validity.MALFORMED),
        "rejected": validities.count(Validity.INADMISSIBLE),
        "looped": repeated,
    }
    for name, count in counts.items():
        if 2 * count > len(tail):
            return name
    return "other"
