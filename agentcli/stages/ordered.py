"""Record files whose lines are of tasks: trees, episodes, seconds. Brings them into a
panel's order.
"""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import msgspec

from agentcli.records.types import Task


class _Head(msgspec.Struct):
    """The part of a record that sorting needs."""

    task: Task | str


def write_in_order(sources: Sequence[Path], tasks: Iterable[str], out: Path) -> None:
    """Write the lines of all sources to `out` in the order of the tasks, without
    holding them in memory.

    Lines of one task keep their order; lines of other tasks are left out. `out`, which
    may be a source, appears whole.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(out.name + ".part")
    with ExitStack() as stack:
        places: dict[str, list[tuple[IO[bytes], int]]] = {}
        for source in sources:
            file = stack.enter_context(open(source, "rb"))
            for task, offset in _offsets(file):
                places.setdefault(task, []).append((file, offset))
        ordered = stack.enter_context(open(part, "wb"))
        for task in tasks:
            for origin, offset in places.get(task, ()):
                origin.seek(offset)
                ordered.write(origin.readline())
    part.replace(out)


def _offsets(file: IO[bytes]) -> Iterable[tuple[str, int]]:
    """The task of every line, and where the line begins."""
    decoder = msgspec.json.Decoder(_Head)
    offset = 0
    for line in file:
        task = decoder.decode(line).task
        yield task if isinstance(task, str) else task.id, offset
        offset += len(line)
