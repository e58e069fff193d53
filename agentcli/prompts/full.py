"""The papers' prompt (SPARK Fig. 8), reworded, for models that can follow it."""

from agentcli.environments.protocol import Context, Guiding, World
from agentcli.prompts.protocol import Message, Moment
from agentcli.prompts.tagged import Tagged
from agentcli.records.settings import PromptSettings

INSTRUCTIONS = """\
Reason first, in one of two modes:
<explore>: something is unknown or did not turn out as expected. Collect the places, \
objects and actions that are worth trying.
<think>: things go as planned. Keep track of what is done and of what comes next.

Answer with one short sentence of reasoning inside exactly one of these tags, followed \
by exactly one action:
<explore> your reasoning </explore> or <think> your reasoning </think>
<action> your action </action>"""

WORD_FOR_WORD = "The action must be one of the admissible actions, word for word."
OWN_WORDS = "Where an action shows <...>, write words of your own in its place."
"""Added if a listed action has a gap for the policy to fill in."""

NO_ACTION = "(none: the response held no readable action)"
"""Shown in the history as the action of an unreadable response."""


class Full(Tagged):
    """Role, task, the last `prompt.history` steps, observation and instructions."""

    instructions = INSTRUCTIONS

    def __init__(self, settings: PromptSettings, world: World) -> None:
        self._history = settings.history
        self._role = world.card.role
        self._world = world

    def ask(self, moment: Moment) -> Message:
        """One text and the pictures of the last observation."""
        context = moment.copies[0]
        parts = [
            self._role,
            f"Your task: {context.instruction}",
            *_past(context, self._history),
            f"Current observation: {context.observations[-1]}",
        ]
        if isinstance(self._world, Guiding):
            parts += [self._world.forms, self._world.sight(context), self.instructions]
        elif context.admissible:
            parts.append(listed(context))
            parts.append(f"{self.instructions}\n{WORD_FOR_WORD}")
            if leaves_open(context):
                parts.append(OWN_WORDS)
        else:
            parts.append(self.instructions)
        return Message(("\n\n".join(parts), *context.pictures))


def listed(context: Context) -> str:
    """The part with the admissible actions, one per line."""
    lines = [f"- {action}" for action in context.admissible]
    return "\n".join(["Admissible actions:", *lines])


def leaves_open(context: Context) -> bool:
    """Whether a listed action has a gap to fill in, as in search[<your query>]."""
    return any("<" in action and ">" in action for action in context.admissible)


def _past(context: Context, length: int) -> list[str]:
    """The part with the last `length` pairs, oldest first; empty if there are none."""
    taken = len(context.actions)
    if taken == 0 or length == 0:
        return []
    first = max(0, taken - length)
    heading = f"Steps taken so far: {taken}. The last {taken - first}:"
    return ["\n".join([heading, *past_lines(context, first)])]


def past_lines(context: Context, first: int) -> list[str]:
    """The (observation, action) pairs from number `first` on, oldest first."""
    lines = []
    for index in range(first, len(context.actions)):
        action = context.actions[index] or NO_ACTION
        lines.append(f"{index + 1}. Observation: {context.observations[index]}")
        lines.append(f"   Action: {action}")
    return lines
