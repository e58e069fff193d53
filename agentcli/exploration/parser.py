"""A parser is a model that rewrites an answer in the form asked for.

The papers' models think aloud and sometimes forget a tag. Here, in any world, the parser
is asked about every response that the dialect cannot read, and its reply is read by the
same rules. In Rare-tool section 3.1 a small model extracts the letter of every answer.
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
    """The content of an unreadable response; None if the parser's reply has none.

    `number` is the number of the question at the node.
    """
    message = Message((MESSAGE.format(prompt=prompt, response=response),))
    reply = await actor.ask("parser", node, message, number)
    # If the parser fails, `ask` has already arranged for an errored leaf.
    if isinstance(reply, str):
        return None
    answer = actor.dialect.read(reply.text, node.moment)
    return None if answer.problem else answer
