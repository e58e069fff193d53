"""Recognises errors that mean that memory ran out, and says how much was allowed.

Under a limit (`ulimit -v`) every allocation may fail. Python raises MemoryError, but the
loader of shared libraries, C++ and threads raise errors of their own.
"""

import errno
import re

from agentcli.records.free_memory import address_limit

SIGNS = re.compile(
    "bad_alloc|failed to map segment|(?:not|n't) allocate|can't start new thread"
    "|error return without exception set",
    re.IGNORECASE,
)
"""How libraries put it."""


def lacks_memory(error: BaseException | None) -> bool:
    """Whether memory ran out, in this error or in one that caused it."""
    while error is not None:
        if isinstance(error, MemoryError) or SIGNS.search(str(error)):
            return True
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:
            return True
        error = error.__cause__
    return False


def require_addresses(count: int) -> None:
    """Raises MemoryError if a limit allows this process fewer bytes of addresses."""
    allowed = address_limit()
    if allowed is not None and allowed < count:
        raise MemoryError(f"{count >> 20} MiB of addresses are needed")


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


TORCH_ADDRESSES = 850 << 20
"""Bytes of addresses that the imports of torch and transformers take (measured on a
CPU). With fewer, a library may abort the process, or wait for ever.
"""


def use_threads(count: int) -> None:
    """Imports torch, and sets the number of its threads in this process.

    It is one by default: more are much slower on shared cores.

    Raises MemoryError where a limit leaves too little room for it.
    """
    require_addresses(TORCH_ADDRESSES)
    import torch

    torch.set_num_threads(count)
