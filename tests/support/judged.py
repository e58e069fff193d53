"""An exploration method as another package brings it: chain, and a judge that is asked about every step before it is taken."""

import asyncio

from agentcli.exploration.actor import Actor
from agentcli.exploration.nodes import Node
from agentcli.prompts.protocol import Message
from agentcli.records.settings import PolicySettings, RolloutSettings
from agentcli.records.types import Tree


class JudgedRollout(RolloutSettings, kw_only=True):
    """Settings of judged."""

    judge: PolicySettings | None = None
    """Who says what it would have done."""


async def explore(actor: Actor, settings: JudgedRollout) -> Tree:
    """`leaves` independent trajectories whose steps are noted with what the judge said, and whether that is what was done."""
    root = await actor.start()
    await asyncio.gather(*(_follow(actor, root, index) for index in range(settings.leaves)))
    return actor.tree("judged")


async def _follow(actor: Actor, node: Node, index: int) -> None:
    while not node.finished:
        question = Message((f"What would you do? {node.moment.text}",))
        reply, after = await asyncio.gather(actor.ask("judge", node, question, index), actor.act(node, index))
        action = after.step.action if after.step else None
        verdict = "" if isinstance(reply, str) else reply.text
        actor.note(after, verdict=verdict, agrees=float(action is not None and action in verdict))
        # Only at the initial state there are several questions.
        node, index = after, 0
