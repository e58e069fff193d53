"""One torch thread per process by default: more are much slower on shared cores."""

from agentcli.records.shortage import require_addresses

TORCH_ADDRESSES = 850 << 20
"""Bytes of addresses that the imports of torch and transformers take (measured on a
CPU). With fewer, a library may abort the process, or wait for ever.
"""


def use_threads(count: int) -> None:
    """Imports torch, and sets the number of its threads in this process.

    Raises MemoryError where a limit leaves too little room for it.
    """
    require_addresses(TORCH_ADDRESSES)
    import torch

    torch.set_num_threads(count)
