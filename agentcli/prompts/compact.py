"""Prompts with the world's own short view, for tiny policies."""

from agentcli.environments.protocol import Brief, World, world_as
from agentcli.prompts.protocol import Message, Moment
from agentcli.prompts.tagged import Tagged
from agentcli.records.settings import PromptSettings


class Compact(Tagged):
    """The short view; raises UsageError for a world without one."""

    fixed = "the world chooses what to show"

    def __init__(self, settings: PromptSettings, world: World) -> None:
        self._brief = world_as(world, Brief, "prompt.style", "compact")

    def ask(self, moment: Moment) -> Message:
        """One text and the pictures of the last observation."""
        context = moment.copies[0]
        return Message((self._brief.compact(context), *context.pictures))
