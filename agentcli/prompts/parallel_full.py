"""The full prompt for several copies, reworded.

As in DPEPO, it has all earlier (action, observation) pairs of every copy, and the
actions that are now admissible in the copies that acted last.
"""

from collections.abc import Collection, Mapping

from agentcli.environments.protocol import Context, Guiding, World
from agentcli.prompts.parallel import Parallel, listed
from agentcli.prompts.protocol import Message, Moment
from agentcli.records.settings import PromptSettings

UNREADABLE = "Your last response held no readable action; nothing was done in any copy."

LIMIT = (
    "Stay within env_1 to env_{count}: a response that names a copy beyond these "
    "ends the task at once, as a failure."
)
"""The exploration-limiting prompt (DPEPO App. C), reworded."""

RULES = """\
Reason first. Then act in one copy, or in several at the same time to learn more: at \
most one action in each.
Answer with your reasoning, followed by the actions, each inside the tag of its copy:
<think> your reasoning </think>
<parallel>
<env_1> an action for copy 1 </env_1>
<env_2> an action for copy 2 </env_2>
</parallel>"""


class ParallelFull(Parallel):
    """Role, task, what happened in every copy, and the rules."""

    fixed = "it shows all that happened"

    def __init__(self, settings: PromptSettings, world: World) -> None:
        self._role = world.card.role
        self._world = world

    def ask(self, moment: Moment) -> Message:
        """One text and the pictures of the copies that may act, in their order."""
        first = moment.copies[0]
        past = {}
        for number, copy in enumerate(moment.copies, 1):
            if copy.actions:
                past[number] = copy
        parts = [self._role, *_opening(moment)]
        if isinstance(self._world, Guiding):
            parts.append(self._world.forms)
        if past:
            parts.append(_earlier(past, moment.acted))
            parts.append(self._last(past, moment.acted))
        elif first.admissible:
            parts.append(self._possible(first, "in every copy"))
        if moment.unread:
            parts.append(UNREADABLE)
        if moment.ended:
            parts.append(f"Ended, no action is possible there: {listed(moment.ended)}.")
        fresh = [number for number in moment.open if number not in past]
        if past and fresh:
            parts.append(f"Not acted in yet: {listed(fresh)}.")
        if moment.pictures:
            parts.append(f"The pictures show, in this order: {listed(moment.open)}.")
        parts.append(RULES)
        return Message(("\n\n".join(filter(None, parts)), *moment.pictures))

    def _last(self, past: Mapping[int, Context], acted: Collection[int]) -> str:
        """The pairs of the last step, and what can be done next; "" without any."""
        lines = ["The last step:"]
        for number in acted:
            copy = past[number]
            lines.append(f"env_{number}")
            lines.append(_pair(copy, len(copy.actions) - 1))
            if copy.admissible:
                lines.append(f"   {self._possible(copy, 'now')}")
        return "\n".join(lines) if acted else ""

    def _possible(self, copy: Context, where: str) -> str:
        """What can be done in a copy, or what can be acted on."""
        if isinstance(self._world, Guiding):
            return self._world.sight(copy)
        return f"Admissible actions {where}: {'; '.join(copy.admissible)}"


def _opening(moment: Moment) -> list[str]:
    """The task, the copies, and the observation that every copy began with."""
    first = moment.copies[0]
    count = len(moment.copies)
    parts = [
        f"Your task: {first.instruction}",
        f"You have {count} copies of the same environment, env_1 to env_{count}, and "
        "no others. They began alike and share nothing since then: an action changes "
        "its own copy only. The task is done as soon as it is done in any one of "
        "them.",
    ]
    if moment.limited:
        parts.append(LIMIT.format(count=count))
    parts.append(f"Every copy began with: {first.observations[0]}")
    return parts


def _earlier(past: Mapping[int, Context], acted: Collection[int]) -> str:
    """All pairs except those of the last step; "" if there are none."""
    lines = ["Steps before the last:"]
    for number, copy in past.items():
        length = len(copy.actions)
        # The last pair of a copy that has just acted is shown separately.
        if number in acted:
            length -= 1
        if length > 0:
            lines.append(f"env_{number}")
        for index in range(length):
            lines.append(_pair(copy, index))
    return "\n".join(lines) if len(lines) > 1 else ""


def _pair(copy: Context, index: int) -> str:
    action = copy.actions[index]
    observation = copy.observations[index + 1]
    return f"{index + 1}. Action: {action}\n   Observation: {observation}"
