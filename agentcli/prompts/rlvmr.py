"""The full prompt with RLVMR's additional reasoning tags, planning and reflection."""

from agentcli.prompts.full import Full
from agentcli.prompts.tagged import REASONING_TAGS

INSTRUCTIONS = """\
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


class Rlvmr(Full):
    """`full` with four reasoning tags."""

    instructions = INSTRUCTIONS
    tags = (*REASONING_TAGS, "planning", "reflection")
