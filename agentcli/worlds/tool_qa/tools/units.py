"""units: converts a quantity, by pint."""

import math
import re
from functools import lru_cache
from typing import Any

from agentcli.worlds.tool_qa.tools.calculator import as_float, evaluate, written
from agentcli.worlds.tool_qa.tools.registry import ToolError

LONGEST_UNIT = 60
"""Characters of one unit."""
LONGEST_QUANTITY = 300
"""Characters of a quantity; searching takes the cube of their number."""
_FORM = re.compile(
    r"(?P<value>[^a-zA-Zµ°]+?)\s*(?P<unit>[a-zA-Zµ°].*?)\s+(?:to|in)\s+(?P<target>.+)"
)
_UNIT = re.compile(
    r"[a-zA-Zµ°_]+(?:\s*\^\s*-?\d)?(?:\s*[*/ ]\s*[a-zA-Zµ°_]+(?:\s*\^\s*-?\d)?)*"
)


class Units:
    """A quantity in, the same quantity in another unit out."""

    name = "units"
    description = (
        "converts VALUE UNIT to UNIT, e.g. units[12 mile / hour to metre / second]"
    )
    cost = 0.2

    def run(self, argument: str) -> str:
        """The value in the other unit. Raises ToolError."""
        quantity_text = " ".join(argument.split())
        form = None
        if len(quantity_text) <= LONGEST_QUANTITY:
            form = _FORM.fullmatch(quantity_text)
        if form is None:
            raise ToolError("write VALUE UNIT to UNIT")
        value = as_float(evaluate(form["value"]))
        unit = _unit(form["unit"])
        target = _unit(form["target"])
        import pint

        try:
            quantity = _registry().Quantity(value, unit).to(target)
        except (pint.PintError, ArithmeticError, ValueError) as error:
            raise ToolError(str(error)) from error
        if not math.isfinite(quantity.magnitude):
            raise ToolError("the value is too large")
        return f"{written(quantity.magnitude)} {form['target']}"


@lru_cache(maxsize=1)
def _registry() -> Any:
    import pint

    return pint.UnitRegistry(cache_folder=None)


@lru_cache(maxsize=1024)
def _unit(text: str) -> Any:
    """A unit by its name. Raises ToolError."""
    import pint

    # pint would compute whatever powers it is given.
    if len(text) > LONGEST_UNIT or not _UNIT.fullmatch(text):
        raise ToolError(f"not a unit: {text}")
    try:
        return _registry().parse_units(text)
    except (pint.PintError, ValueError, TypeError, AttributeError) as error:
        raise ToolError(f"not a unit: {text}") from error
