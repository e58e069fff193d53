"""WebShop's own files, read unchanged and as a stream: the large one has gigabytes.

A folder holds items_shuffle*.json, the products, items_ins_v2*.json, their attributes,
and for human goals items_human_ins.json. Products that WebShop's loader skips are
skipped here too: a repeated asin, "nan", and one of more than ten characters.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from agentcli.environments.making import BAR, no_bar
from agentcli.environments.protocol import PLACE
from agentcli.errors import DataError
from agentcli.records.faults import shown
from agentcli.records.regular import is_there, open_regular
from agentcli.worlds.webshop.options import WebshopOptions
from agentcli.worlds.webshop.products import (
    LONGEST_ASIN,
    HumanInstruction,
    Product,
    RawAttributes,
    RawProduct,
    product_of,
)

if TYPE_CHECKING:
    from io import BufferedReader

RowT = TypeVar("RowT")
ENDINGS = {"small": "_1000", "all": ""}
"""How the names of the files end, by size."""
HUMAN = "items_human_ins.json"
MIB = 2**20
LONG = 64
"""MiB of a file from which on its reading is worth a bar."""


def file_names(options: WebshopOptions) -> list[str]:
    """The files that these options need: products, attributes, instructions."""
    names = names_of_size(options.size)
    return [*names, HUMAN] if options.goals == "human" else names


def names_of_size(size: str) -> list[str]:
    """The files of products and attributes, small or all."""
    ending = ENDINGS[size]
    return [f"items_shuffle{ending}.json", f"items_ins_v2{ending}.json"]


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
        if raw.asin == "nan" or len(raw.asin) > LONGEST_ASIN or raw.asin in taken:
            continue
        taken.add(raw.asin)
        yield product_of(raw, attributes.get(raw.asin), human.get(raw.asin, ()), place)


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
    with open_regular(path) as file, _bar(path) as reach:
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
            reason = shown(" ".join(str(error).split()))
            raise DataError(
                f"{path}: after row {count} it ends too early or is not JSON "
                f"({reason}); download it again"
            ) from error
    if count == 0:
        raise DataError(f"{path}: holds no rows; download it again")


def _bar(path: Path) -> AbstractContextManager[Callable[[int], None]]:
    """A bar over a file that takes long to read."""
    size = path.stat().st_size // MIB
    show = BAR.get() if size >= LONG else no_bar
    return show(f"{path.name} (MiB)", size)


def _converted(value: object, kind: type[RowT], place: str) -> RowT:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise DataError(f"{place}: {shown(str(error))}") from error
