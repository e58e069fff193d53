"""The full prompt with what stays the same first.

Prompts of one tree then begin alike: a prefix cache computes their beginning once, and
so does a training that packs them. The papers put the history before the instructions.
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
    """Role, task and instructions, then the last steps, then what is seen now.

    What is said is what `full` says, but for the number of steps, which follows them.
    """

    def ask(self, moment: Moment) -> Message:
        """One text, and the pictures of the last observation."""
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
        """How to answer, which is the same at every step."""
        if isinstance(self._world, Guiding):
            return [self._world.forms, self.instructions]
        if context.admissible:
            return [f"{self.instructions}\n{WORD_FOR_WORD}"]
        return [self.instructions]
