"""calculator: exact arithmetic over a whitelist of signs and functions.

Reads formulas: a parsed tree of which only listed nodes are accepted, never `eval`.

`^` is a power and `=` an equation, as people write them.
"""

import ast
import math
import operator
import re
from collections.abc import Callable, Collection, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

from agentcli.worlds.tool_qa.tools.registry import ToolError

LONGEST_FORMULA = 300
"""Characters; this also bounds how deeply a formula is nested."""
SIGNS = str.maketrans({"×": "*", "÷": "/", "−": "-", "·": "*"})
Operators = Mapping[type[ast.operator], Callable[[Any, Any], Any]]
BASIC: Operators = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}
_EQUALS = re.compile(r"(?<![=<>!])=(?!=)")
_DIGITS = re.compile(r"\d{31}")


def parse(text: str) -> ast.expr:
    """The tree of one formula. Raises ToolError."""
    if len(text) > LONGEST_FORMULA:
        raise ToolError(f"the formula is longer than {LONGEST_FORMULA} characters")
    if _DIGITS.search(text):
        raise ToolError("a number has more than 30 digits")
    plain = text.translate(SIGNS).replace("^", "**").strip()
    try:
        return ast.parse(_EQUALS.sub("==", plain), mode="eval").body
    # Python's parser raises MemoryError for what is nested too deeply.
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ToolError(f"not a formula: {text.strip()}") from error


def unknown(node: ast.AST) -> ToolError:
    """The refusal of a node that is not listed."""
    try:
        text = ast.unparse(node)
    except RecursionError:
        text = type(node).__name__
    return ToolError(f"not part of a formula: {text}")


def combined(node: ast.BinOp, left: Any, right: Any, operators: Operators) -> Any:
    """Two values under the operator of a node. Raises ToolError for another operator."""
    function = operators.get(type(node.op))
    if function is None:
        raise unknown(node)
    return function(left, right)


def called(node: ast.Call) -> str:
    """The name of the function that is called. Raises ToolError for anything else."""
    if not isinstance(node.func, ast.Name) or node.keywords:
        raise unknown(node)
    return node.func.id


def function_in(node: ast.Call, names: Collection[str]) -> str:
    """The name of the function that is called, one of `names`. Raises ToolError."""
    name = called(node)
    if name not in names:
        raise ToolError(f"no function {name}; there are {', '.join(names)}")
    return name


MOST_BITS = 4096
"""Of a result, numerator or denominator."""
LARGEST_FACTORIAL = 300

Number = int | float | Fraction


class Calculator:
    """Numbers in, one number out."""

    name = "calculator"
    description = (
        "computes a formula with + - * / // % ^ and sqrt, abs, round, floor, ceil, "
        "gcd, lcm, factorial, comb, log, exp, e.g. calculator[12 * (3 + 4) ^ 2]"
    )
    cost = 0.0

    def run(self, argument: str) -> str:
        """The value, exact where it is a whole number, else with 10 digits."""
        return written(evaluate(argument))


@lru_cache(maxsize=4096)
def evaluate(text: str) -> Number:
    """The value of a formula. Raises ToolError."""
    try:
        return _value(parse(text))
    except ZeroDivisionError as error:
        raise ToolError("division by zero") from error
    except (OverflowError, RecursionError) as error:
        raise ToolError("the value is too large") from error
    except (ValueError, TypeError) as error:
        raise ToolError(str(error)) from error


def written(value: Number) -> str:
    """A value as every tool writes it: whole numbers exactly, others with 10 digits.

    Raises ToolError for a fraction that no floating-point number can stand for.
    """
    if isinstance(value, Fraction) and value.denominator == 1:
        value = value.numerator
    # Floats hold every whole number up to 2^53, about 9e15.
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    return str(value) if isinstance(value, int) else f"{as_float(value):.10g}"


def as_float(value: Number) -> float:
    """The nearest floating-point number. Raises ToolError where there is none."""
    try:
        return float(value)
    except OverflowError as error:
        raise ToolError("the value is too large") from error


def _value(node: ast.expr) -> Number:
    match node:
        # First of all, because a bool matches int() too.
        case ast.Constant(value=bool()):
            raise unknown(node)
        case ast.Constant(value=int() | float() as number):
            return _bounded(number)
        case ast.Name(id="pi"):
            return math.pi
        case ast.Name(id="e"):
            return math.e
        case ast.UnaryOp(op=ast.USub()):
            return -_value(node.operand)
        case ast.UnaryOp(op=ast.UAdd()):
            return _value(node.operand)
        case ast.BinOp():
            left, right = _value(node.left), _value(node.right)
            return _bounded(combined(node, left, right, OPERATORS))
        case ast.Call():
            return _bounded(_applied(node))
    raise unknown(node)


def _quotient(left: Number, right: Number) -> Number:
    if isinstance(left, float) or isinstance(right, float):
        return left / right
    # So that 1 / 3 * 3 is 1, and is written as a whole number.
    return Fraction(left) / right


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(exponent, Fraction):
        exponent = exponent.numerator if exponent.denominator == 1 else float(exponent)
    if isinstance(exponent, int) and not isinstance(base, float):
        # Bounded before it is computed: 9 ^ 9 ^ 9 would not end.
        bits = _bits(base) * abs(exponent)
        if bits > MOST_BITS:
            raise ToolError("the value is too large")
        # An int to a negative power would be a float.
        return Fraction(base) ** exponent
    result = float(base) ** exponent
    if isinstance(result, complex):
        raise ToolError("a root of a negative number")
    return float(result)


OPERATORS: Operators = {
    **BASIC,
    ast.Div: _quotient,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}


def _bits(value: int | Fraction) -> int:
    if isinstance(value, int):
        return value.bit_length()
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _bounded(value: Number) -> Number:
    if not isinstance(value, float) and _bits(value) > MOST_BITS:
        raise ToolError("the value is too large")
    if isinstance(value, float) and not math.isfinite(value):
        raise ToolError("the value is too large")
    return value


def _whole(value: Number, most: int) -> int:
    """A whole number up to `most`. Raises ToolError."""
    whole = int(value)
    if whole != value or not 0 <= whole <= most:
        raise ToolError(f"a whole number from 0 to {most} is needed, not {value}")
    return whole


FUNCTIONS: dict[str, tuple[int, Callable[..., Number]]] = {
    "abs": (1, abs),
    "ceil": (1, math.ceil),
    "comb": (2, math.comb),
    "exp": (1, math.exp),
    "factorial": (1, math.factorial),
    "floor": (1, math.floor),
    "gcd": (2, math.gcd),
    "lcm": (2, math.lcm),
    "log": (1, math.log),
    "round": (1, round),
    "sqrt": (1, math.sqrt),
}
"""Name -> how many numbers it takes, and the function."""
WHOLE = {"comb": LARGEST_FACTORIAL, "factorial": LARGEST_FACTORIAL}
WHOLE |= {"gcd": 10**30, "lcm": 10**30}
"""Functions of whole numbers -> the largest that each takes."""


def _applied(node: ast.Call) -> Number:
    name = function_in(node, FUNCTIONS)
    count, function = FUNCTIONS[name]
    if len(node.args) != count:
        raise ToolError(f"{name} takes {count} numbers, not {len(node.args)}")
    numbers = list(map(_value, node.args))
    if name in WHOLE:
        numbers = [_whole(number, WHOLE[name]) for number in numbers]
    return function(*numbers)
