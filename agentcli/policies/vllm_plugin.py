"""What every process of a vLLM engine does first, where agentcli started the engine.

vLLM calls it as a plug-in (pyproject.toml). An engine whose parent is killed would stay
for ever, with its GPU.
"""

import multiprocessing
import os
import signal

STARTED_HERE = "ENGINE_OF_AGENTCLI"
"""The variable that is set where agentcli starts an engine."""


def end_with_parent() -> None:
    """Has the kernel end this process when its parent ends, however that ends."""
    parent = multiprocessing.parent_process()
    if parent is None or STARTED_HERE not in os.environ:
        return
    from agentcli.records.kernel import die_with_parent

    die_with_parent(signal.SIGKILL)
    # It may have ended before the kernel was asked.
    if not parent.is_alive():
        os.kill(os.getpid(), signal.SIGKILL)
