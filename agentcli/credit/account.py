"""An account of one advantage: numbers by name, groups that a score is compared with, and the arithmetic from one to the next.

A method's `explain(tree, settings, row)` fills a Sheet, from what the tree says to a last line named "advantage". A line's value
is computed from the formula that is shown, over numbers that are shown, so an account cannot say one thing and compute another;
explain.py holds its end against the advantage that the method assigned. Nothing here prints.
"""

import ast
import math
import operator
from collections.abc import Mapping, Sequence

import msgspec

from agentcli.credit.group import EPSILON, SMALLEST_STD, Scale, scale_of
from agentcli.errors import AgentCliError

ADVANTAGE = "advantage"
"""Name of an account's last line."""
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


class Line(msgspec.Struct, kw_only=True, tag_field="entry", tag="number"):
    """One number: given by the tree or the settings (no formula), or computed from numbers above it."""

    name: str
    value: float
    formula: str | None = None
    """Arithmetic (+ - * / ** and brackets) over the names of earlier numbers."""
    what: str
    """What it is, or why it is 0."""
    source: str | None = None
    """The equation: "002 eq. 9"."""


class Member(msgspec.Struct):
    """One entry of a group."""

    step: int
    """Id of the step, or of the leaf, that it stands for."""
    score: float
    weight: float
    own: bool
    """Whether the explained step is (part of) it."""


class Group(msgspec.Struct, kw_only=True, tag_field="entry", tag="group"):
    """What a score is compared with. With W the sum of the weights: mean = sum(w x) / W, std^2 = sum(w (x - mean)^2) / (W - 1)."""

    name: str
    """Its numbers are called mean_NAME, std_NAME and W_NAME in formulas."""
    what: str
    of: str = "step"
    """What Member.step counts: step, or copy (of the environment)."""
    members: list[Member]
    mean: float
    std: float | None
    """None where W is at most 1."""
    weight: float


class Sheet:
    """An account while it is written."""

    def __init__(self) -> None:
        self.entries: list[Line | Group] = []
        self._numbers: dict[str, float] = {}

    def given(self, name: str, value: float, what: str) -> None:
        """A number that is not computed here."""
        self.entries.append(Line(name=name, value=float(value), what=what))
        self._numbers[name] = float(value)

    def line(self, name: str, formula: str, what: str, source: str | None = None) -> float:
        """A number computed from numbers above it. Raises KeyError for a name that no line above has."""
        value = evaluate(formula, self._numbers)
        self.entries.append(Line(name=name, value=value, formula=formula, what=what, source=source))
        self._numbers[name] = value
        return value

    def group(
        self, name: str, members: Sequence[tuple[int, float, float]], own: set[int], what: str, of: str = "step"
    ) -> Group:
        """A group of (step, score, weight) entries; `own` are positions in it. Defines mean_NAME and, where there are any,
        std_NAME and W_NAME."""
        pairs = [(score, weight) for _, score, weight in members if weight > 0]
        plain = scale_of(pairs, "mean", 0.0)
        found = Group(
            name=name,
            what=what,
            of=of,
            members=[Member(*entry, own=position in own) for position, entry in enumerate(members)],
            mean=plain.center,
            std=_std(pairs, plain),
            weight=plain.weight,
        )
        self.entries.append(found)
        numbers = {"mean": found.mean, "std": found.std, "W": found.weight}
        self._numbers |= {f"{key}_{name}": value for key, value in numbers.items() if value is not None}
        return found

    def compare(self, line: str, score: str, group: Group, scale: Scale, how: str, what: str, source: str) -> float:
        """The line that turns the number `score` into what `scale` makes of it among `group`.

        how: std, mean (no division) or leave-one-out.
        """
        mean, std, weight = (f"{part}_{group.name}" for part in ("mean", "std", "W"))
        formulas = {
            "std": f"({score} - {mean}) / ({std} + {EPSILON:g})",
            "mean": f"{score} - {mean}",
            "leave-one-out": f"({score} - {mean}) * {weight} / ({weight} - 1)",
        }
        if scale.factor == 0:
            return self.line(line, "0", f"{what}: 0, {why_nothing(group)}", source)
        if group.std is None:
            alone = f"{score} / (1 + {EPSILON:g})" if how == "std" else score
            return self.line(line, alone, f"{what}; alone in its group, the release takes no mean from it", source)
        return self.line(line, formulas[how], what, source)

    @property
    def advantage(self) -> float:
        """What the account comes to. Raises AgentCliError for one that does not end with it."""
        last = self.entries[-1] if self.entries else None
        if not isinstance(last, Line) or last.name != ADVANTAGE:
            raise AgentCliError(f"the method's explain() does not end with a line named {ADVANTAGE}")
        return last.value

    @property
    def magnitude(self) -> float:
        """The largest number in it, at least 1: what rounding errors are measured by."""
        return max([1.0, *(abs(value) for value in self._numbers.values())])


def evaluate(formula: str, numbers: Mapping[str, float]) -> float:
    """The value of arithmetic over named numbers. Raises KeyError for an unknown name, AgentCliError for anything else."""
    return _value(ast.parse(formula, mode="eval").body, numbers)


def why_nothing(group: Group) -> str:
    """Why nobody in it is told from another."""
    if group.std is None:
        return "it has nobody to be compared with"
    if len(group.members) == 1:
        return "all rows of the group are its own, and score the same"
    if group.std < SMALLEST_STD:
        return f"all of its group score the same (std below {SMALLEST_STD:g})"
    return "a single trajectory has nobody to be compared with"


def _value(node: ast.expr, numbers: Mapping[str, float]) -> float:
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return float(_OPERATORS[type(node.op)](_value(node.left, numbers), _value(node.right, numbers)))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, numbers)
    if isinstance(node, ast.Name):
        return numbers[node.id]
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    raise AgentCliError(f"no arithmetic: {ast.unparse(node)}")


def _std(pairs: Sequence[tuple[float, float]], plain: Scale) -> float | None:
    if plain.weight <= 1 + 1e-9:
        return None
    return math.sqrt(math.fsum([weight * (score - plain.center) ** 2 for score, weight in pairs]) / (plain.weight - 1))
