"""Code that runs first in every process of a vLLM engine started by agentcli.

vLLM calls it as a plug-in (pyproject.toml). Otherwise an engine whose parent is killed
would run forever and keep its GPU.
"""

import multiprocessing
import os
import signal
from typing import Any

STARTED_HERE = "ENGINE_OF_AGENTCLI"
"""The environment variable that marks engines started by agentcli."""


def end_with_parent() -> None:
    """Makes the kernel end this process when its parent ends, however that happens."""
    parent = multiprocessing.parent_process()
    if parent is None or STARTED_HERE not in os.environ:
        return
    from agentcli.records.kernel import die_with_parent

    die_with_parent(signal.SIGKILL)
    # The parent may have ended before the kernel was asked.
    if not parent.is_alive():
        os.kill(os.getpid(), signal.SIGKILL)


def coordinate(*arguments: Any, **options: Any) -> None:
    """Runs vLLM's coordinator of replicas, which loads no plug-ins, in its process."""
    end_with_parent()
    from vllm.v1.engine.coordinator import DPCoordinatorProc

    DPCoordinatorProc.run_coordinator(*arguments, **options)
