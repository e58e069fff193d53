"""The main memory that this process may still take, and what to say if it ran out.

It is the least of what the machine has left, what the control groups of a container or
a batch job leave, and what a limit on the address space (ulimit -v) leaves. Under such
a limit every allocation may fail. Python raises MemoryError, but the loader of shared
libraries, C++ and threads raise errors of their own.
"""

import errno
import gc
import os
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
STATUS = Path("/proc/self/status")
OWN_GROUPS = Path("/proc/self/cgroup")
GROUPS = Path("/sys/fs/cgroup")
NAMES = {
    "": ("memory.max", "memory.current"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes"),
}
"""The files with a group's limit and use: of cgroup 2, and of 1, in a folder of its own.
"""
FILES_IN_CACHE = "inactive_file"
"""The line of memory.stat with the use that the kernel gives back by itself."""
SIGNS = re.compile(
    "bad_alloc|failed to map segment|(?:not|n't) allocate|can't start new thread"
    "|error return without exception set",
    re.IGNORECASE,
)
"""How libraries put it."""
TORCH_ADDRESSES = 850 << 20
"""Bytes of addresses that the imports of torch and transformers take (measured on a
CPU). With fewer, a library may abort the process, or wait for ever.
"""


def free_memory() -> int:
    """Bytes that this process may still take without being refused or killed."""
    free = _kibibytes(MEMINFO, "MemAvailable")
    if free is None:
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = address_limit()
    if limit is not None:
        free = min(free, limit - (_kibibytes(STATUS, "VmSize") or 0))
    return max(0, min([free, *_left_by_groups()]))


def address_limit() -> int | None:
    """Bytes of addresses that `ulimit -v` allows this process; None: any number."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit


def lacks_memory(error: BaseException | None) -> bool:
    """Whether memory ran out, in this error or in one that caused it."""
    while error is not None:
        if isinstance(error, MemoryError) or SIGNS.search(str(error)):
            return True
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:
            return True
        error = error.__cause__
    return False


def shortage() -> str:
    """What is short, and what to do about it."""
    allowed = address_limit()
    if allowed is None:
        return (
            "memory ran out; end other programs, or lower what is computed at a time "
            "(--concurrency, --set train.rows_per_microbatch)"
        )
    return (
        f"memory ran out: `ulimit -v` allows this process {allowed >> 20} MiB; allow "
        "more with: ulimit -v unlimited"
    )


def use_threads(count: int) -> None:
    """Imports torch, and sets the number of its threads in this process.

    It is one by default: more are much slower on shared cores. Raises MemoryError where
    a limit leaves too little room for it.
    """
    allowed = address_limit()
    if allowed is not None and allowed < TORCH_ADDRESSES:
        raise MemoryError(f"{TORCH_ADDRESSES >> 20} MiB of addresses are needed")
    import torch

    torch.set_num_threads(count)


@contextmanager
def modules_passed_over() -> Iterator[None]:
    """Collections inside pass over all objects that there are at its beginning.

    The modules of torch and transformers are half a million objects. To walk them takes
    a third of a second, about once in two thousand steps of a rollout.
    """
    if gc.get_freeze_count():
        # The program around this passes them over already, and goes on to.
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _left_by_groups() -> Iterator[int]:
    """What each control group above this process leaves, where it has a limit."""
    for line in _text(OWN_GROUPS).splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            if controller in NAMES:
                root = GROUPS / controller
                group = root / path.lstrip("/")
                limit, use = NAMES[controller]
                # In a container the path may be the host's; the limit is at the root.
                for folder in (group, *group.parents):
                    if folder.is_relative_to(root):
                        yield from _left(folder, limit, use)


def _left(group: Path, limit: str, use: str) -> Iterator[int]:
    """What one group leaves; nothing if it has no limit."""
    most, used = _text(group / limit).strip(), _text(group / use).strip()
    if most.isdecimal() and used.isdecimal():
        # Pages of files count as used, and are given back when memory is short.
        cached = _number(group / "memory.stat", rf"^{FILES_IN_CACHE} (\d+)$") or 0
        yield int(most) - int(used) + cached


def _kibibytes(file: Path, name: str) -> int | None:
    """A value of a file in /proc, in bytes."""
    value = _number(file, rf"^{name}:\s+(\d+) kB$")
    return None if value is None else 1024 * value


def _number(file: Path, pattern: str) -> int | None:
    """The number that a line of the file has."""
    line = re.search(pattern, _text(file), re.MULTILINE)
    return None if line is None else int(line[1])


def _text(file: Path) -> str:
    """The file's text; empty if it cannot be read."""
    try:
        return file.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""
