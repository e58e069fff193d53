"""algebra: equations, derivatives and integrals by sympy.

The formula becomes sympy's objects node by node from a whitelist: `sympify` would
evaluate the text as Python. Sizes are bounded, and a deadline ends what is slow all the
same.
"""

import ast
import math
import operator
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import FrameType
from typing import Any

from agentcli.worlds.tool_qa.tools import calculator
from agentcli.worlds.tool_qa.tools.registry import ToolError

SECONDS = 1.0
WARMING = ("solve(x = 1)", "diff(x ^ 2 + x, 1)", "integrate(x ^ 2, 0, 1)", "x + x")
"""Formulas that have sympy import what it imports late: no deadline may cut that."""
LARGEST_EXPONENT = 20
MOST_NODES = 120
FUNCTIONS = ("sqrt", "sin", "cos", "tan", "exp", "log")
VARIABLES = "abcdfghjkmnpqrstuvwxyz"


class TooSlow(BaseException):
    """The deadline has come; nothing inside sympy catches this."""


class Algebra:
    """Formulas with variables in, formulas or numbers out."""

    name = "algebra"
    description = (
        "solve(EQUATION), diff(FORMULA, AT), integrate(FORMULA, FROM, TO), "
        "factor(FORMULA), expand(FORMULA) or a formula to simplify, "
        "e.g. algebra[solve(3 * x + 4 = 19)]"
    )
    cost = 0.8

    def run(self, argument: str) -> str:
        """The result. Raises ToolError."""
        tree = calculator.parse(argument)
        if sum(1 for _ in ast.walk(tree)) > MOST_NODES:
            raise ToolError("the formula is too long")
        _warm_up()
        try:
            with _deadline():
                return _result(tree)
        except TooSlow as error:
            raise ToolError(f"no result after {SECONDS:g} s of computing") from error
        except ToolError:
            raise
        except Exception as error:
            raise ToolError(f"cannot be done: {error}") from error


@lru_cache(maxsize=1)
def _warm_up() -> None:
    for formula in WARMING:
        _result(calculator.parse(formula))


@contextmanager
def _deadline() -> Iterator[None]:
    """Raises TooSlow in the block after SECONDS of processor time.

    Engines run in the main thread, where alone signals arrive.
    """

    def ring(number: int, frame: FrameType | None) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGVTALRM, ring)
    # It rings again: what is raised inside a callback of the interpreter is lost.
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS, SECONDS / 10)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _result(tree: ast.expr) -> str:
    if isinstance(tree, ast.Compare):
        return _solve([tree])
    if isinstance(tree, ast.Call) and calculator.called(tree) in COMMANDS:
        return COMMANDS[calculator.called(tree)](tree.args)
    import sympy

    formula = _formula(tree)
    return _shown(formula if formula.is_number else sympy.simplify(formula))


def _solve(arguments: list[ast.expr]) -> str:
    import sympy

    difference = _formula(_only(arguments))
    variable = _variable(difference)
    numerator, _ = sympy.fraction(sympy.together(difference))
    polynomial = _polynomial(numerator, variable)
    # sympy orders the roots of a polynomial only where its coefficients are fractions.
    is_polynomial = isinstance(polynomial, sympy.Poly)
    if is_polynomial and (polynomial.domain.is_ZZ or polynomial.domain.is_QQ):
        roots = sympy.real_roots(polynomial)
    else:
        roots = sympy.solve(difference, variable)
    real = [_shown(root) for root in dict.fromkeys(roots) if root.is_real is not False]
    if not real:
        raise ToolError("no real solution")
    return ", ".join(f"{variable} = {root}" for root in real)


def _diff(arguments: list[ast.expr]) -> str:
    formula = _formula(arguments[0] if arguments else _only([]))
    variable = _variable(formula)
    slope = _polynomial(formula, variable).diff(variable).as_expr()
    if len(arguments) > 1:
        slope = slope.subs(variable, _formula(arguments[1]))
    return _shown(slope)


def _integrate(arguments: list[ast.expr]) -> str:
    import sympy

    if len(arguments) not in (1, 3):
        raise ToolError("integrate takes a formula, or a formula and two bounds")
    formula, *bounds = map(_formula, arguments)
    variable = _variable(formula)
    polynomial = _polynomial(formula, variable)
    if not isinstance(polynomial, sympy.Poly):
        limits = (variable, *bounds) if bounds else variable
        return _shown(sympy.integrate(formula, limits))
    area = polynomial.integrate()
    if bounds:
        start, end = bounds
        return _shown(area.eval(end) - area.eval(start))
    return _shown(area.as_expr())


def _polynomial(formula: Any, variable: Any) -> Any:
    """The formula as a polynomial where it is one: that is far faster to work with."""
    import sympy

    if formula.is_polynomial(variable):
        return sympy.Poly(formula, variable)
    return formula


def _factor(arguments: list[ast.expr]) -> str:
    import sympy

    formula = _formula(_only(arguments))
    if formula.is_Integer:
        # Trial division up to the limit; what is left may be composite, yet in time.
        powers = sympy.factorint(int(formula), limit=10**6)
        factors = [f"{prime}^{power}" for prime, power in powers.items()]
        return " * ".join(factors)
    return _shown(sympy.factor(formula))


def _expand(arguments: list[ast.expr]) -> str:
    import sympy

    return _shown(sympy.expand(_formula(_only(arguments))))


COMMANDS: dict[str, Callable[[list[ast.expr]], str]] = {
    "solve": _solve,
    "diff": _diff,
    "integrate": _integrate,
    "factor": _factor,
    "expand": _expand,
}


def _only(arguments: list[ast.expr]) -> ast.expr:
    if len(arguments) != 1:
        raise ToolError(f"one formula is needed, not {len(arguments)}")
    return arguments[0]


def _variable(formula: Any) -> Any:
    variables = sorted(formula.free_symbols, key=str)
    if len(variables) != 1:
        names = ", ".join(map(str, variables)) or "none"
        raise ToolError(f"one variable is needed; there are: {names}")
    return variables[0]


def _shown(value: Any) -> str:
    """A result as text. Raises ToolError for what is none: a pole, an open integral."""
    import sympy

    if value.has(sympy.zoo, sympy.nan, sympy.oo, -sympy.oo):
        raise ToolError("there is no finite value")
    if value.has(sympy.Integral):
        raise ToolError("no closed form is known")
    if value.is_Integer:
        return calculator.written(int(value))
    if not (value.is_number and value.is_real):
        return str(value).replace("**", "^")
    number = float(value)
    if math.isinf(number):
        raise ToolError("the value is too large")
    return calculator.written(number)


def _formula(node: ast.expr) -> Any:
    """A tree as sympy's objects; an equation is the difference of its sides."""
    import sympy

    match node:
        # bool is an int to Python, and True is no number of a formula.
        case ast.Constant(value=bool()):
            raise calculator.unknown(node)
        case ast.Constant(value=int() as number):
            return sympy.Integer(number)
        case ast.Constant(value=float() as number):
            # By its digits: 0.1 is a tenth here, not the nearest binary fraction.
            return sympy.Rational(repr(number))
        case ast.Name(id="pi"):
            return sympy.pi
        case ast.Name(id="e"):
            return sympy.E
        case ast.Name(id=name) if name in VARIABLES:
            return sympy.Symbol(name, real=True)
        case ast.UnaryOp(op=ast.USub()):
            return -_formula(node.operand)
        case ast.UnaryOp(op=ast.UAdd()):
            return _formula(node.operand)
        case ast.BinOp():
            left, right = _formula(node.left), _formula(node.right)
            return calculator.combined(node, left, right, OPERATORS)
        case ast.Call():
            return _applied(node)
        case ast.Compare(ops=[ast.Eq()], comparators=[right]):
            return _formula(node.left) - _formula(right)
    raise calculator.unknown(node)


def _power(base: Any, exponent: Any) -> Any:
    if not exponent.is_number or abs(exponent) > LARGEST_EXPONENT:
        raise ToolError(f"exponents go to {LARGEST_EXPONENT}")
    return base**exponent


OPERATORS: calculator.Operators = {
    **calculator.BASIC,
    ast.Div: operator.truediv,
    ast.Pow: _power,
}


def _applied(node: ast.Call) -> Any:
    import sympy

    name = calculator.function_in(node, FUNCTIONS)
    return getattr(sympy, name)(_formula(_only(node.args)))
