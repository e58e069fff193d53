"""The sorts of generated questions, as data: here, and in the TSV files beside this one.

A text has slots: a, b, c, d are numbers of two digits, e is a small exponent, s is a
thing of `kind`. A lookup's value is v, that of a second one w. The last step computes
the answer: `formula` gives its value, and `calls` how each tool can be asked for it. A
question without a formula asks for what is looked up. Arguments are written with spaces
between all tokens and no word before a number, so that a policy of whole-word tokens
can write them (policies/tiny.py).
"""

from typing import NamedTuple

from agentcli.worlds.tool_qa.knowledge import KINDS, table


class Template(NamedTuple):
    """One sort of question."""

    name: str
    category: str
    text: str
    kind: str = ""
    """Sort of the thing s; empty where there is none, `unit` for a conversion."""
    lookups: tuple[str, ...] = ()
    """Properties of s that must be known first."""
    formula: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    """Tool and argument, the best tool first."""
    program: str = ""
    """Name of the function that stands for `formula` (questions.py)."""


ARITHMETIC = ("calculator", "python", "algebra")


def _computed(name: str, category: str, text: str, formula: str) -> Template:
    """A formula that three tools can compute."""
    calls = tuple((tool, formula) for tool in ARITHMETIC)
    return Template(name, category, text, formula=formula, calls=calls)


def _looked_up(name: str, text: str, kind: str, lookups: str, formula: str) -> Template:
    """Properties that are looked up, and what is computed of them."""
    category = next(one.category for one in KINDS if one.name == kind)
    calls = tuple((tool, formula) for tool in ARITHMETIC if formula)
    properties = tuple(lookups.split(", "))
    return Template(name, category, text, kind, properties, formula, calls)


def _converted(name: str, category: str, text: str, unit: str, other: str) -> Template:
    """A unit conversion: at once, or by the factor."""
    formula = "{a} * {v}"
    convert = f"{{a}} {unit} to {other}"
    calls = (("units", convert), *((tool, formula) for tool in ARITHMETIC))
    lookup = f"{other} per {unit}"
    return Template(name, category, text, "unit", (lookup,), formula, calls)


def _solved(
    name: str,
    category: str,
    text: str,
    formula: str,
    command: str,
    others: tuple[str, ...] = ("calculator", "python"),
) -> Template:
    """A formula that algebra finds by a command, and others compute."""
    calls = (("algebra", command), *((tool, formula) for tool in others))
    return Template(name, category, text, formula=formula, calls=calls)


def _programmed(name: str, text: str, program: str) -> Template:
    """What only a program computes."""
    calls = (("python", program),)
    return Template(name, "computer science", text, calls=calls, program=name)


TEMPLATES = (
    _computed(
        "product",
        "math",
        "What is the product of {a}, {b}, {c} and {d}?",
        "{a} * {b} * {c} * {d}",
    ),
    _computed(
        "sum of products",
        "math",
        "What is {a} times {b} plus {c} times {d}?",
        "{a} * {b} + {c} * {d}",
    ),
    _computed(
        "workshop",
        "business",
        "A workshop makes {a} parts an hour on each of {b} machines. How many parts are "
        "made in {c} hours?",
        "{a} * {b} * {c}",
    ),
    _computed(
        "freight",
        "other",
        "A ship carries {a} stacks of {b} crates with {c} boxes of {d} tins each. How "
        "many tins are on board?",
        "{a} * {b} * {c} * {d}",
    ),
    _computed(
        "energy",
        "physics",
        "What is the kinetic energy in joules of {a} kilograms that move at {b} metres "
        "per second?",
        "{a} * {b} * {b} / 2",
    ),
    _solved(
        "quotient equation",
        "math",
        "Which x solves x / {a} - {b} = {c}?",
        "{a} * ( {b} + {c} )",
        "solve ( x / {a} - {b} = {c} )",
    ),
    _solved(
        "slope",
        "math",
        "What is the slope of the curve {a} x^3 + {b} x^2 at x = {c}?",
        "3 * {a} * {c} * {c} + 2 * {b} * {c}",
        "diff ( {a} * x ^ 3 + {b} * x ^ 2 , {c} )",
    ),
    _solved(
        "area",
        "engineering",
        "What is the area under the curve {a} x^2 + {b} from 0 to {c}?",
        "{a} * {c} * {c} * {c} / 3 + {b} * {c}",
        "integrate ( {a} * x ^ 2 + {b} , 0 , {c} )",
        others=("calculator",),
    ),
    _programmed(
        "digit sum",
        "What is the sum of the digits of {a} to the power of {e}?",
        "sum ( int ( d ) for d in str ( pow ( {a} , {e} ) ) )",
    ),
    _programmed(
        "ones",
        "How many ones are in the binary form of the product of {a}, {b} and {c}?",
        "( {a} * {b} * {c} ) . bit_count ( )",
    ),
    _programmed(
        "multiples",
        "How many numbers below the product of {a} and {b} are multiples of {c} or of "
        "{d}?",
        "sum ( not ( n % {c} and n % {d} ) for n in range ( 1 , {a} * {b} ) )",
    ),
    *(_converted(**row) for row in table("conversions.tsv")),
    *(_looked_up(**row) for row in table("lookups.tsv")),
)
