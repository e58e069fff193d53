"""A credit method as another package brings it: what the judge noted is the advantage."""

import msgspec
from agentcli.records.types import Credit, StepCredit, Tree


class JudgedSwitches(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The switches of judged."""

    scale: float = 2.0
    """What a step that the judge agrees with is worth."""


def assign(tree: Tree, settings: JudgedSwitches) -> Credit:
    """`scale` times the note `agrees`, for every step."""
    credits = []
    for step in tree.steps:
        agrees = float(step.notes["agrees"])
        credits.append(StepCredit(step=step.id, advantage=settings.scale * agrees, parts={"agrees": agrees}))
    return Credit(task=tree.task.id, method="judged", steps=credits)
