"""The credit of a tree as a page holds it: advantages, and the account of every row.

From row to row, the lines of an account differ in little but their numbers, and rows
share their groups. So lines and groups are stored once, and rows refer to them.
"""

import msgspec

from agentcli.analysis.page.texts import NO_TEXT, TextTable
from agentcli.credit.equations import Line, ScoreGroup
from agentcli.credit.explain import REASONS, account_of
from agentcli.credit.registry import Explainer
from agentcli.credit.survey import Explained
from agentcli.records.step_rows import advantages
from agentcli.records.types import Credit, StepCredit, Tree

MemberCells = tuple[int, float, float]
"""Step (or copy), score and weight."""
AccountEntry = list[float]
"""For a line: its place and its value. For a group: -1 minus its place, and the places
of the row's members in it.
"""


class AccountLine(msgspec.Struct, array_like=True, frozen=True):
    """A line without its number."""

    name: str
    formula: str | None
    meaning: int
    source: str | None


class AccountGroup(msgspec.Struct, kw_only=True):
    """A group that scores are compared with."""

    name: str
    meaning: int
    of: str
    how: str
    mean: float
    std: float | None
    weight: float
    members: list[MemberCells]


class CreditRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One row of credit; a step may have several."""

    advantage: float | None
    weight: float = 1.0
    masked: int = NO_TEXT
    parts: list[tuple[str, float]] = []
    """The parts of the advantage, if there is no account."""
    account: list[AccountEntry] = []


class MethodColumn(msgspec.Struct, kw_only=True):
    """What one method gives the steps of a tree."""

    method: str
    advantages: list[float | None]
    rows: dict[int, list[CreditRow]]
    """By step."""
    lines: list[AccountLine]
    groups: list[AccountGroup]


def method_column(
    tree: Tree,
    credit: Credit,
    switches: msgspec.Struct,
    explainer: Explainer | None,
    texts: TextTable,
) -> MethodColumn:
    """The credit of one method, with accounts where there is an `explainer`."""
    column = MethodColumn(
        method=credit.method, advantages=[], rows={}, lines=[], groups=[]
    )
    given = advantages(credit)
    column.advantages = [given.get(step.id) for step in tree.steps]
    shared = _SharedLines(column, texts)
    evidence: Explained = {}
    if explainer is not None:
        evidence = explainer.explained(tree, switches, range(len(credit.steps)))
    for number, entry in enumerate(credit.steps):
        row = CreditRow(advantage=entry.advantage, weight=entry.weight)
        if explainer is not None:
            account = account_of(switches, entry, explainer, evidence[number])
            row.account = [shared.entry(one) for one in account]
        if not row.account:
            row.parts = list(entry.parts.items())
        row.masked = texts.place(_reason(entry))
        column.rows.setdefault(entry.step, []).append(row)
    return column


def _reason(entry: StepCredit) -> str | None:
    """Why a row has no advantage."""
    return None if entry.masked is None else REASONS.get(entry.masked, entry.masked)


class _SharedLines:
    """Lines and groups stored so far, so that each is stored only once."""

    def __init__(self, column: MethodColumn, texts: TextTable) -> None:
        self._column = column
        self._texts = texts
        self._lines: dict[AccountLine, int] = {}
        self._groups: dict[tuple[object, ...], int] = {}

    def entry(self, entry: Line | ScoreGroup) -> AccountEntry:
        if isinstance(entry, Line):
            return [self._line(entry), entry.value]
        places = [n for n, member in enumerate(entry.members) if member.explained]
        return [-1 - self._group(entry), *places]

    def _line(self, line: Line) -> int:
        meaning = self._texts.place(line.meaning)
        held = AccountLine(line.name, line.formula, meaning, line.source)
        place = self._lines.setdefault(held, len(self._lines))
        if place == len(self._column.lines):
            self._column.lines.append(held)
        return place

    def _group(self, group: ScoreGroup) -> int:
        members = [(one.step, one.score, one.weight) for one in group.members]
        key = (group.name, group.meaning, group.how, *members)
        place = self._groups.setdefault(key, len(self._groups))
        if place == len(self._column.groups):
            self._column.groups.append(
                AccountGroup(
                    name=group.name,
                    meaning=self._texts.place(group.meaning),
                    of=group.of,
                    how=group.how,
                    mean=group.mean,
                    std=group.std,
                    weight=group.weight,
                    members=members,
                )
            )
        return place
