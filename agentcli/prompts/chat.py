"""Conversations that grow: one message an observation, one answer a step.

The system message has the role, the task and the form of answers; every observation is
a user message, and every response stays in the conversation as it was given. The form
of answers is that of the world's own dialect. An agent sees its whole past, its
thoughts included, and a model is asked in the form that it was tuned for.
"""

from collections.abc import Sequence
from typing import Literal

from agentcli.environments.protocol import Context, World
from agentcli.errors import UsageError
from agentcli.prompts.compact import Compact
from agentcli.prompts.full import NO_ACTION, Full
from agentcli.prompts.native import Native
from agentcli.prompts.protocol import Answer, Message, Moment
from agentcli.prompts.registry import GROWING, dialect_class
from agentcli.records.faults import one_line
from agentcli.records.settings import PromptSettings
from agentcli.records.types import Continues

WHOLE = "the conversation holds every step"
LONGEST_ACTION = 100
"""Characters of an action in the summary of a conversation that begins anew."""
KEPT: dict[bool | None, Continues] = {
    None: "exact",
    True: "sampled",
    False: "rendered",
}
"""How a conversation continues (Message.continues), by prompt.keep_thinking."""


class Growing:
    """When a conversation begins, and how it goes on."""

    fixed = WHOLE

    def __init__(self, settings: PromptSettings) -> None:
        self._continues = KEPT[settings.keep_thinking]
        self._restart = settings.restart

    def message(
        self, context: Context, now: Sequence[str], system: str, tools: str = ""
    ) -> Message:
        """The message with these texts; with `system` where a conversation begins.

        With `tools`, their schemas, it is what a call returned, if there was one.

        After every `prompt.restart` steps it begins anew, with a line that names the
        actions so far.
        """
        taken = len(context.actions)
        again = self._restart is not None and taken % self._restart == 0
        if taken and not again:
            returned = bool(tools and context.actions[-1])
            role: Literal["tool", "user"] = "tool" if returned else "user"
            return Message(_joined(now), role=role, continues=self._continues)
        if taken:
            now = [summary(context), *now]
        begins = self._continues
        return Message(_joined(now), system=system, tools=tools, begins=begins)


class Chat(Growing):
    """A conversation in the form of the world's own dialect.

    Raises UsageError for a world whose own dialect is not made of the parts of `full`.
    """

    def __init__(self, settings: PromptSettings, world: World) -> None:
        super().__init__(settings)
        own = world.card.dialect
        if own in GROWING:
            raise UsageError(
                f"prompt.style: the card of the world {world.card.name} names {own} as "
                "its dialect, which is no form of answers; name full, search or tools "
                "there"
            )
        kind = dialect_class(own)
        if not (isinstance(kind, type) and issubclass(kind, Full)):
            raise UsageError(
                f"prompt.style: chat is made of the parts of full, and {own}, the "
                f"dialect of the world {world.card.name}, has others; choose {own}"
            )
        native = settings.tools == "native"
        self._form: Full = (Native if native else kind)(settings, world)

    def ask(self, moment: Moment) -> Message:
        """The observation and what can be done now."""
        context = moment.copies[0]
        now = [context.observations[-1], *self._form.scene(context)]
        system = [*self._form.opening(context), *self._form.rules(context)]
        tools = self._form.schemas if isinstance(self._form, Native) else ""
        return self.message(context, now, "\n\n".join(system), tools)

    def read(self, response: str, moment: Moment) -> Answer:
        """The content of a response, as the world's own dialect reads it."""
        return self._form.read(response, moment)

    def write(self, answer: Answer, moment: Moment) -> str:
        """The answer as the world's own dialect writes it."""
        return self._form.write(answer, moment)


class ChatCompact(Compact):
    """A conversation whose messages are the world's short view, for tiny policies.

    Raises UsageError for a world without one.
    """

    fixed = WHOLE

    def __init__(self, settings: PromptSettings, world: World) -> None:
        super().__init__(settings, world)
        self._growing = Growing(settings)

    def ask(self, moment: Moment) -> Message:
        """The short view of the last observation."""
        view = super().ask(moment).text
        return self._growing.message(moment.copies[0], [view], "")


def summary(context: Context) -> str:
    """One line with the actions so far, where a conversation begins anew.

    A long action is cut: beginning anew is what keeps the prompt short.
    """
    actions = "; ".join(_in_short(action or NO_ACTION) for action in context.actions)
    return f"Steps taken so far: {len(context.actions)}. Your actions: {actions}."


def _in_short(action: str) -> str:
    line = one_line(action)
    if len(line) <= LONGEST_ACTION:
        return line
    return f"{line[:LONGEST_ACTION]}..."


def _joined(parts: Sequence[str]) -> tuple[str]:
    return ("\n\n".join(parts),)
