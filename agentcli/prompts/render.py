"""Observation to message: the single user message a policy answers.

Four styles. `full` says what the papers' prompt says (000 Fig. 8) in our own words, for models that follow instructions;
`rlvmr` is the same with RLVMR's two more kinds of reasoning;
`react` asks for a thought and an action in turn, for models that were not trained for this; `compact` is the world's own short
view, for tiny policies. The chat template of the policy's tokenizer is applied later.
"""

import difflib
from collections.abc import Callable, Collection

from agentcli.environments.protocol import Context, World, tutor_of
from agentcli.errors import UsageError
from agentcli.prompts.parse import REASONING_TAGS
from agentcli.records.settings import PromptSettings

INSTRUCTIONS = """\
Reason first, in one of two modes:
<explore>: something is unknown or did not turn out as expected. Collect the places, objects and actions that are worth trying.
<think>: things go as planned. Keep track of what is done and of what comes next.

Answer with one short sentence of reasoning inside exactly one of these tags, followed by exactly one action:
<explore> your reasoning </explore> or <think> your reasoning </think>
<action> your action </action>"""

RLVMR = """\
Reason first, in one of four modes:
<planning>: at the beginning, or when the plan no longer fits. Break the task down into the things to do, in their order.
<explore>: something is unknown. Choose an action that was not tried yet.
<reflection>: the last action failed or did nothing. Say why, and what to do instead.
<think>: things go as planned. Keep track of what is done and of what comes next.

Answer with one short sentence of reasoning inside exactly one of these tags, followed by exactly one action:
<planning> your reasoning </planning>, <explore> your reasoning </explore>, <reflection> your reasoning </reflection> or
<think> your reasoning </think>
<action> your action </action>"""

REACT = """\
Work in turns: think about what you know and what is still missing, act once, read what the environment answers, and think again.
Answer with one thought and one action, in this form:
<think> your thought </think>
<action> your action </action>"""


def render(context: Context, settings: PromptSettings, world: World) -> str:
    """The user message for one decision.

    Raises UsageError for an unknown style, and where the world has no compact view.
    """
    check_style(settings.style, STYLES)
    return STYLES[settings.style](context, settings, world)


def check_style(style: str, styles: Collection[str]) -> None:
    """Raises UsageError with the nearest name unless `style` is one of `styles`."""
    if style not in styles:
        near = difflib.get_close_matches(style, styles, 1, cutoff=0.0)[0]
        raise UsageError(f"prompt.style: no style {style!r}; did you mean {near}? (there are {', '.join(styles)})")


def reasoning_tags(style: str) -> tuple[str, ...]:
    """The reasoning tags that a response to this style of prompt may have."""
    return (*REASONING_TAGS, "planning", "reflection") if style == "rlvmr" else REASONING_TAGS


def _full(context: Context, settings: PromptSettings, world: World) -> str:
    return _instructed(context, settings, world, INSTRUCTIONS)


def _rlvmr(context: Context, settings: PromptSettings, world: World) -> str:
    return _instructed(context, settings, world, RLVMR)


def _instructed(context: Context, settings: PromptSettings, world: World, instructions: str) -> str:
    parts = [world.card.role, f"Your task: {context.instruction}"]
    past = _history(context, settings.history)
    if past:
        parts.append(past)
    parts.append(f"Current observation: {context.observations[-1]}")
    if context.admissible:
        parts.append("Admissible actions:\n" + "\n".join(f"- {action}" for action in context.admissible))
        parts.append(instructions + "\nThe action must be one of the admissible actions, word for word.")
    else:
        parts.append(instructions)
    return "\n\n".join(parts)


def _react(context: Context, settings: PromptSettings, world: World) -> str:
    """ReAct's trace of actions and observations, without the past thoughts, which a Context does not hold."""
    taken = len(context.actions)
    first = max(0, taken - settings.history)
    trace = [f"Observation {first}: {context.observations[first]}"]
    for index in range(first, taken):
        action = context.actions[index] or "(none: the response held no readable action)"
        trace += [f"Action {index + 1}: {action}", f"Observation {index + 1}: {context.observations[index + 1]}"]
    parts = [world.card.role, f"Your task: {context.instruction}", "\n".join(trace)]
    if context.admissible:
        parts.append(f"Actions possible now, word for word: {'; '.join(context.admissible)}")
    return "\n\n".join([*parts, REACT])


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
    return tutor_of(world, "prompt.style", "compact").compact(context)


STYLES: dict[str, Callable[[Context, PromptSettings, World], str]] = {
    "full": _full,
    "rlvmr": _rlvmr,
    "react": _react,
    "compact": _compact,
}
