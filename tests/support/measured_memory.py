"""The memory that a command takes, as torch accounts for it."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path


def peak_of(work: Callable[[], object]) -> int:
    """The most bytes that torch has allocated and not freed while `work` runs.

    Weights are not among them: they are mapped from their file.
    """
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as account:
        work()
    trace = Path(tempfile.mkdtemp()) / "trace.json"
    account.export_chrome_trace(str(trace))
    held: dict[int, int] = {}
    total = most = 0
    for event in json.loads(trace.read_bytes())["traceEvents"]:
        if event.get("name") != "[memory]":
            continue
        address, size = event["args"]["Addr"], event["args"]["Bytes"]
        if size > 0:
            held[address] = size
            total += size
        # What was allocated before is none of this account.
        elif address in held:
            total -= held.pop(address)
        most = max(most, total)
    return most
