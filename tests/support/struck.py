"""`agentcli WORDS...` that kills itself before its N-th change of the file system: `python -m struck WORDS...` reads one N a line,
and answers with the exit code.

So a test strikes between any two steps by which files are written, replaced and deleted, with no clock and no luck. Each attempt is
a fork of one process, so that the libraries are loaded once.
"""

import gc
import importlib
import os
import signal
import sys
from typing import Any

from agentcli.cli.app import main

CHANGES = {"os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.truncate"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

LIBRARIES = (
    "agentcli.policies.hf",
    "agentcli.stages.loop",
    "agentcli.training.policy_gradient.training",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.qwen2.modeling_qwen2",
)
"""What a command with a model imports when it needs it."""


def strike_at(number: int) -> None:
    """Kills this process before its `number`-th change."""
    owed = number

    def hook(event: str, values: tuple[Any, ...]) -> None:
        nonlocal owed
        if event not in CHANGES and not (event == "open" and values[2] & WRITING):
            return
        owed -= 1
        if owed == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def attempt(number: int) -> None:
    """Runs the command in this process, and ends it."""
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    strike_at(number)
    try:
        main()
    except SystemExit as end:
        os._exit(int(end.code or 0))
    os._exit(0)


if __name__ == "__main__":
    sys.argv[0] = "agentcli"
    if "--model" in sys.argv:
        for name in LIBRARIES:
            importlib.import_module(name)
    # Each training collects garbage, and would touch every imported object.
    gc.freeze()
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            attempt(int(line))
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
