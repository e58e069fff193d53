"""Prompt and response of an agent that acts in several copies of one environment at once (DPEPO, 004 App. C).

The response is one `<think>`, then one `<parallel>` with an action for every copy that shall act: `<env_i>` is copy i. The tags
are the paper's, the words our own. As there, the prompt holds all earlier (action, observation) pairs of every copy, and for
the copies that acted last what is admissible in them now. Under prompt.style compact it holds the world's own short view of
every copy, copies that look alike together, those that acted last at the end.
"""

import re
from collections.abc import Callable, Collection, Mapping

import msgspec

from agentcli.environments.protocol import Context, World, tutor_of
from agentcli.prompts.render import check_style
from agentcli.records.settings import PromptSettings

UNREADABLE = "Your last response held no readable action; nothing was done in any copy."
UNREADABLE_COMPACT = "last > nothing"
"""The same for a tiny policy, whose tokenizer may know none of those words: as worlds show a step of one environment."""

LIMIT = (
    "Stay within env_1 to env_{count}: a response that names a copy beyond these ends the task at once, as a failure."
)
"""Said where it is so (004 App. C, exploration-limiting prompt; our own words)."""

RULES = """\
Reason first. Then act in one copy, or in several at the same time to learn more: at most one action in each.
Answer with your reasoning, followed by the actions, each inside the tag of its copy:
<think> your reasoning </think>
<parallel>
<env_1> an action for copy 1 </env_1>
<env_2> an action for copy 2 </env_2>
</parallel>"""


class ParallelContext(Context, kw_only=True, frozen=True):
    """What a policy that acts in several copies may know. `observations` and `actions` hold the joined texts."""

    copies: tuple[Context, ...]
    """Copy 1, copy 2, ...: each with its own past alone."""
    ended: frozenset[int] = frozenset()
    """1-based: copies whose episode is over."""
    acted: tuple[int, ...] = ()
    """Copies that acted in the last step; none after an unreadable response."""
    limited: bool = False
    """A response that names a copy above the last one fails the task (rollout.beyond)."""

    @property
    def open(self) -> list[int]:
        """Copies that may act."""
        return [number for number in range(1, len(self.copies) + 1) if number not in self.ended]


class ParallelParsed(msgspec.Struct, frozen=True):
    """What a response says. Either `problem` is None and the others are set, or `problem` says what is wrong."""

    reasoning: str | None = None
    actions: dict[int, str] = {}
    """Copy -> action, in textual order, white space made one space."""
    problem: str | None = None
    beyond: bool = False
    """It names a copy above the last one; malformed as well."""


def parse_parallel(response: str, copies: Collection[int], count: int | None = None) -> ParallelParsed:
    """Read `<think> reasoning </think> <parallel> <env_i> action </env_i> ... </parallel>`; never raises.

    The index in the tag is the copy. A response that names a copy outside `copies`, or one twice, or holds another tag,
    is malformed as a whole: what it means is not guessed. A single action may do without `<parallel>`. Letter case and
    text outside the tags do not matter. `count`: how many copies there are, ended ones included, for `beyond`; whatever else is
    wrong after the reasoning, a copy above it is what is told of.
    """
    marks = list(_MARK.finditer(response))
    names = [mark[0][1:-1].strip().lower() for mark in marks]
    if names[:2] != ["think", "/think"]:
        return ParallelParsed(problem="expected one closed <think> first")
    above = next((name for name in names[2:] if count is not None and _copy_above(name, count)), None)
    if above is not None:
        return ParallelParsed(problem=f"no <{above}> to act in; there are {count} copies", beyond=True)
    inner = marks[2:]
    if names[2:3] == ["parallel"] and names[-1] == "/parallel":
        inner = marks[3:-1]
    elif len(inner) > 2:
        return ParallelParsed(problem="expected several actions inside one closed <parallel>")
    reasoning = response[marks[0].end() : marks[1].start()].strip()
    if not reasoning:
        return ParallelParsed(problem="<think> is empty")
    actions: dict[int, str] = {}
    for begin, end in zip(inner[::2], inner[1::2], strict=False):
        name = begin[0][1:-1].strip().lower()
        number = name.removeprefix("env_")
        if not name.startswith("env_") or end[0][1:-1].strip().lower() != f"/{name}":
            break
        if number not in map(str, copies):
            return ParallelParsed(problem=f"no <{name}> to act in; there are {_listed(copies)}")
        if int(number) in actions:
            return ParallelParsed(problem=f"<{name}> acts twice")
        actions[int(number)] = " ".join(response[begin.end() : end.start()].split())
    if not actions or 2 * len(actions) != len(inner):
        found = " ".join(f"<{name}>" for name in names[2:])
        return ParallelParsed(problem=f"expected closed <env_i> tags and nothing else; found {found or 'none'}")
    if not all(actions.values()):
        return ParallelParsed(problem="an <env_i> is empty")
    return ParallelParsed(reasoning, actions)


def _copy_above(name: str, count: int) -> bool:
    """Whether a tag's name is that of a copy above `count`."""
    digits = name.removeprefix("/").removeprefix("env_").lstrip("0")
    if not ("env_" in name and digits.isascii() and digits.isdecimal()):
        return False
    return len(digits) > len(str(count)) or int(digits) > count


def format_parallel(sentence: str, actions: Mapping[int, str]) -> str:
    """The canonical response; `parse_parallel` reads it back when no text is blank or holds a tag."""
    moves = "".join(f"<env_{number}> {action} </env_{number}>" for number, action in actions.items())
    return f"<think> {sentence} </think><parallel>{moves}</parallel>"


def joined(texts: Mapping[int, str]) -> str:
    """One text out of those of several copies."""
    return "\n".join(f"env_{number}: {text}" for number, text in texts.items())


def render_parallel(context: ParallelContext, settings: PromptSettings, world: World) -> str:
    """The user message for one decision. `prompt.history` has no part in it: all pairs are shown.

    Raises UsageError for a style other than full and compact, and where the world has no compact view.
    """
    check_style(settings.style, STYLES)
    return STYLES[settings.style](context, world)


def _full(context: ParallelContext, world: World) -> str:
    first = context.copies[0]
    count = len(context.copies)
    parts = [
        world.card.role,
        f"Your task: {context.instruction}",
        f"You have {count} copies of the same environment, env_1 to env_{count}, and no others. They began alike and share nothing "
        "since then: an action changes its own copy only. The task is done as soon as it is done in any one of them.",
        LIMIT.format(count=count) if context.limited else "",
        f"Every copy began with: {first.observations[0]}",
    ]
    past = {number: copy for number, copy in enumerate(context.copies, 1) if copy.actions}
    if past:
        parts += [_earlier(past, context.acted), _last(past, context.acted)]
    elif first.admissible:
        parts.append(f"Admissible actions in every copy: {'; '.join(first.admissible)}")
    if context.actions and not context.acted:
        parts.append(UNREADABLE)
    if context.ended:
        parts.append(f"Ended, no action is possible there: {_listed(context.ended)}.")
    fresh = [number for number in context.open if number not in past]
    if past and fresh:
        parts.append(f"Not acted in yet: {_listed(fresh)}.")
    return "\n\n".join([*filter(None, parts), RULES])


def _earlier(past: Mapping[int, Context], acted: Collection[int]) -> str:
    """All pairs but those of the last step."""
    blocks = []
    for number, copy in past.items():
        shown = len(copy.actions) - (number in acted)
        pairs = [_pair(copy, index) for index in range(shown)]
        if pairs:
            blocks.append("\n".join([f"env_{number}", *pairs]))
    return "\n".join(["Steps before the last:", *blocks]) if blocks else ""


def _last(past: Mapping[int, Context], acted: Collection[int]) -> str:
    """The pairs of the last step and what is admissible after it."""
    blocks = []
    for number in acted:
        copy = past[number]
        after = f"   Admissible actions now: {'; '.join(copy.admissible)}" if copy.admissible else ""
        blocks.append("\n".join(filter(None, [f"env_{number}", _pair(copy, len(copy.actions) - 1), after])))
    return "\n".join(["The last step:", *blocks]) if blocks else ""


def _pair(copy: Context, index: int) -> str:
    return f"{index + 1}. Action: {copy.actions[index]}\n   Observation: {copy.observations[index + 1]}"


def _compact(context: ParallelContext, world: World) -> str:
    views: dict[str, list[int]] = {}
    for number in context.open:
        views.setdefault(tutor_of(world, "prompt.style", "compact").compact(context.copies[number - 1]), []).append(
            number
        )
    recent = sorted(views.items(), key=lambda group: any(number in context.acted for number in group[1]))
    parts = [f"{' '.join(f'env_{number}' for number in alike)}\n{view}" for view, alike in recent]
    if context.actions and not context.acted:
        parts.append(UNREADABLE_COMPACT)
    return "\n".join(parts)


def _listed(copies: Collection[int]) -> str:
    return ", ".join(f"env_{number}" for number in sorted(copies))


STYLES: dict[str, Callable[[ParallelContext, World], str]] = {"full": _full, "compact": _compact}

_MARK = re.compile(r"</?(?:think|explore|action|parallel|env_\w*)[ \t]*>", re.IGNORECASE)
