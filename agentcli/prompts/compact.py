"""Prompts with the world's own short view, of one copy or of each, for tiny policies."""

from agentcli.environments.protocol import Brief, World, world_as
from agentcli.prompts.parallel import Parallel
from agentcli.prompts.protocol import Message, Moment
from agentcli.prompts.tagged import Tagged
from agentcli.records.grouping import grouped
from agentcli.records.settings import PromptSettings

UNREADABLE = "last > nothing"
"""Shows an unreadable response the way worlds show a step.

A tiny policy's tokenizer may know no other words.
"""


class Compact(Tagged):
    """The short view; raises UsageError for a world without one."""

    fixed = "the world chooses what to show"

    def __init__(self, settings: PromptSettings, world: World) -> None:
        self._brief = world_as(world, Brief, "prompt.style", "compact")

    def ask(self, moment: Moment) -> Message:
        """One text and the pictures of the last observation."""
        context = moment.copies[0]
        return Message((self._brief.compact(context), *context.pictures))


class ParallelCompact(Parallel):
    """Groups copies that look alike; those that acted last come at the end.

    So the response follows directly after them. Raises UsageError for a world without a
    short view.
    """

    fixed = "the world chooses what to show"

    def __init__(self, settings: PromptSettings, world: World) -> None:
        self._brief = world_as(world, Brief, "prompt.style", "compact")

    def ask(self, moment: Moment) -> Message:
        """One text."""
        copies = moment.copies
        # Nothing new was seen in them if the response after it could not be read.
        acted = () if moment.unread else moment.acted
        views = grouped(
            (self._brief.compact(copies[number - 1]), number) for number in moment.open
        )
        at_rest = []
        recent = []
        for view, numbers in views.items():
            names = " ".join(f"env_{number}" for number in numbers)
            part = f"{names}\n{view}"
            if set(numbers) & set(acted):
                recent.append(part)
            else:
                at_rest.append(part)
        parts = at_rest + recent + [UNREADABLE] * moment.unread
        return Message(("\n".join(parts),))
