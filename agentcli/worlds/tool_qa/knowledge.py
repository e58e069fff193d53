"""The invented knowledge of the embedded default: who knows what, and where it stands.

Names and values of the facts are drawn, so nobody can have read them elsewhere. Every
fact lies in one or more of four places: the table of facts, the encyclopaedia, the
collection of papers and the web. Which ones is drawn too, so that each tool has gaps,
and another tool often fills them. It never changes: a task means the same for ever.

The last three places are corpora of texts, which hold their facts among sentences that
say nothing.

Templates are the sorts of questions about it, as data: here, and in the TSV files beside.
A text has slots: a, b, c, d are numbers of two digits, e is a small exponent, s is a
thing of `kind`. A lookup's value is v, that of a second one w. The last step computes
the answer: `formula` gives its value, and `calls` how each tool can be asked for it. A
question without a formula asks for what is looked up. Arguments are written with spaces
between all tokens and no word before a number, so that a policy of whole-word tokens
can write them (policies/tiny.py).
"""

import csv
import random
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from agentcli.records.files import derive_seed
from agentcli.records.grouping import grouped
from agentcli.worlds.generated import invented_names


class Property(NamedTuple):
    """A property that every thing of a kind has."""

    name: str
    low: int = 0
    high: int = 0
    """Bounds of a number; 0 and 0 for a word."""
    unit: str = ""
    """Behind the number; for a word, what the word names."""

    @property
    def is_number(self) -> bool:
        return self.high > 0


class Kind(NamedTuple):
    """Things that have the same properties."""

    name: str
    category: str
    """The MMLU-Pro category of questions about it."""
    ending: str
    """How the invented names end."""
    properties: tuple[Property, ...]


def table(name: str) -> Iterator[dict[str, str]]:
    """The rows of a TSV file beside this one, by its heads; a cell may be empty."""
    text = Path(__file__).with_name(name).read_text("utf-8")
    return csv.DictReader(
        text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE, restval=""
    )


def _kinds() -> Iterator[Kind]:
    properties = []
    for row in table("kinds.tsv"):
        bounds = int(row["low"] or 0), int(row["high"] or 0)
        owner = row["kind"], row["category"], row["ending"]
        properties.append((owner, Property(row["property"], *bounds, row["unit"])))
    for owner, owned in grouped(properties).items():
        yield Kind(*owner, tuple(owned))


KINDS = tuple(_kinds())

# As texts, because a float would not hold most of them exactly.
FACTORS = {
    ("mile", "kilometre"): "1.609344",
    ("nautical_mile", "kilometre"): "1.852",
    ("inch", "centimetre"): "2.54",
    ("pound", "kilogram"): "0.45359237",
    ("ounce", "gram"): "28.349523125",
    ("week", "second"): "604800",
    ("day", "minute"): "1440",
    ("kilowatt_hour", "megajoule"): "3.6",
    ("atmosphere", "pascal"): "101325",
    ("calorie", "joule"): "4.184",
    ("byte", "bit"): "8",
}
"""How many of the second unit make one of the first, exactly."""


SUBJECTS = 20
"""Things of each kind."""
PLACES = {"facts": 0.6, "wikipedia": 0.6, "search": 0.5, "papers": 0.4}
"""Tool -> the share of all facts that its source holds."""
WORDS_OF_A_KIND = 24
"""Names of each sort of word, e.g. of persons."""


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """One property of one thing, and where it can be looked up."""

    subject: str
    kind: str
    trait: str
    """The name of a property."""
    value: str
    unit: str
    places: tuple[str, ...]
    """Names of the tools whose sources hold it; never empty."""

    @property
    def name(self) -> str:
        """How it is asked for, e.g. "density of Quorite"."""
        if self.kind == "unit":
            return self.trait
        return f"{self.trait} of {self.subject}"


class FactBase(msgspec.Struct, frozen=True):
    """All facts."""

    facts: dict[str, Fact]
    """By name, e.g. "density of quorite" or "kilometre per mile"."""
    subjects: dict[str, tuple[str, ...]]
    """The things of each kind."""
    words: dict[str, tuple[str, ...]]
    """The values that a property of words may have, by what they name."""


@lru_cache(maxsize=1)
def knowledge() -> FactBase:
    """The knowledge; drawn once in a process, the same in every one."""
    rng = random.Random(derive_seed("tool_qa", "knowledge"))
    # For words and things alike: no name may mean two things.
    taken: set[str] = set()
    words: dict[str, tuple[str, ...]] = {}
    subjects: dict[str, tuple[str, ...]] = {}
    facts: dict[str, Fact] = {}
    for kind in KINDS:
        for property in kind.properties:
            if not property.is_number and property.unit not in words:
                words[property.unit] = invented_names(rng, taken, "", WORDS_OF_A_KIND)
    for kind in KINDS:
        subjects[kind.name] = invented_names(rng, taken, kind.ending, SUBJECTS)
        for subject in subjects[kind.name]:
            for property in kind.properties:
                fact = _fact(rng, kind, property, subject, words)
                facts[fact.name] = fact
    for (unit, other), factor in FACTORS.items():
        name = f"{other} per {unit}"
        facts[name] = Fact(
            subject=unit,
            kind="unit",
            trait=name,
            value=factor,
            unit="",
            places=("facts", "search"),
        )
    return FactBase(facts, subjects, words)


def _fact(
    rng: random.Random,
    kind: Kind,
    property: Property,
    subject: str,
    words: dict[str, tuple[str, ...]],
) -> Fact:
    # Drawn for a word too: left out, it would shift every later fact.
    value = str(rng.randint(property.low, property.high))
    if not property.is_number:
        value = rng.choice(words[property.unit])
    places = [place for place, share in PLACES.items() if rng.random() < share]
    return Fact(
        subject=subject,
        kind=kind.name,
        trait=property.name,
        value=value,
        unit=property.unit if property.is_number else "",
        places=tuple(places) or ("search",),
    )


FILLERS = (
    "Much about {subject} is still debated.",
    "Older accounts of {subject} contradict each other.",
    "Every schoolchild of the region has heard of {subject}.",
    "{subject} has been described many times.",
    "A museum shows a model of {subject}.",
)
SITES = ("forum", "blog", "newspaper", "shop", "club")
ACCOUNTS = (
    *("A measurement", "A survey", "A review", "A new estimate", "An archive study"),
)


class Publication(msgspec.Struct, frozen=True):
    """One article, page or abstract."""

    title: str
    text: str


# One entry for each of WRITERS.
@lru_cache(maxsize=3)
def corpus(name: str) -> tuple[Publication, ...]:
    """The documents of a corpus, in their order."""
    subjects: dict[str, list[Fact]] = {}
    for fact in knowledge().facts.values():
        # Before the test: the web has a page on what it knows nothing about.
        facts = subjects.setdefault(fact.subject, [])
        if name in fact.places:
            facts.append(fact)
    rng = random.Random(derive_seed("tool_qa", "documents", name))
    documents: list[Publication] = []
    for subject, facts in subjects.items():
        documents += WRITERS[name](subject, facts, rng)
    return tuple(documents)


def sentence(fact: Fact) -> str:
    """A fact in words, e.g. "The density of Quorite is 23 kilograms per litre."."""
    value = f"{fact.value} {fact.unit}".strip()
    if fact.kind == "unit":
        return f"There are {value} {fact.name}."
    return f"The {fact.name} is {value}."


def _article(
    subject: str, facts: list[Fact], rng: random.Random
) -> Iterable[Publication]:
    """One article a subject, if anything is known of it."""
    if not facts:
        return
    kind = facts[0].kind
    article = "an" if kind[0] in "aeiou" else "a"
    opening = f"{subject} is {article} {kind}."
    sentences = [*map(sentence, facts), rng.choice(FILLERS).format(subject=subject)]
    yield Publication(subject, " ".join([opening, *sentences]))


def _pages(
    subject: str, facts: list[Fact], rng: random.Random
) -> Iterable[Publication]:
    """A page for every fact, and one that says nothing."""
    for fact in facts:
        title = f"{rng.choice(SITES)}: {subject} and its {fact.trait}"
        noise = rng.choice(FILLERS).format(subject=subject)
        yield Publication(title, f"{noise} {sentence(fact)}")
    title = f"{rng.choice(SITES)}: all about {subject}"
    yield Publication(title, " ".join(FILLERS[:2]).format(subject=subject))


def _abstracts(
    subject: str, facts: list[Fact], rng: random.Random
) -> Iterable[Publication]:
    """A paper for every fact."""
    authors = knowledge().words["person"]
    for fact in facts:
        author = rng.choice(authors)
        title = f"{rng.choice(ACCOUNTS)} of the {fact.trait} of {subject} ({author})"
        text = f"We study {subject} with a new method. {sentence(fact)}"
        yield Publication(title, f"{text} Earlier values are discussed.")


WRITERS: dict[
    str, Callable[[str, list[Fact], random.Random], Iterable[Publication]]
] = {
    "wikipedia": _article,
    "search": _pages,
    "papers": _abstracts,
}


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
