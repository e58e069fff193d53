"""The sorts of generated questions, as data.

A text has slots: a, b, c, d are numbers of two digits, e is a small exponent, s is a
thing of `kind`. A lookup's value is v, that of a second one w. The last step computes
the answer: `formula` gives its value, and `calls` how each tool can be asked for it. A
question without a formula asks for what is looked up. Arguments are written with spaces
between all tokens and no word before a number, so that a policy of whole-word tokens
can write them (policies/tiny.py).
"""

from typing import NamedTuple

from agentcli.worlds.tool_qa.knowledge import KINDS


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


def _looked_up(
    name: str, text: str, kind: str, lookups: str, formula: str = ""
) -> Template:
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
    _converted(
        "miles", "physics", "How many kilometres are {a} miles?", "mile", "kilometre"
    ),
    _converted(
        "knots",
        "history",
        "How many kilometres did a fleet sail that logged {a} nautical miles?",
        "nautical_mile",
        "kilometre",
    ),
    _converted(
        "inches",
        "engineering",
        "How many centimetres is a beam of {a} inches?",
        "inch",
        "centimetre",
    ),
    _converted(
        "pounds",
        "health",
        "What is the mass in kilograms of a patient of {a} pounds?",
        "pound",
        "kilogram",
    ),
    _converted(
        "ounces", "chemistry", "How many grams are {a} ounces of salt?", "ounce", "gram"
    ),
    _converted("weeks", "other", "How many seconds are {a} weeks?", "week", "second"),
    _converted("days", "law", "How many minutes are {a} days?", "day", "minute"),
    _converted(
        "power",
        "engineering",
        "How many megajoules are {a} kilowatt hours?",
        "kilowatt_hour",
        "megajoule",
    ),
    _converted(
        "pressure",
        "physics",
        "How many pascals are {a} atmospheres?",
        "atmosphere",
        "pascal",
    ),
    _converted(
        "heat", "biology", "How many joules are {a} calories?", "calorie", "joule"
    ),
    _looked_up(
        "mass",
        "What is the mass in kilograms of {a} jars that hold {b} litres of {s} each?",
        "mineral",
        "density",
        "{a} * {b} * {v}",
    ),
    _looked_up(
        "melting",
        "At how many degrees Celsius does {s} melt?",
        "mineral",
        "melting point",
    ),
    _looked_up(
        "load",
        "Which force in newtons does a bar of {s} bear that is {a} by {b} millimetres?",
        "alloy",
        "strength",
        "{v} * {a} * {b}",
    ),
    _looked_up(
        "fall",
        "How fast, in metres per second, is a stone after falling {a} seconds on the "
        "moon {s}?",
        "moon",
        "surface gravity",
        "{v} * {a}",
    ),
    _looked_up(
        "orbits",
        "How many days do {a} orbits of the moon {s} take?",
        "moon",
        "orbital period",
        "{v} * {a}",
    ),
    _looked_up(
        "chromosomes",
        "How many chromosomes are in {a} samples of {b} cells of the animal {s}?",
        "animal",
        "chromosome number",
        "{v} * {a} * {b}",
    ),
    _looked_up(
        "river", "At which river does the animal {s} live?", "animal", "home river"
    ),
    _looked_up(
        "dose",
        "How many milligrams of {s} does a patient of {a} kilograms take in {b} days?",
        "drug",
        "daily dose",
        "{v} * {a} * {b}",
    ),
    _looked_up(
        "antidote", "Which plant is the antidote to the drug {s}?", "drug", "antidote"
    ),
    _looked_up(
        "treaty year", "In which year was the treaty of {s} signed?", "treaty", "year"
    ),
    _looked_up(
        "treaty host",
        "Which city hosted the signing of the treaty of {s}?",
        "treaty",
        "host city",
    ),
    _looked_up(
        "delegates",
        "Each state that signed the treaty of {s} sent {a} delegates to {b} meetings. "
        "How many seats were taken?",
        "treaty",
        "number of signatories",
        "{v} * {a} * {b}",
    ),
    _looked_up(
        "fine",
        "How many crowns does the {s} demand from {a} firms that are {b} days late?",
        "statute",
        "fine per day",
        "{v} * {a} * {b}",
    ),
    _looked_up(
        "limit",
        "How many days does the {s} leave for answering?",
        "statute",
        "time limit",
    ),
    _looked_up(
        "school",
        "To which school did the philosopher {s} belong?",
        "philosopher",
        "school",
    ),
    _looked_up(
        "pages",
        "How many pages did the philosopher {s} write at {a} pages a book?",
        "philosopher",
        "number of books",
        "{v} * {a}",
    ),
    _looked_up("effect", "Who discovered the {s} effect?", "effect", "discoverer"),
    _looked_up(
        "trials",
        "The {s} study is repeated {a} times with {b} trials a person. How many trials "
        "are that?",
        "effect",
        "sample size",
        "{v} * {a} * {b}",
    ),
    _looked_up(
        "output",
        "How many tonnes does the firm {s} make in {a} weeks of {b} days?",
        "firm",
        "daily output",
        "{v} * {a} * {b}",
    ),
    _looked_up("founder", "Who founded the firm {s}?", "firm", "founder"),
    _looked_up(
        "income",
        "What is the total income of {s}, in thousand million crowns?",
        "country",
        "population, income per head",
        "{v} * {w}",
    ),
    _looked_up(
        "towns",
        "What do {a} towns of {s} with {b} heads each earn, in thousand crowns?",
        "country",
        "income per head",
        "{v} * {a} * {b}",
    ),
    _looked_up("currency", "Which currency does {s} use?", "country", "currency"),
    _looked_up(
        "memory",
        "How many bytes does {s} need for {a} lists of {b} items?",
        "algorithm",
        "memory per item",
        "{v} * {a} * {b}",
    ),
    _looked_up("algorithm", "Who invented {s}?", "algorithm", "inventor"),
)
