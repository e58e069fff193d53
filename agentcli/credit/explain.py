"""Why a step has the advantage it has: the step itself, its rows, and the method's account of one of them.

The account is the method's own (`explain` in its module, account.py); here it is held against the advantage that `assign` gave, and
a row without an advantage is told why. A method without `explain` (an installed one may have none) is shown with its parts.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from agentcli.credit.account import Group, Line, Sheet
from agentcli.credit.common import ERRORED, FIRST_PHASE, ONLY_CHILD
from agentcli.credit.registry import changed
from agentcli.errors import AgentCliError
from agentcli.records.types import Credit, Outcome, Step, StepCredit, Tree, Validity

Explain = Callable[[Tree, Any, int], Sheet]
PRECISION = 1e-9
"""Relative to the largest number of the account."""
REASONS = {
    ERRORED: "every leaf below it errored: the engine or the policy broke, which says nothing about the step",
    ONLY_CHILD: "it was the only action tried in its state, so there is nothing to compare it with (003 eq. 13); "
    "train --update all gives it the advantage of the step before (eq. 16)",
    FIRST_PHASE: "it is of a trajectory that started from scratch, and credit.first_phase trains no such step, or only those whose "
    "state was forked later (003 App. C.1, Table 2)",
}
"""Of the marks that methods set, in words."""


class Peer(msgspec.Struct):
    """A step that stands in a group."""

    action: str | None
    outcome: Outcome | None


class Explanation(msgspec.Struct, kw_only=True):
    """One step and the account of one of its rows; texts as recorded, hence to be escaped by whoever prints them."""

    task: str
    kind: str
    instruction: str
    method: str
    settings: dict[str, Any]
    changed: dict[str, Any]
    """Those of the settings that are not the method's defaults."""
    step: int
    parent: int | None
    siblings: int
    """Other steps sampled from the same state."""
    tag: str | None
    observation: str
    action: str | None
    moves: list[str]
    """What it did in every copy, where it acted in several: "2: go to desk 1"."""
    validity: Validity
    outcome: Outcome | None
    next_observation: str
    advantage: float | None
    masked: str | None
    """The mark of a row without advantage."""
    why_masked: str | None
    """The same in words."""
    weight: float
    parts: dict[str, float]
    row: int
    """Which of its rows is told, from 0."""
    rows: list[float | None]
    """The advantages of all rows of this step; several where prefixes are duplicated."""
    account: list[Line | Group]
    """Empty for a masked row, and for a method that gives no account."""
    peers: dict[int, Peer]
    """The steps of its groups, by id."""


def explain(tree: Tree, credit: Credit, row: int, settings: msgspec.Struct, account: Explain | None) -> Explanation:
    """What `credit.steps[row]` comes from; `credit` is what the method gave `tree` with these `settings`.

    Raises AgentCliError when the account does not come to the advantage.
    """
    told = credit.steps[row]
    step = tree.steps[told.step]
    entries = _account(tree, settings, row, told, account)
    own = [position for position, entry in enumerate(credit.steps) if entry.step == told.step]
    return Explanation(
        task=tree.task.id,
        kind=tree.task.kind,
        instruction=tree.instruction,
        method=credit.method,
        settings=msgspec.to_builtins(settings),
        changed=changed(settings),
        step=step.id,
        parent=step.parent,
        siblings=sum(other.parent == step.parent for other in tree.steps) - 1,
        tag=step.tag,
        observation=step.observation,
        action=step.action,
        moves=[f"{move.copy}: {move.action}" for move in step.moves],
        validity=step.validity,
        outcome=step.outcome,
        next_observation=step.next_observation,
        advantage=told.advantage,
        masked=told.masked,
        why_masked=_reason(told, step),
        weight=told.weight,
        parts=told.parts,
        row=own.index(row),
        rows=[credit.steps[position].advantage for position in own],
        account=entries,
        peers={
            member.step: Peer(tree.steps[member.step].action, tree.steps[member.step].outcome)
            for entry in entries
            if isinstance(entry, Group) and entry.of == "step"
            for member in entry.members
        },
    )


def _account(
    tree: Tree, settings: msgspec.Struct, row: int, told: StepCredit, account: Explain | None
) -> list[Line | Group]:
    if account is None or told.advantage is None:
        return []
    sheet = account(tree, settings, row)
    if not abs(sheet.advantage - told.advantage) <= PRECISION * sheet.magnitude:
        raise AgentCliError(
            f"step {told.step}: the account comes to {sheet.advantage!r}, the advantage is {told.advantage!r}; "
            "the method's explain() and assign() do not agree"
        )
    return sheet.entries


def _reason(told: StepCredit, step: Step) -> str | None:
    if told.masked is None or told.masked in REASONS:
        return REASONS.get(told.masked or "")
    if told.masked == step.mask:
        return "it must not be imitated, and is marked so in the tree"
    return None
