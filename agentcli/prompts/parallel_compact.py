"""The world's short view of every copy, for tiny policies."""

from agentcli.environments.protocol import World, tutor_of
from agentcli.prompts.parallel import Parallel
from agentcli.prompts.protocol import Message, Moment
from agentcli.records.settings import PromptSettings

UNREADABLE = "last > nothing"
"""As worlds show a step of one environment. A tiny policy's tokenizer may know no other
words.
"""


class ParallelCompact(Parallel):
    """Copies that look alike together, those that acted last at the end: the response
    continues them.

    Raises UsageError for a world without a short view.
    """

    fixed = "the world chooses what to show"

    def __init__(self, settings: PromptSettings, world: World) -> None:
        self._tutor = tutor_of(world, "prompt.style", "compact")

    def ask(self, moment: Moment) -> Message:
        """One text."""
        views: dict[str, list[int]] = {}
        for number in moment.open:
            view = self._tutor.compact(moment.copies[number - 1])
            views.setdefault(view, []).append(number)
        # Sorting is stable: False comes before True, and else the order of the copies
        # stays.
        recent = sorted(
            views.items(),
            key=lambda group: any(number in moment.acted for number in group[1]),
        )
        parts = []
        for view, alike in recent:
            names = " ".join(f"env_{number}" for number in alike)
            parts.append(f"{names}\n{view}")
        if moment.unread:
            parts.append(UNREADABLE)
        return Message(("\n".join(parts),))
