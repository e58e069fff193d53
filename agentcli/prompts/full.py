"""The papers' prompt (SPARK Fig. 8), reworded, and its variants.

`shared` has the parts that stay the same first, `react` asks for thoughts and actions
in turn, and `rlvmr` has two more reasoning tags.
"""

from agentcli.environments.protocol import Context, Guiding, World
from agentcli.prompts.protocol import Message, Moment
from agentcli.prompts.tagged import REASONING_TAGS, Tagged
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

REACT = """\
Work in turns: think about what you know and what is still missing, act once, read \
what the environment answers, and think again.
Answer with one thought and one action, in this form:
<think> your thought </think>
<action> your action </action>"""

RLVMR = """\
Reason first, in one of four modes:
<planning>: at the beginning, or when the plan no longer fits. Break the task down \
into the things to do, in their order.
<explore>: something is unknown. Choose an action that was not tried yet.
<reflection>: the last action failed or did nothing. Say why, and what to do instead.
<think>: things go as planned. Keep track of what is done and of what comes next.

Answer with one short sentence of reasoning inside exactly one of these tags, followed \
by exactly one action:
<planning> your reasoning </planning>, <explore> your reasoning </explore>, \
<reflection> your reasoning </reflection> or
<think> your reasoning </think>
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
        *forms, instructions = self.rules(context)
        scene = self.scene(context)
        parts = [
            *self.opening(context),
            *_past(context, self._history),
            f"Current observation: {context.observations[-1]}",
            *forms,
            *scene[:1],
            instructions,
            # What is said of the list comes last.
            *scene[1:],
        ]
        return Message(("\n\n".join(parts), *context.pictures))

    def opening(self, context: Context) -> list[str]:
        """Role and task."""
        return [self._role, f"Your task: {context.instruction}"]

    def rules(self, context: Context) -> list[str]:
        """How to answer; the same text at every step."""
        if isinstance(self._world, Guiding):
            return [self._world.forms, self.instructions]
        if context.admissible:
            return [f"{self.instructions}\n{WORD_FOR_WORD}"]
        return [self.instructions]

    def scene(self, context: Context) -> list[str]:
        """What can be done now."""
        if isinstance(self._world, Guiding):
            return [self._world.sight(context)]
        if not context.admissible:
            return []
        own_words = [OWN_WORDS] if leaves_open(context) else []
        return [listed(context), *own_words]


class Shared(Full):
    """Role, task and instructions, then the last steps, then the current observation.

    The content is that of `full`; only the number of steps comes after the steps. The
    prompts of one tree then share a prefix, which is computed only once with a prefix
    cache, or when training packs them. RewardFlow puts the history before the
    instructions.
    """

    def ask(self, moment: Moment) -> Message:
        """One text and the pictures of the last observation."""
        context = moment.copies[0]
        taken = len(context.actions)
        parts = [*self.opening(context), *self.rules(context)]
        past = past_lines(context, max(0, taken - self._history))
        if past:
            parts.append("\n".join(["The last steps, oldest first:", *past]))
            parts.append(f"Steps taken so far: {taken}.")
        parts.append(f"Current observation: {context.observations[-1]}")
        parts += self.scene(context)
        return Message(("\n\n".join(parts), *context.pictures))


class React(Full):
    """Role, task, and the trace of actions and observations.

    It has the tags and parts of RewardFlow App. B.3, in our own words and without its
    step counts. It is for models without training for this task. Past thoughts are
    missing, because a Context does not store them.
    """

    instructions = REACT

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
        parts = [*self.opening(context), "\n".join(trace)]
        if isinstance(self._world, Guiding):
            parts += [self._world.forms, self._world.sight(context)]
        elif context.admissible:
            admissible = "; ".join(context.admissible)
            parts.append(f"Actions possible now, word for word: {admissible}")
            if leaves_open(context):
                parts.append(OWN_WORDS)
        parts.append(self.instructions)
        return Message(("\n\n".join(parts), *context.pictures))


class Rlvmr(Full):
    """`full` with RLVMR's additional reasoning tags, planning and reflection."""

    instructions = RLVMR
    tags = (*REASONING_TAGS, "planning", "reflection")


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
    # The heading would announce steps that are not shown.
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
        observation = context.observations[index]
        lines.append(f"{index + 1}. Observation: {observation}")
        lines.append(f"   Action: {action}")
    return lines
