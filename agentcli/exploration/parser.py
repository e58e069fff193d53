"""A parser: a model that puts an answer into the form that was asked for (001 3.1).

The papers' models think aloud and now and then forget a tag. 001 has a small model find
the letter in such an answer. Here it is asked about every response that the dialect
cannot read, whatever the world, and its reply is read by the same rules.
"""

from typing import TYPE_CHECKING

from agentcli.exploration.nodes import Node
from agentcli.prompts.protocol import Answer, Message

if TYPE_CHECKING:
    from agentcli.exploration.actor import Actor

MESSAGE = """\
An agent was asked:

{prompt}

It answered:

{response}

The answer is not in the form that it was asked for. Write it again in that form, with \
the same thought and the same decision, and nothing else. If it decided nothing, write: \
none"""


async def read_by_parser(
    actor: "Actor", node: Node, number: int, prompt: str, response: str
) -> Answer | None:
    """The content of an unreadable response; None where the parser finds none either.

    `number` is that of the response at the node.
    """
    message = Message((MESSAGE.format(prompt=prompt, response=response),))
    reply = await actor.ask("parser", node, message, number)
    # A parser that breaks ends the trajectory as an errored leaf, which `ask` sees to.
    if isinstance(reply, str):
        return None
    answer = actor.dialect.read(reply.text, node.moment)
    return None if answer.problem else answer
