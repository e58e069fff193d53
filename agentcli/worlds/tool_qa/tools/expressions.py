"""Reads formulas: a parsed tree of which only listed nodes are accepted, never `eval`.

`^` is a power and `=` an equation, as people write them.
"""

import ast
import operator
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from agentcli.worlds.tool_qa.tools.protocol import ToolError

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
