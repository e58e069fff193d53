"""Equations that show how an advantage is computed from its parts.

They are defined in the module of each method. --explain evaluates them and shows them
line by line.

A method has a table `EQUATIONS`. It starts with the numbers read from the tree and ends
with the equation named "advantage". A formula is arithmetic (+ - * / ** and brackets)
over names. A name is a part of the row (StepCredit.parts), a numeric setting, a number
of the row's Evidence (`facts` of Survey.credit), or the result of an earlier equation.
A part that is a Python keyword gets a trailing underscore (`return_`).

An equation named like a part must evaluate to that part, and the last equation to the
advantage that the method assigned. explain.py checks both, so the table cannot
contradict the method. Nothing here prints.
"""

import ast
import keyword
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import msgspec

from agentcli.credit.group import (
    EPSILON,
    SMALLEST_STD,
    Entry,
    Grouping,
    Scale,
    scale_of,
)
from agentcli.errors import AgentCliError

ADVANTAGE = "advantage"
"""Name of the last equation."""
UNCHARGED = "uncharged"
"""Its name where a penalty is still charged afterwards."""
STATISTICS = ("mean", "std", "W")
"""In formulas, the numbers of a group NAME are mean_NAME, std_NAME and W_NAME."""
MOST_LISTED = 8
"""The most numbers that are listed."""
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


@dataclass(frozen=True)
class Equation:
    """One line of a method's table.

    Without a formula it only describes a number given by the tree or the settings.
    `among` names a group: the formula is then a score, and the result is that score
    compared within the group.
    """

    name: str
    formula: str | None
    meaning: str
    source: str | None = None
    """Paper and number: "RewardFlow eq. 9"."""
    among: str | None = None


PENALTY = Equation("penalty", None, "penalty, of an invalid step only")
CHILDREN_MEAN = "mean over its children, up to the leaves"
EXPECTED = Equation(
    "expected", None, f"expected reward after the step: {CHILDREN_MEAN}"
)


class Line(msgspec.Struct, kw_only=True, tag_field="entry", tag="number"):
    """One number of an account: given (no formula), or computed from earlier lines."""

    name: str
    value: float
    formula: str | None = None
    meaning: str
    """What the number is, or why it is 0."""
    source: str | None = None


class Member(msgspec.Struct):
    """One entry of a group."""

    step: int
    """Id of the step, leaf or copy that the entry stands for."""
    score: float
    weight: float
    explained: bool
    """Whether the explained row is this entry or part of it."""


class ScoreGroup(msgspec.Struct, kw_only=True, tag_field="entry", tag="group"):
    """The group that a score is compared with.

    W is the sum of the weights:

    mean = sum(w x) / W        std^2 = sum(w (x - mean)^2) / (W - 1)
    """

    name: str
    meaning: str
    of: str = "step"
    """What Member.step identifies: a step, or a copy of the environment."""
    how: str = "mean"
    """How scores are compared: std, mean (no division), leave-one-out, or zero (nothing
    to compare).
    """
    members: list[Member]
    mean: float
    std: float | None
    """None where W is at most 1."""
    weight: float

    @property
    def statistics(self) -> dict[str, float]:
        """The numbers of the group, by their names in formulas."""
        numbers = {f"mean_{self.name}": self.mean, f"W_{self.name}": self.weight}
        if self.std is not None:
            numbers[f"std_{self.name}"] = self.std
        return numbers


@dataclass
class Evidence:
    """The numbers that a row's equations need besides its parts and the settings."""

    numbers: dict[str, float] = field(default_factory=dict)
    """Numbers by name. A number replaces the equation of the same name."""
    words: dict[str, str] = field(default_factory=dict)
    """The meanings of numbers or lines, where they differ from row to row."""
    groups: dict[str, ScoreGroup] = field(default_factory=dict)
    equations: Sequence[Equation] | None = None
    """The table of this row; None for the method's EQUATIONS."""

    def add(
        self,
        name: str,
        value: float,
        words: str | None = None,
    ) -> None:
        """Adds a number, with its meaning in words."""
        self.numbers[name] = float(value)
        if words is not None:
            self.words[name] = words

    def group(
        self,
        name: str,
        words: str,
        entries: Sequence[Entry],
        places: set[int],
        scale: Scale | None = None,
        how: str = "mean",
        of: str = "step",
    ) -> None:
        """Adds a group of entries.

        `places` are the positions of the row's entries. `scale` is the normalisation
        that the method computed for the group.
        """
        measured = scale_of(entries, "mean", 0.0)
        members = []
        for place, entry in enumerate(entries):
            members.append(Member(*entry, explained=place in places))
        if scale is not None and scale.factor == 0:
            how = "zero"
        self.groups[name] = ScoreGroup(
            name=name,
            meaning=words,
            of=of,
            how=how,
            members=members,
            mean=measured.center,
            std=measured.std,
            weight=measured.weight,
        )

    def compare(self, name: str, words: str, grouping: Grouping, place: int) -> None:
        """Adds the group of the entry at `place` in a grouping."""
        entries, position, scale = grouping.among(place)
        self.group(name, words, entries, {position}, scale, grouping.normalise)


def listed(numbers: Sequence[int]) -> str:
    """The first numbers, separated by commas, with dots if there are more."""
    shown = [str(number) for number in numbers[:MOST_LISTED]]
    if len(numbers) > MOST_LISTED:
        shown.append("...")
    return ", ".join(shown)


class Account:
    """The lines and groups that explain one row, in the order they are needed."""

    def __init__(
        self,
        equations: Sequence[Equation],
        evidence: Evidence,
        parts: Mapping[str, float],
        settings: Mapping[str, object],
    ) -> None:
        self.entries: list[Line | ScoreGroup] = []
        self.numbers: dict[str, float] = {}
        """The numbers shown so far, by name."""
        self._evidence = evidence
        self._parts = {_spelled(name): value for name, value in parts.items()}
        self._given: dict[str, float] = {}
        for name, value in settings.items():
            if isinstance(value, int | float):
                self._given[name] = float(value)
        # For equal names, a part overrides a setting, and evidence overrides both.
        self._given |= self._parts
        self._given |= evidence.numbers
        self._meanings = {equation.name: equation.meaning for equation in equations}
        for equation in _with_charge(equations, parts):
            if equation.formula is not None and equation.name not in evidence.numbers:
                self._define(equation, equation.formula)

    @property
    def advantage(self) -> float:
        """The value of the last line.

        Raises AgentCliError if that line is not the advantage.
        """
        last = self.entries[-1] if self.entries else None
        if not isinstance(last, Line) or last.name != ADVANTAGE:
            raise AgentCliError(f"the method's EQUATIONS do not end with {ADVANTAGE}")
        return last.value

    @property
    def magnitude(self) -> float:
        """The largest absolute number, at least 1: the scale of rounding errors."""
        return max([1.0, *(abs(value) for value in self.numbers.values())])

    def differing(self, precision: float) -> str | None:
        """The first part whose equation gives another value; None if all agree."""
        for name, value in self._parts.items():
            shown = self.numbers.get(name, value)
            # Written with `not <=`, so that NaN differs.
            if not abs(shown - value) <= precision * self.magnitude:
                return name.removesuffix("_")
        return None

    def _define(self, equation: Equation, formula: str) -> None:
        """Adds an equation as a line, after the numbers and groups that it needs."""
        meaning = self._evidence.words.get(equation.name, equation.meaning)
        for name in names_in(formula):
            self._show(name)
        if equation.among is not None:
            group = self._evidence.groups[equation.among]
            # One statistic brings the whole group, and with it the std and W.
            self._show(f"mean_{equation.among}")
            formula, meaning = compared(formula, meaning, group)
        value = evaluate(formula, self.numbers)
        self.numbers[equation.name] = value
        self.entries.append(
            Line(
                name=equation.name,
                value=value,
                formula=formula,
                meaning=meaning,
                source=equation.source,
            )
        )

    def _show(self, name: str) -> None:
        """Shows a number, unless it is already shown.

        Raises KeyError for an unknown name.
        """
        if name in self.numbers:
            return
        statistic, _, group_name = name.partition("_")
        if statistic in STATISTICS and group_name in self._evidence.groups:
            group = self._evidence.groups[group_name]
            self.entries.append(group)
            self.numbers |= group.statistics
            return
        value = self._given[name]
        meaning = self._evidence.words.get(name) or self._meanings.get(name, "setting")
        self.entries.append(
            Line(
                name=name,
                value=value,
                meaning=meaning,
            )
        )
        self.numbers[name] = value


def compared(
    score: str,
    meaning: str,
    group: ScoreGroup,
) -> tuple[str, str]:
    """The formula that compares a score within a group, and its meaning."""
    mean, std, weight = [f"{statistic}_{group.name}" for statistic in STATISTICS]
    difference = f"({score} - {mean})"
    if group.how == "zero":
        return "0", f"{meaning}: 0, {why_zero(group)}"
    if group.std is None:
        words = f"{meaning}; alone in its group, the release takes no mean from it"
        formula = f"({score}) / (1 + {EPSILON:g})" if group.how == "std" else score
        return formula, words
    if group.how == "std":
        return f"{difference} / ({std} + {EPSILON:g})", meaning
    if group.how == "leave-one-out":
        return f"{difference} * {weight} / ({weight} - 1)", meaning
    return f"{score} - {mean}", meaning


def why_zero(group: ScoreGroup) -> str:
    """Says why the comparison within the group gives 0."""
    if group.std is None:
        return "there is nothing to compare it with"
    if len(group.members) == 1:
        return "all rows of the group are its own, and score the same"
    if group.std < SMALLEST_STD:
        return f"all of its group score the same (std below {SMALLEST_STD:g})"
    return "a single trajectory has no other to be compared with"


def evaluate(formula: str, numbers: Mapping[str, float]) -> float:
    """The value of arithmetic over named numbers.

    Raises KeyError for an unknown name, AgentCliError for anything else.
    """
    return _value(_parsed(formula), numbers)


@lru_cache
def names_in(formula: str) -> list[str]:
    """The names in a formula, from left to right."""
    # ast.walk goes breadth first; an account shows numbers in reading order.
    nodes = ast.walk(_parsed(formula))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    return [node.id for node in sorted(names, key=lambda node: node.col_offset)]


@lru_cache
def _parsed(formula: str) -> ast.expr:
    return ast.parse(formula, mode="eval").body


def _with_charge(
    equations: Sequence[Equation], parts: Mapping[str, float]
) -> list[Equation]:
    """The table, with a last line for a penalty charged outside (Survey.credit)."""
    if "charge" not in parts or not equations:
        return list(equations)
    *before, last = equations
    uncharged = replace(last, name=UNCHARGED)
    words = "the penalty outside the comparison is charged to its own step, once"
    return [*before, uncharged, Equation(ADVANTAGE, f"{UNCHARGED} - charge", words)]


def _spelled(part: str) -> str:
    """The name of a part in formulas, where no name may be a Python keyword."""
    return f"{part}_" if keyword.iskeyword(part) else part


def _value(node: ast.expr, numbers: Mapping[str, float]) -> float:
    # No calls, attributes or comparisons: the formula of an installed method may
    # compute with its numbers, and do nothing else.
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left = _value(node.left, numbers)
        right = _value(node.right, numbers)
        return float(_OPERATORS[type(node.op)](left, right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, numbers)
    if isinstance(node, ast.Name):
        return numbers[node.id]
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    raise AgentCliError(f"no arithmetic: {ast.unparse(node)}")
