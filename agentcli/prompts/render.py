"""Observation to message: the single user message a policy answers.

Two styles. `full` says what the papers' prompt says (000 Fig. 8) in our own words, for models that follow instructions;
`compact` is the world's own short view, for tiny policies. The chat template of the policy's tokenizer is applied later.
"""

import difflib
from collections.abc import Callable

from agentcli.environments.protocol import Context, World
from agentcli.errors import UsageError
from agentcli.records.settings import PromptSettings

INSTRUCTIONS = """\
Reason first, in one of two modes:
<explore>: something is unknown or did not turn out as expected. Collect the places, objects and actions that are worth trying.
<think>: things go as planned. Keep track of what is done and of what comes next.

Answer with one short sentence of reasoning inside exactly one of these tags, followed by exactly one action:
<explore> your reasoning </explore> or <think> your reasoning </think>
<action> your action </action>"""


def render(context: Context, settings: PromptSettings, world: World) -> str:
    """The user message for one decision.

    Raises UsageError for an unknown style, and where the world has no compact view.
    """
    if settings.style not in STYLES:
        near = difflib.get_close_matches(settings.style, STYLES, 1, cutoff=0.0)[0]
        raise UsageError(
            f"prompt.style: no style {settings.style!r}; did you mean {near}? (there are {', '.join(STYLES)})"
        )
    return STYLES[settings.style](context, settings, world)


def _full(context: Context, settings: PromptSettings, world: World) -> str:
    parts = [world.role, f"Your task: {context.instruction}"]
    past = _history(context, settings.history)
    if past:
        parts.append(past)
    parts.append(f"Current observation: {context.observations[-1]}")
    if context.admissible:
        parts.append("Admissible actions:\n" + "\n".join(f"- {action}" for action in context.admissible))
        parts.append(INSTRUCTIONS + "\nThe action must be one of the admissible actions, word for word.")
    else:
        parts.append(INSTRUCTIONS)
    return "\n\n".join(parts)


def _history(context: Context, length: int) -> str:
    """The last `length` (observation, action) pairs, oldest first; '' when there are none."""
    taken = len(context.actions)
    if taken == 0 or length == 0:
        return ""
    first = max(0, taken - length)
    lines = [f"Steps taken so far: {taken}. The last {taken - first}:"]
    for index in range(first, taken):
        action = context.actions[index] or "(none: the response held no readable action)"
        lines.append(f"{index + 1}. Observation: {context.observations[index]}\n   Action: {action}")
    return "\n".join(lines)


def _compact(context: Context, settings: PromptSettings, world: World) -> str:
    return world.compact(context)


STYLES: dict[str, Callable[[Context, PromptSettings, World], str]] = {"full": _full, "compact": _compact}
