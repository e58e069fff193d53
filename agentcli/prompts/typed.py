"""Names as placeholders by type, so that a room never seen has no unknown words.

Between the policy and another dialect the placeholders stand for the world's own names:
what is asked is translated, and an answer is translated back before anything acts.
Trees keep the own names in actions and observations; prompt and response are what the
policy read and said.
"""

from msgspec.structs import replace

from agentcli.environments.protocol import Naming
from agentcli.prompts.protocol import Answer, Dialect, Message, Moment


class Typed:
    """The dialect `inner` with the placeholders of a world.

    All copies play one task, so that a thing has one placeholder in all of them.
    """

    def __init__(self, inner: Dialect, naming: Naming) -> None:
        self.fixed = inner.fixed
        self._inner = inner
        self._naming = naming

    def ask(self, moment: Moment) -> Message:
        """The message of `inner` with placeholders."""
        parts = []
        for part in self._inner.ask(moment).parts:
            if isinstance(part, str):
                part = self._naming.typed(part, moment.copies[0])
            parts.append(part)
        return Message(tuple(parts))

    def read(self, response: str, moment: Moment) -> Answer:
        """The answer with own names in its actions; its reasoning stays as it was said.

        An action keeps a placeholder that stands for nothing, and an own name.
        """
        answer = self._inner.read(response, moment)
        actions = {}
        for number, action in answer.actions.items():
            actions[number] = self._naming.own(action, moment.copies[number - 1])
        return replace(answer, actions=actions)

    def write(self, answer: Answer, moment: Moment) -> str:
        """The response with placeholders in reasoning and actions."""
        return self._naming.typed(self._inner.write(answer, moment), moment.copies[0])
