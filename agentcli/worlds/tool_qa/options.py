"""environment.options of tool_qa: how many questions, and which."""

from typing import Annotated

import msgspec

from agentcli.records.section import Count, Seed


class Sizes(msgspec.Struct, kw_only=True, frozen=True):
    """Questions of each split (Rare-tool section 4: 2,500 and 840); of real ones at most."""

    train: Count = 2500
    valid: Count = 100
    test: Count = 840


class ToolQaOptions(msgspec.Struct, kw_only=True, frozen=True):
    """What is asked."""

    sizes: Sizes = msgspec.field(default_factory=Sizes)
    templates: tuple[str, ...] | None = None
    """Only these sorts of generated questions; None: all (questions/templates.py)."""
    tools: tuple[str, ...] | None = None
    """Only these tools; None: all. []: a closed book."""
    choices: Annotated[int, msgspec.Meta(ge=2, le=10)] = 10
    """Options of a generated question."""
    seed: Seed = 0
    """Of the generated questions, and of the split of real ones."""
