"""Responses that act in several copies of one environment at once (DPEPO App. C).

A response is one `<think>`, then one `<parallel>` with an action for each copy that
should act: `<env_i>` is copy i. The tags are the paper's.
"""

from collections.abc import Collection, Mapping

from agentcli.environments.protocol import Brief, Context, Guiding, World, world_as
from agentcli.prompts.full import OWN_WORDS, leaves_open
from agentcli.prompts.protocol import Answer, Message, Moment
from agentcli.prompts.tagged import Tag, between, find_tags, shown, tag_pattern
from agentcli.records.faults import one_line
from agentcli.records.grouping import grouped
from agentcli.records.settings import PromptSettings

_TAGS = tag_pattern(r"think|explore|action|parallel|env_\w*")

UNREADABLE = "Your last response held no readable action; nothing was done in any copy."

LIMIT = (
    "Stay within env_1 to env_{count}: a response that names a copy beyond these "
    "ends the task at once, as a failure."
)
"""The exploration-limiting prompt (DPEPO App. C), reworded."""

NOTHING_READ = "last > nothing"
"""Shows an unreadable response the way worlds show a step.

A tiny policy's tokenizer may know no other words.
"""

RULES = """\
Reason first. Then act in one copy, or in several at the same time to learn more: at \
most one action in each.
Answer with your reasoning, followed by the actions, each inside the tag of its copy:
<think> your reasoning </think>
<parallel>
<env_1> an action for copy 1 </env_1>
<env_2> an action for copy 2 </env_2>
</parallel>"""


class Parallel:
    """The form of responses that act in several copies."""

    def read(self, response: str, moment: Moment) -> Answer:
        """The reasoning, and the actions of the copies that a response names.

        All of these copies must be open.
        """
        return read_parallel(response, moment.open, len(moment.copies))

    def write(self, answer: Answer, moment: Moment) -> str:
        """The reasoning in <think>, whatever the answer's tag, then the actions."""
        return write_parallel(answer.reasoning or "", answer.actions)


def read_parallel(response: str, copies: Collection[int], count: int) -> Answer:
    """Reads a response of this form; never raises.

    The form is `<think> reasoning </think> <parallel> <env_i> action </env_i> ...
    </parallel>`, where i is the number of the copy. A single action may omit
    `<parallel>`. Letter case and text outside the tags do not matter. A response is
    malformed as a whole if it names a copy outside `copies`, names one twice, or
    contains another tag: its meaning is not guessed. There are `count` copies, ended
    ones included. If a response names a copy above `count`, that is reported before any
    other problem.
    """
    tags = find_tags(_TAGS, response)
    names = [tag.name for tag in tags]
    # A tag inside the reasoning is not an attempt to act in that copy.
    thought = names.index("/think") if "/think" in names else -1
    for name in names[thought + 1 :]:
        if _is_above(name, count):
            problem = f"no <{name}> to act in; there are {count} copies"
            return Answer(problem=problem, beyond=True)
    if names[:2] != ["think", "/think"]:
        return Answer(problem="expected one closed <think> first")
    acting = tags[2:]
    if names[2:3] == ["parallel"] and names[-1] == "/parallel":
        acting = tags[3:-1]
    elif len(acting) > 2:
        return Answer(problem="expected several actions inside one closed <parallel>")
    reasoning = between(response, tags[0], tags[1])
    if not reasoning:
        return Answer(problem="<think> is empty")
    if not _are_pairs(acting):
        sequence = shown(names[2:]) or "none"
        problem = f"expected closed <env_i> tags and nothing else; found {sequence}"
        return Answer(problem=problem)
    return _acting(response, reasoning, acting, copies)


def _are_pairs(acting: list[Tag]) -> bool:
    """Whether the tags are closed <env_i> pairs, one after another."""
    names = [tag.name for tag in acting]
    closings = [f"/{name}" for name in names[::2]]
    of_copies = all(name.startswith("env_") for name in names[::2])
    return bool(names) and names[1::2] == closings and of_copies


def _acting(
    response: str, reasoning: str, acting: list[Tag], copies: Collection[int]
) -> Answer:
    """The answer of a response whose tags come in pairs."""
    numbers = {f"env_{number}": number for number in copies}
    actions: dict[int, str] = {}
    openings, closings = acting[::2], acting[1::2]
    for opening, closing in zip(openings, closings, strict=True):
        name = opening.name
        number = numbers.get(name)
        if number is None:
            problem = f"no <{name}> to act in; there are {listed(copies)}"
            return Answer(problem=problem)
        if number in actions:
            return Answer(problem=f"<{name}> acts twice")
        actions[number] = one_line(between(response, opening, closing))
    if not all(actions.values()):
        return Answer(problem="an <env_i> is empty")
    return Answer("think", reasoning, actions)


def write_parallel(reasoning: str, actions: Mapping[int, str]) -> str:
    """The canonical response.

    `read_parallel` reads it back if no text is blank or contains a tag.
    """
    moves = ""
    for number, action in actions.items():
        moves += f"<env_{number}> {action} </env_{number}>"
    return f"<think> {reasoning} </think><parallel>{moves}</parallel>"


def listed(copies: Collection[int]) -> str:
    """The names of copies, e.g. "env_1, env_3"."""
    return ", ".join(f"env_{number}" for number in sorted(copies))


def _is_above(name: str, count: int) -> bool:
    """Whether a tag names a copy above `count`, ignoring leading zeros."""
    _, prefix, digits = name.partition("env_")
    digits = digits.lstrip("0")
    if not prefix or not digits.isascii() or not digits.isdecimal():
        return False
    # Python refuses to convert very long numbers, so their lengths are compared first.
    if len(digits) > len(str(count)):
        return True
    return int(digits) > count


class ParallelFull(Parallel):
    """Role, task, what happened in every copy, and the rules.

    As in DPEPO, it has all earlier (action, observation) pairs of every copy, and the
    actions that are now admissible in the copies that acted last.
    """

    fixed = "it shows all that happened"

    def __init__(self, settings: PromptSettings, world: World) -> None:
        self._role = world.card.role
        self._world = world

    def ask(self, moment: Moment) -> Message:
        """One text and the pictures of the copies that may act, in their order."""
        first = moment.copies[0]
        past = {}
        for number, copy in enumerate(moment.copies, 1):
            if copy.actions:
                past[number] = copy
        parts = [self._role, *_opening(moment)]
        if isinstance(self._world, Guiding):
            parts.append(self._world.forms)
        if past:
            parts.append(_earlier(past, moment.acted))
            parts.append(self._last(past, moment))
        elif first.admissible:
            parts.append(self._possible(first, "in every copy"))
        if any(leaves_open(moment.copies[number - 1]) for number in moment.open):
            parts.append(OWN_WORDS)
        if moment.unread:
            parts.append(_unreadable(moment.unread))
        if moment.ended:
            parts.append(f"Ended, no action is possible there: {listed(moment.ended)}.")
        fresh = [number for number in moment.open if number not in past]
        if past and fresh:
            parts.append(f"Not acted in yet: {listed(fresh)}.")
        if moment.pictures:
            parts.append(f"The pictures show, in this order: {listed(moment.open)}.")
        parts.append(RULES)
        text = "\n\n".join(filter(None, parts))
        return Message((text, *moment.pictures))

    def _last(self, past: Mapping[int, Context], moment: Moment) -> str:
        """The pairs of the last step, and what can be done next; "" without any."""
        lines = ["The last step:"]
        for number in moment.acted:
            copy = past[number]
            lines.append(f"env_{number}")
            latest = len(copy.actions) - 1
            lines.append(_pair(copy, latest))
            if copy.admissible and number in moment.open:
                lines.append(f"   {self._possible(copy, 'now')}")
        return "\n".join(lines) if moment.acted else ""

    def _possible(self, copy: Context, where: str) -> str:
        """What can be done in a copy, or what can be acted on."""
        if isinstance(self._world, Guiding):
            return self._world.sight(copy)
        return f"Admissible actions {where}: {'; '.join(copy.admissible)}"


def _opening(moment: Moment) -> list[str]:
    """The task, the copies, and the observation that every copy began with."""
    first = moment.copies[0]
    count = len(moment.copies)
    parts = [
        f"Your task: {first.instruction}",
        f"You have {count} copies of the same environment, env_1 to env_{count}, and "
        "no others. They began alike and share nothing since then: an action changes "
        "its own copy only. The task is done as soon as it is done in any one of "
        "them.",
    ]
    if moment.limited:
        parts.append(LIMIT.format(count=count))
    parts.append(f"Every copy began with: {first.observations[0]}")
    return parts


def _unreadable(count: int) -> str:
    """What is said after so many unreadable responses in a row.

    Each time another text: a policy at temperature 0 would repeat itself after the same
    one, up to the horizon.
    """
    if count == 1:
        return UNREADABLE
    return f"{UNREADABLE} That makes {count} in a row."


def _earlier(past: Mapping[int, Context], acted: Collection[int]) -> str:
    """All pairs except those of the last step; "" if there are none."""
    lines = ["Steps before the last:"]
    for number, copy in past.items():
        length = len(copy.actions)
        # The last pair of a copy that has just acted is shown separately.
        if number in acted:
            length -= 1
        if length > 0:
            lines.append(f"env_{number}")
        lines += [_pair(copy, index) for index in range(length)]
    return "\n".join(lines) if len(lines) > 1 else ""


def _pair(copy: Context, index: int) -> str:
    action = copy.actions[index]
    observation = copy.observations[index + 1]
    return f"{index + 1}. Action: {action}\n   Observation: {observation}"


class ParallelCompact(Parallel):
    """Groups copies that look alike; those that acted last come at the end.

    So the response follows directly after them. Raises UsageError for a world without a
    short view.
    """

    fixed = "the world chooses what to show"

    def __init__(self, settings: PromptSettings, world: World) -> None:
        self._brief = world_as(world, Brief, "prompt.style", "compact")

    def ask(self, moment: Moment) -> Message:
        """One text."""
        copies = moment.copies
        # Nothing new was seen in them if the response after it could not be read.
        acted = () if moment.unread else moment.acted
        views = grouped(
            (self._brief.compact(copies[number - 1]), number) for number in moment.open
        )
        at_rest = []
        recent = []
        for view, numbers in views.items():
            names = " ".join(f"env_{number}" for number in numbers)
            part = f"{names}\n{view}"
            if set(numbers) & set(acted):
                recent.append(part)
            else:
                at_rest.append(part)
        parts = at_rest + recent + [NOTHING_READ] * moment.unread
        return Message(("\n".join(parts),))
