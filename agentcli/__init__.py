"""agentcli: train language-model agents in stages that read and write files.

The commands are in `agentcli.cli`. In Python, the functions listed in `__all__` read
what a run holds and give credit (agentcli/api.py). They are imported when they are
first asked for.
"""

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentcli.api import (
        assign,
        read_credit,
        read_episodes,
        read_trees,
        step_advantages,
        to_frame,
        token_advantages,
        trajectories,
    )
    from agentcli.version import __version__

SENDS_NOTHING = {
    "GRADIO_ANALYTICS_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "WANDB_ERROR_REPORTING": "false",
}
"""Variables that keep libraries from reporting their use, unless the user has set them.

Every library reads its own when it is imported, and the first import is this one.
"""
for _name, _value in SENDS_NOTHING.items():
    os.environ.setdefault(_name, _value)

__all__ = [
    "__version__",
    "assign",
    "read_credit",
    "read_episodes",
    "read_trees",
    "step_advantages",
    "to_frame",
    "token_advantages",
    "trajectories",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = "agentcli.version" if name == "__version__" else "agentcli.api"
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
