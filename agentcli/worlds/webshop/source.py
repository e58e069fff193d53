"""Where the catalogue comes from: a folder of WebShop's files, or the generator."""

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from agentcli.environments.protocol import PLACE, Requisite
from agentcli.errors import DataError, UsageError
from agentcli.records.types import Task
from agentcli.worlds.webshop.catalogue import Catalogue, in_memory
from agentcli.worlds.webshop.files import (
    ENDINGS,
    check_folder,
    file_names,
    names_of_size,
    read_products,
)
from agentcli.worlds.webshop.generator import generated, kinds_of
from agentcli.worlds.webshop.options import VARIABLE, WebshopOptions

DOWNLOAD = (
    "download them as WebShop's README says (github.com/princeton-nlp/WebShop), then "
    f"export {VARIABLE}=DIR (without it, a catalogue is generated)"
)


class GoalSource:
    """The goals as tasks, and the catalogue behind them.

    It is cheap to make. Raises UsageError for an unknown kind of product and DataError
    for a folder that lacks a file.
    """

    def __init__(self, options: WebshopOptions, data: str | None) -> None:
        self._options = options
        named = data or os.environ.get(VARIABLE)
        self._data = Path(named).expanduser() if named else None
        if self._data:
            check_folder(self._data, options, "--data" if data else VARIABLE)
            return
        kinds_of(options)
        if options.goals == "human":
            raise UsageError(
                f"{PLACE}.goals: a generated catalogue has no human goals; name "
                "WebShop's files with --data"
            )

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue, made once in a process. Raises DataError."""
        return _catalogue(self._options, self._data)

    @property
    def goals(self) -> int:
        """Number of goals. Raises DataError where there is none."""
        count = len(self.catalogue.order)
        if count == 0:
            raise DataError(
                f"{self._data}: no product has an instruction for "
                f"{PLACE}.goals={self._options.goals}; choose other goals, "
                "or download the files again"
            )
        return count

    def task(self, number: int, split: str, world: str) -> Task:
        """The task of a goal by its place in the order."""
        asker = self.catalogue.asker(number)
        identifier = f"{self._prefix}/{number}-{asker.asin}"
        return Task(id=identifier, world=world, split=split, kind=asker.category)

    def number(self, task: Task) -> int:
        """The place of a task's goal. Raises DataError for a task of other settings."""
        _, _, rest = task.id.partition("/")
        number = rest.partition("-")[0]
        if number.isascii() and number.isdigit() and int(number) < self.goals:
            place = int(number)
            if self.task(place, task.split, task.world).id == task.id:
                return place
        raise DataError(
            f"task {task.id}: it is none of these environment.options and --data; use "
            "those of its panel"
        )

    @property
    def _prefix(self) -> str:
        options = self._options
        if self._data:
            return f"{options.size}-{options.goals}"
        kinds = "all" if options.kinds is None else "+".join(options.kinds)
        name = f"made-{options.seed}-{options.products}-{kinds}"
        return name.replace(" ", "-")


@lru_cache(maxsize=2)
def _catalogue(options: WebshopOptions, data: Path | None) -> Catalogue:
    if data is None:
        return in_memory(list(generated(options)), options.goals)
    if options.size == "small":
        return in_memory(list(read_products(data, options)), options.goals)
    from agentcli.worlds.webshop.shelf import fill, folder_of, open_shelf

    sources = [data / name for name in file_names(options)]
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
    for size in ENDINGS:
        files = [folder / one for one in names_of_size(size)]
        if all(path.is_file() for path in files):
            total = sum(path.stat().st_size for path in files)
            sizes.append(f"{size} ({total / 2**20:.1f} MiB)")
    detail = f"{folder}: {', '.join(sizes) or 'neither size is complete'}"
    get = None if sizes else DOWNLOAD
    return Requisite(name=name, present=bool(sizes), detail=detail, get=get)
