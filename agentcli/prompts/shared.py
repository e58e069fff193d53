"""The full prompt, with the parts that stay the same first.

The prompts of one tree then share a prefix, which is computed only once with a prefix
cache, or when training packs them. RewardFlow puts the history before the instructions.
"""

from agentcli.environments.protocol import Context, Guiding
from agentcli.prompts.full import (
    OWN_WORDS,
    WORD_FOR_WORD,
    Full,
    leaves_open,
    listed,
    past_lines,
)
from agentcli.prompts.protocol import Message, Moment


class Shared(Full):
    """Role, task and instructions, then the last steps, then the current observation.

    The content is that of `full`; only the number of steps comes after the steps.
    """

    def ask(self, moment: Moment) -> Message:
        """One text and the pictures of the last observation."""
        context = moment.copies[0]
        taken = len(context.actions)
        parts = [
            self._role,
            f"Your task: {context.instruction}",
            *self._rules(context),
        ]
        past = past_lines(context, max(0, taken - self._history))
        if past:
            parts.append("\n".join(["The last steps, oldest first:", *past]))
            parts.append(f"Steps taken so far: {taken}.")
        parts.append(f"Current observation: {context.observations[-1]}")
        if isinstance(self._world, Guiding):
            parts.append(self._world.sight(context))
        elif context.admissible:
            parts.append(listed(context))
            if leaves_open(context):
                parts.append(OWN_WORDS)
        return Message(("\n\n".join(parts), *context.pictures))

    def _rules(self, context: Context) -> list[str]:
        """How to answer; the same text at every step."""
        if isinstance(self._world, Guiding):
            return [self._world.forms, self.instructions]
        if context.admissible:
            return [f"{self.instructions}\n{WORD_FOR_WORD}"]
        return [self.instructions]
