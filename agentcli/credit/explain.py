"""Explains why a step has its advantage.

The account of a row evaluates the method's EQUATIONS (equations.py) and is checked
against the advantage and parts from `assign`. An installed method may have none: then
only the parts are shown.
"""

from typing import Any

import msgspec

from agentcli.credit.carl import FIRST_PHASE, ONLY_CHILD
from agentcli.credit.equations import Account, Evidence, Line, ScoreGroup
from agentcli.credit.registry import Explainer, changed
from agentcli.credit.survey import ERRORED
from agentcli.errors import AgentCliError
from agentcli.records.types import Credit, Outcome, Step, StepCredit, Tree, Validity

PRECISION = 1e-9
"""Tolerance, relative to the largest number of the account."""
REASONS = {
    ERRORED: (
        "every leaf below it errored: the engine or the policy broke, which says "
        "nothing about the step"
    ),
    ONLY_CHILD: (
        "it was the only action tried in its state, so there is nothing to compare "
        "it with (CARL eq. 13); train --update all gives it the advantage of the step "
        "before (eq. 16)"
    ),
    FIRST_PHASE: (
        "it is of a trajectory that started from scratch, and credit.first_phase "
        "trains no such step, or only those whose state was forked later (CARL App. "
        "C.1, Table 2)"
    ),
}
"""Explanations of the marks that methods set."""


class Peer(msgspec.Struct):
    """A step that is a member of a group."""

    action: str | None
    outcome: Outcome | None


class Explanation(msgspec.Struct, kw_only=True):
    """One step and the account of one of its rows.

    Texts are as recorded, so escape them before printing.
    """

    task: str
    kind: str
    instruction: str
    method: str
    settings: dict[str, Any]
    changed: dict[str, Any]
    """The settings that differ from the method's defaults."""
    step: int
    parent: int | None
    siblings: int
    """Other steps sampled from the same state."""
    tag: str | None
    observation: str
    action: str | None
    moves: list[str]
    """The action in each copy, where copies are numbered: "2: go to desk 1"."""
    validity: Validity
    outcome: Outcome | None
    next_observation: str
    advantage: float | None
    masked: str | None
    """The mark of a row without an advantage."""
    why_masked: str | None
    """The meaning of that mark, in words."""
    weight: float
    parts: dict[str, float]
    row: int
    """Which of the step's rows is explained, counted from 0."""
    rows: list[float | None]
    """The advantages of all rows of the step; several where prefixes are duplicated."""
    account: list[Line | ScoreGroup]
    """Empty for a masked row, and for a method without EQUATIONS."""
    peers: dict[int, Peer]
    """The steps in the groups of the account, by id."""


class Written(msgspec.Struct, kw_only=True):
    """The same row as stored in the credit file of RUN."""

    file: str
    method: str | None = None
    """As assign-credit takes it; None: by the name that the credit has."""
    advantage: float | None
    same: bool
    settings: dict[str, list[Any]]
    """Switches that differ, as name -> [in the file, here]."""


class ExplainedStep(msgspec.Struct, kw_only=True):
    """The answer to --explain."""

    trees: str
    line: int
    """The line of the tree in the file, from 1."""
    explanation: Explanation
    written: Written | None
    """None where RUN has no credit of this method."""


def explain(
    tree: Tree,
    credit: Credit,
    row: int,
    settings: msgspec.Struct,
    explainer: Explainer | None,
) -> Explanation:
    """Explains `credit.steps[row]`.

    `credit` is the method's credit for `tree` with these `settings`. Raises
    AgentCliError if the account does not reproduce the advantage and the parts.
    """
    entry = credit.steps[row]
    step = tree.steps[entry.step]
    account: list[Line | ScoreGroup] = []
    if explainer is not None:
        evidence = explainer.explained(tree, settings, [row])[row]
        account = account_of(settings, entry, explainer, evidence)
    rows = [other for other in credit.steps if other.step == step.id]
    rows_before = [other for other in credit.steps[:row] if other.step == step.id]
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
        advantage=entry.advantage,
        masked=entry.masked,
        why_masked=_reason(entry, step),
        weight=entry.weight,
        parts=entry.parts,
        row=len(rows_before),
        rows=[other.advantage for other in rows],
        account=account,
        peers=_peers(tree, account),
    )


def account_of(
    settings: msgspec.Struct,
    entry: StepCredit,
    explainer: Explainer,
    evidence: Evidence,
) -> list[Line | ScoreGroup]:
    """The lines and groups that explain the advantage of a row; [] if it has none.

    Raises AgentCliError if they cannot be computed, or do not reproduce the advantage
    and the parts.
    """
    if entry.advantage is None:
        return []
    # Some rows have equations of their own, such as CARL's only children.
    equations = evidence.equations or explainer.equations
    switches = msgspec.to_builtins(settings)
    try:
        account = Account(equations, evidence, entry.parts, switches)
    except KeyError as error:
        missing = f"{error} names no part of the row, no switch and no group"
        raise AgentCliError(f"the method's EQUATIONS: {missing}") from error
    except (
        ArithmeticError,
        AttributeError,
        RecursionError,
        SyntaxError,
        TypeError,
    ) as error:
        problem = f"{type(error).__name__}: {error}"
        raise AgentCliError(f"the method's EQUATIONS: {problem}") from error
    # Written with `not <=`, so that NaN differs.
    if not abs(account.advantage - entry.advantage) <= PRECISION * account.magnitude:
        raise AgentCliError(
            f"step {entry.step}: the account comes to {account.advantage!r}, the "
            f"advantage is {entry.advantage!r}; the method's EQUATIONS and assign() "
            "do not agree"
        )
    part = account.differing(PRECISION)
    if part is not None:
        raise AgentCliError(
            f"step {entry.step}: the account of its part {part} does not come to "
            f"{entry.parts[part]!r}; the method's EQUATIONS and assign() do not agree"
        )
    return account.entries


def _peers(tree: Tree, account: list[Line | ScoreGroup]) -> dict[int, Peer]:
    """The steps in all groups, by id."""
    peers: dict[int, Peer] = {}
    for group in account:
        # Members of other groups are copies, whose numbers are no steps.
        if not isinstance(group, ScoreGroup) or group.of != "step":
            continue
        for member in group.members:
            step = tree.steps[member.step]
            peers[member.step] = Peer(step.action, step.outcome)
    return peers


def _reason(entry: StepCredit, step: Step) -> str | None:
    """Why the row has no advantage, in words."""
    if entry.masked is None:
        return None
    imitation = None
    # A tree's mask is free text, so it cannot be a key of REASONS.
    if entry.masked == step.mask:
        imitation = "it must not be imitated, and is marked so in the tree"
    return REASONS.get(entry.masked, imitation)
