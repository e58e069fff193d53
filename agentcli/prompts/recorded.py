"""The messages and conversations of recorded steps.

A step of a conversation that grows holds only what was added; what was said before is
with the steps before it.
"""

from collections.abc import Sequence

from agentcli.environments.protocol import Picture
from agentcli.prompts.protocol import Exchange, Message
from agentcli.records.types import Step, Tree


def message_of(step: Step, pictures: Sequence[Picture] = ()) -> Message:
    """What the policy was asked in a step, with its pictures."""
    return Message(
        (step.prompt, *pictures),
        system=step.system or "",
        tools=step.tools or "",
        role=step.role or "user",
        continues=step.continues or None,
    )


def turns_before(tree: Tree, step: Step) -> tuple[Exchange, ...]:
    """What was said before a step in the conversation that it continues, oldest first.

    Empty for a prompt that stands alone.
    """
    turns: list[Exchange] = []
    while step.continues and step.parent is not None:
        step = tree.steps[step.parent]
        tokens = tuple(step.token_ids)
        turns.append(Exchange(message_of(step), step.response, tokens))
    return tuple(reversed(turns))


def whole_text(tree: Tree, step: Step) -> str:
    """Everything that the policy was asked in a step, with what was said before."""
    return conversation_text(message_of(step), turns_before(tree, step))


def conversation_text(message: Message, turns: Sequence[Exchange]) -> str:
    """A message as text, with what was said before in its conversation."""
    texts = [turns[0].message.system if turns else message.system]
    for turn in turns:
        texts += [turn.message.text, turn.response]
    return "\n\n".join(filter(None, [*texts, message.text]))
