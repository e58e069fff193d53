"""ReAct: thoughts and actions in turn, for models without training for this task.

It has the tags and parts of RewardFlow App. B.3, in our own words and without its step
counts.
"""

from agentcli.environments.protocol import Guiding
from agentcli.prompts.full import NO_ACTION, OWN_WORDS, Full, leaves_open
from agentcli.prompts.protocol import Message, Moment

INSTRUCTIONS = """\
Work in turns: think about what you know and what is still missing, act once, read \
what the environment answers, and think again.
Answer with one thought and one action, in this form:
<think> your thought </think>
<action> your action </action>"""


class React(Full):
    """Role, task, and the trace of actions and observations.

    Past thoughts are missing, because a Context does not store them.
    """

    instructions = INSTRUCTIONS

    def ask(self, moment: Moment) -> Message:
        """One text and the pictures of the last observation."""
        context = moment.copies[0]
        taken = len(context.actions)
        first = max(0, taken - self._history)
        trace = [f"Observation {first}: {context.observations[first]}"]
        for index in range(first, taken):
            number = index + 1
            action = context.actions[index] or NO_ACTION
            trace.append(f"Action {number}: {action}")
            trace.append(f"Observation {number}: {context.observations[number]}")
        parts = [
            self._role,
            f"Your task: {context.instruction}",
            "\n".join(trace),
        ]
        if isinstance(self._world, Guiding):
            parts += [self._world.forms, self._world.sight(context)]
        elif context.admissible:
            admissible = "; ".join(context.admissible)
            parts.append(f"Actions possible now, word for word: {admissible}")
            if leaves_open(context):
                parts.append(OWN_WORDS)
        parts.append(self.instructions)
        return Message(("\n\n".join(parts), *context.pictures))
