"""What there is to know in the generated corpora: kinds of things and their properties.

Names and values are invented (knowledge.py draws them), so nobody can have read them
elsewhere.
"""

from typing import NamedTuple


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
        """Whether its values are whole numbers."""
        return self.high > 0


class Kind(NamedTuple):
    """Things that have the same properties."""

    name: str
    category: str
    """The MMLU-Pro category of questions about it."""
    ending: str
    """How the invented names end."""
    properties: tuple[Property, ...]


def _kind(name: str, category: str, ending: str, *properties: Property) -> Kind:
    return Kind(name, category, ending, properties)


KINDS = (
    _kind(
        "mineral",
        "chemistry",
        "ite",
        Property("density", 11, 39, "kilograms per litre"),
        Property("melting point", 401, 1899, "degrees Celsius"),
        Property("colour", unit="colour"),
    ),
    _kind(
        "alloy",
        "engineering",
        "al",
        Property("strength", 41, 98, "newtons per square millimetre"),
        Property("inventor", unit="person"),
    ),
    _kind(
        "moon",
        "physics",
        "on",
        Property("surface gravity", 11, 29, "metres per second squared"),
        Property("orbital period", 12, 97, "days"),
        Property("finder", unit="person"),
    ),
    _kind(
        "animal",
        "biology",
        "ax",
        Property("chromosome number", 12, 96, "chromosomes"),
        Property("gestation time", 21, 99, "days"),
        Property("home river", unit="river"),
    ),
    _kind(
        "drug",
        "health",
        "ol",
        Property("daily dose", 11, 49, "milligrams per kilogram"),
        Property("half life", 11, 71, "hours"),
        Property("antidote", unit="plant"),
    ),
    _kind(
        "treaty",
        "history",
        "ford",
        Property("year", 1402, 1899),
        Property("number of signatories", 11, 39, "states"),
        Property("host city", unit="city"),
    ),
    _kind(
        "statute",
        "law",
        "act",
        Property("time limit", 14, 90, "days"),
        Property("fine per day", 21, 99, "crowns"),
        Property("author", unit="person"),
    ),
    _kind(
        "philosopher",
        "philosophy",
        "is",
        Property("school", unit="school"),
        Property("number of books", 11, 59, "books"),
        Property("birth year", 1101, 1890),
    ),
    _kind(
        "effect",
        "psychology",
        "ance",
        Property("discoverer", unit="person"),
        Property("sample size", 24, 96, "persons"),
    ),
    _kind(
        "firm",
        "business",
        "co",
        Property("daily output", 21, 99, "tonnes"),
        Property("founder", unit="person"),
    ),
    _kind(
        "country",
        "economics",
        "land",
        Property("population", 11, 98, "million"),
        Property("income per head", 12, 99, "thousand crowns"),
        Property("currency", unit="currency"),
    ),
    _kind(
        "algorithm",
        "computer science",
        "sort",
        Property("memory per item", 12, 96, "bytes"),
        Property("steps per item", 11, 64, "steps"),
        Property("inventor", unit="person"),
    ),
)

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
