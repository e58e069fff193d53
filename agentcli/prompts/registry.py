"""All dialects by name.

An installed package adds its own under the entry-point group `agentcli.dialects`: a
class that is constructed from PromptSettings and a World.
"""

from typing import Protocol

from agentcli.environments.protocol import World
from agentcli.prompts.protocol import Dialect
from agentcli.records.settings import PromptSettings
from agentcli.registry import Registry

DIALECTS = {
    "full": "agentcli.prompts.full:Full",
    "shared": "agentcli.prompts.shared:Shared",
    "rlvmr": "agentcli.prompts.rlvmr:Rlvmr",
    "react": "agentcli.prompts.react:React",
    "tools": "agentcli.prompts.tools:Tools",
    "search": "agentcli.prompts.search:Search",
    "compact": "agentcli.prompts.compact:Compact",
    "parallel-full": "agentcli.prompts.parallel_full:ParallelFull",
    "parallel-compact": "agentcli.prompts.parallel_compact:ParallelCompact",
}
PARALLEL = "parallel-"
"""Begins the names of dialects for several copies of the environment."""

REGISTRY = Registry("agentcli.dialects", DIALECTS, key="prompt.style", kind="style")


def dialect_names() -> list[str]:
    """The built-in and installed names, sorted."""
    return REGISTRY.names()


class DialectClass(Protocol):
    """A dialect before it is made for a world."""

    fixed: str | None

    def __call__(self, settings: PromptSettings, world: World) -> Dialect:
        """Raises UsageError where the world cannot serve the dialect."""


def dialect_class(style: str, numbered: bool = False) -> DialectClass:
    """The dialect that `prompt.style` names.

    Where answers name copies by `numbered`, its counterpart for several copies. Raises
    UsageError with the nearest name for one that does not exist.
    """
    name = style
    if numbered and not style.startswith(PARALLEL):
        name = PARALLEL + style
    dialect: DialectClass = REGISTRY.load(name)
    return dialect


def make_dialect(
    settings: PromptSettings,
    world: World,
    numbered: bool = False,
) -> Dialect:
    """The dialect of `settings` for `world`.

    Raises UsageError as `dialect_class` and the dialect do.
    """
    style = settings.style or world.card.dialect
    return dialect_class(style, numbered)(settings, world)
