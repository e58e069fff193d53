"""WebShop: find the product that an instruction asks for, choose its options, buy it.

The files of WebShop are read unchanged where --data names their folder; else the
catalogue is generated in the same schema. The reward is between 0 and 1 and comes with
the purchase; success is reward 1.
"""

import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from agentcli.environments.cache import cache_folder
from agentcli.environments.making import BAR, no_bar
from agentcli.environments.protocol import PLACE, Card, Requisite, options_of
from agentcli.errors import DataError, UsageError
from agentcli.records.faults import one_line, shown
from agentcli.records.regular import is_there, open_regular
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.worlds.generated import foreign_task
from agentcli.worlds.webshop.catalogue import (
    Catalogue,
    fill,
    folder_of,
    in_memory,
    open_shelf,
)
from agentcli.worlds.webshop.engine import WebshopEngine
from agentcli.worlds.webshop.generator import (
    VARIABLE,
    WebshopOptions,
    generated,
    kinds_of,
)
from agentcli.worlds.webshop.products import (
    LONGEST_ASIN,
    HumanInstruction,
    Product,
    RawAttributes,
    RawProduct,
    product_of,
)
from agentcli.worlds.webshop.tutor import WebshopHabits, advise, compact, names

if TYPE_CHECKING:
    from io import BufferedReader

DOWNLOAD = (
    "download them as WebShop's README says (github.com/princeton-nlp/WebShop), then "
    f"export {VARIABLE}=DIR (without it, a catalogue is generated)"
)


@lru_cache(maxsize=2)
def _catalogue(options: WebshopOptions, data: Path | None) -> Catalogue:
    if data is None:
        return in_memory(list(generated(options)), options.goals)
    if options.size == "small":
        return in_memory(list(read_products(data, options)), options.goals)
    sources = [data / name for name in file_names(options)]
    # On disk, or each engine process would hold a million products.
    folder = folder_of(sources, options.goals)
    if not folder.is_dir():
        fill(folder, read_products(data, options), options.goals)
    return open_shelf(folder, options.goals)


def real_files(environ: Mapping[str, str]) -> Requisite:
    """WebShop's files as the environment names them."""
    name = "webshop data"
    named = environ.get(VARIABLE)
    if not named:
        detail = f"{VARIABLE} is not set"
        return Requisite(name=name, present=False, detail=detail, get=DOWNLOAD)
    folder = Path(named).expanduser()
    sizes = []
    for size, pair in FILES.items():
        files = [folder / name for name in pair]
        if all(path.is_file() for path in files):
            total = sum(path.stat().st_size for path in files)
            mib = total / MIB
            sizes.append(f"{size} ({mib:.1f} MiB)")
    detail = f"{folder}: {', '.join(sizes) or 'neither size is complete'}"
    get = None if sizes else DOWNLOAD
    return Requisite(name=name, present=bool(sizes), detail=detail, get=get)


RowT = TypeVar("RowT")
FILES = {
    "small": ("items_shuffle_1000.json", "items_ins_v2_1000.json"),
    "all": ("items_shuffle.json", "items_ins_v2.json"),
}
"""The files of products and attributes, by size."""
HUMAN = "items_human_ins.json"
MIB = 2**20
LONG = 64
"""MiB of a file from which on its reading is worth a bar."""


def file_names(options: WebshopOptions) -> list[str]:
    """The files that these options need: products, attributes, instructions."""
    instructions = [HUMAN] if options.goals == "human" else []
    return [*FILES[options.size], *instructions]


def check_folder(data: Path, options: WebshopOptions, source: str) -> None:
    """Refuses a folder that lacks a file. Raises DataError."""
    for name in file_names(options):
        if not is_there(data / name):
            other = "all" if options.size == "small" else "small"
            raise DataError(
                f"{source} {data}: no {name} in it; download it as WebShop's README "
                f"says, or read the other size with --set {PLACE}.size={other}, or "
                "leave the folder out for a generated catalogue"
            )


def read_products(data: Path, options: WebshopOptions) -> Iterator[Product]:
    """All products in their order. Raises DataError."""
    products, *companions = (data / name for name in file_names(options))
    attributes = _by_asin(companions[0], RawAttributes)
    human: dict[str, tuple[HumanInstruction, ...]] = {}
    if options.goals == "human":
        human = _by_asin(companions[1], tuple[HumanInstruction, ...])
    taken: set[str] = set()
    for number, value in enumerate(_streamed(products, "item"), 1):
        place = f"{products}: row {number}"
        raw = _converted(value, RawProduct, place)
        # As WebShop's loader does, so that the numbers of goals are the same.
        if raw.asin == "nan" or len(raw.asin) > LONGEST_ASIN or raw.asin in taken:
            continue
        taken.add(raw.asin)
        listed = attributes.get(raw.asin)
        asked = human.get(raw.asin, ())
        yield product_of(raw, listed, asked, place)


def _by_asin(path: Path, kind: type[RowT]) -> dict[str, RowT]:
    """The rows of a file that is one mapping."""
    rows = {}
    for asin, value in _streamed(path, None):
        rows[asin] = _converted(value, kind, f"{path}: {asin}")
    return rows


def _streamed(path: Path, prefix: str | None) -> Iterator[Any]:
    """The items of a list, or with no prefix the pairs of a mapping.

    Raises DataError for a file that ends too early or holds something else.
    """
    import ijson

    file: BufferedReader
    count = 0
    size = path.stat().st_size // MIB
    show = BAR.get() if size >= LONG else no_bar
    with open_regular(path) as file, show(f"{path.name} (MiB)", size) as reach:
        items = (
            ijson.kvitems(file, "", use_float=True)
            if prefix is None
            else ijson.items(file, prefix, use_float=True)
        )
        try:
            for item in items:
                count += 1
                reach(file.tell() // MIB)
                yield item
        except (ijson.JSONError, UnicodeDecodeError) as error:
            reason = shown(one_line(error))
            raise DataError(
                f"{path}: after row {count} it ends too early or is not JSON "
                f"({reason}); download it again"
            ) from error
    if count == 0:
        raise DataError(f"{path}: holds no rows; download it again")


def _converted(value: object, kind: type[RowT], place: str) -> RowT:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise DataError(f"{place}: {shown(str(error))}") from error


class WebshopWorld:
    """The World and its Tutor; cheap to make.

    Raises UsageError for an unknown kind of product and for options that need files,
    and DataError for a folder that lacks a file.
    """

    card = Card(
        name="webshop",
        role=(
            "You are an expert autonomous agent operating in the WebShop e-commerce "
            "environment."
        ),
        splits=("train", "test"),
        evaluation_split="test",
        meanings={"test": "goals 0 to 499 of WebShop's order; train has the rest"},
        reads_data=True,
        extra="webshop",
    )
    habits = WebshopHabits
    compact = staticmethod(compact)
    next = staticmethod(advise)

    def __init__(self, settings: EnvironmentSettings) -> None:
        self.options = options = options_of(settings, WebshopOptions)
        named = settings.data or os.environ.get(VARIABLE)
        self._data = Path(named).expanduser() if named else None
        if self._data:
            source = "--data" if settings.data else VARIABLE
            check_folder(self._data, options, source)
            return
        kinds_of(options)
        if options.goals == "human":
            raise UsageError(
                f"{PLACE}.goals: a generated catalogue has no human goals; name "
                "WebShop's files with --data"
            )
        if options.size == "all":
            raise UsageError(
                f"{PLACE}.size: selects among WebShop's files; name them with --data, "
                f"or make a larger catalogue with --set {PLACE}.products=N"
            )

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue, made once in a process. Raises DataError."""
        return _catalogue(self.options, self._data)

    def tasks(self, split: str) -> list[Task]:
        """The goals of a split, in WebShop's order; kind is the product's category.

        Raises DataError where there is no goal at all.
        """
        count = len(self.catalogue.order)
        if count == 0:
            raise DataError(
                f"{self._data}: no product has an instruction for "
                f"{PLACE}.goals={self.options.goals}; choose other goals, "
                "or download the files again"
            )
        tests = min(self.options.tests, count)
        numbers = range(tests) if split == "test" else range(tests, count)
        return [self._task(number, split) for number in numbers]

    def _task(self, number: int, split: str) -> Task:
        """The task of a goal by its place in the order."""
        asker = self.catalogue.asker(number)
        name = f"{self._prefix}/{number}-{asker.asin}"
        return Task(id=name, world=self.card.name, split=split, kind=asker.category)

    def _number(self, task: Task) -> int:
        """The place of a task's goal. Raises DataError for a task of other settings."""
        _, _, rest = task.id.partition("/")
        number = rest.partition("-")[0]
        goals = len(self.catalogue.order)
        if number.isascii() and number.isdigit() and int(number) < goals:
            place = int(number)
            # The id names the product, too: other settings may put another goal at this
            # place.
            if self._task(place, task.split).id == task.id:
                return place
        raise foreign_task(task)

    @property
    def _prefix(self) -> str:
        options = self.options
        if self._data:
            return f"{options.size}-{options.goals}"
        kinds = "all" if options.kinds is None else "+".join(options.kinds)
        name = f"made-{options.seed}-{options.products}-{kinds}"
        return name.replace(" ", "-")

    def engine(self) -> WebshopEngine:
        """A new engine; all engines of a process share one catalogue."""
        # An ImportError of what they need is due here, not in the middle of a rollout.
        import bm25s  # noqa: F401
        import rapidfuzz  # noqa: F401
        import Stemmer  # noqa: F401

        return WebshopEngine(self.catalogue, self._number)

    def vocabulary(self) -> list[str]:
        """Asins, options and attributes, as whole tokens."""
        if self.options.size == "all":
            raise UsageError(
                f"{PLACE}.size: a million products are too many for the words of a "
                "tiny policy; choose small"
            )
        return names(self.catalogue.products)

    @staticmethod
    def requisites(environ: Mapping[str, str]) -> list[Requisite]:
        return [real_files(environ)]

    @staticmethod
    def cache_folder(environ: Mapping[str, str]) -> Path:
        return cache_folder(environ, "webshop")
