"""Draws questions: a template, its slots, the answer and wrong answers beside it."""

import random
from collections import deque
from collections.abc import Container
from functools import lru_cache
from typing import NamedTuple

from agentcli.errors import UsageError
from agentcli.records.files import derive_seed
from agentcli.registry import nearest
from agentcli.worlds.generated import split_of
from agentcli.worlds.tool_qa.knowledge import knowledge
from agentcli.worlds.tool_qa.options import ToolQaOptions
from agentcli.worlds.tool_qa.questions.path import (
    EXPONENT,
    NUMBERS,
    SUBJECT,
    Need,
    filled,
    needs_of,
    property_of,
    slotted,
)
from agentcli.worlds.tool_qa.questions.programs import PROGRAMS
from agentcli.worlds.tool_qa.questions.templates import TEMPLATES, Template
from agentcli.worlds.tool_qa.rows import LETTERS, QaRow
from agentcli.worlds.tool_qa.tools.calculator import evaluate, written

SOURCE = "tool_qa"
"""`src` of every generated question begins so."""
LARGE = 1000
"""From here on the wrong options end with the digit of the right one."""


PATIENCE = 300
"""Draws after which a category counts as used up."""


class Draft(NamedTuple):
    """A question before its answer is worked out."""

    template: Template
    slots: dict[str, str]
    text: str


class ToolQuestion(NamedTuple):
    """A question in the schema of MMLU-Pro, and the way to its answer."""

    row: QaRow
    needs: tuple[Need, ...]


def templates_of(options: ToolQaOptions) -> list[Template]:
    """The templates that are drawn. Raises UsageError for one that does not exist."""
    names = {template.name: template for template in TEMPLATES}
    if options.templates is None:
        return list(TEMPLATES)
    for name in options.templates:
        if name not in names:
            raise UsageError(
                f"environment.options.templates: no template {name!r}; "
                f"{nearest(name, names)}"
            )
    if not options.templates:
        raise UsageError("environment.options.templates: empty; leave it out for all")
    return [names[name] for name in options.templates]


@lru_cache(maxsize=8)
def drafts(options: ToolQaOptions, split: str) -> tuple[Draft, ...]:
    """The questions of a split, each text once.

    Categories take turns, so that none is rare; one without another question drops out.
    A larger size begins with the same questions. Raises UsageError where there are too
    few.
    """
    groups = deque(_by_category(options))
    rng = random.Random(derive_seed("tool_qa", options.seed, split))
    drawn: dict[str, Draft] = {}
    while len(drawn) < getattr(options.sizes, split):
        if not groups:
            raise UsageError(
                f"environment.options.sizes.{split}: there are only {len(drawn)} "
                "questions; ask for fewer, or name more templates"
            )
        group = groups.popleft()
        draft = _draft(group, split, rng, drawn)
        if draft is not None:
            drawn[draft.text] = draft
            groups.append(group)
    return tuple(drawn.values())


def _by_category(options: ToolQaOptions) -> list[list[Template]]:
    groups: dict[str, list[Template]] = {}
    for template in templates_of(options):
        groups.setdefault(template.category, []).append(template)
    return [groups[category] for category in sorted(groups)]


def _draft(
    group: list[Template],
    split: str,
    rng: random.Random,
    drawn: Container[str],
) -> Draft | None:
    """A text of the split that was not drawn before; None where none turns up."""
    for _ in range(PATIENCE):
        template = rng.choice(group)
        slots = _slots(template, rng)
        text = filled(template.text, slots)
        if text not in drawn and split_of(text) == split:
            return Draft(template, slots, text)
    return None


@lru_cache(maxsize=8192)
def draw_question(options: ToolQaOptions, split: str, index: int) -> ToolQuestion:
    """The question of a task, the same for ever. Raises UsageError as `drafts`."""
    draft = drafts(options, split)[index]
    rng = random.Random(derive_seed("tool_qa", options.seed, draft.text))
    needs = _needs(draft.template, draft.slots)
    row = _row(draft.template, draft.text, needs, rng, options.choices)
    return ToolQuestion(row, needs)


def _slots(template: Template, rng: random.Random) -> dict[str, str]:
    slots = {}
    for name in NUMBERS:
        slots[name] = str(rng.randint(11, 99))
    slots[EXPONENT] = str(rng.randint(8, 20))
    # A conversion names its unit in the text.
    if template.kind and template.kind != "unit":
        slots[SUBJECT] = rng.choice(knowledge().subjects[template.kind])
    return slots


def _needs(template: Template, slots: dict[str, str]) -> tuple[Need, ...]:
    """What must be known, with every value as it is."""
    needs = []
    values = dict(slots)
    for slot, need in slotted(needs_of(template, slots)):
        values[slot] = knowledge().facts[need.fact].value
        needs.append(need._replace(value=values[slot]))
    if template.program:
        numbers = {name: int(slots[name]) for name in (*NUMBERS, EXPONENT)}
        value = str(PROGRAMS[template.program](numbers))
    elif template.formula:
        value = written(evaluate(filled(template.formula, values)))
    else:
        return tuple(needs)
    *_, answer = needs_of(template, slots)
    return (*needs, answer._replace(value=value))


def _row(
    template: Template,
    text: str,
    needs: tuple[Need, ...],
    rng: random.Random,
    choices: int,
) -> QaRow:
    """The question with its options in a random order."""
    value = needs[-1].value
    right = value
    if template.formula or template.program:
        right = rounded(value)
        wrong = _near(float(value), right, rng, choices - 1)
    else:
        property = property_of(template.kind, template.lookups[-1])
        if property.is_number:
            wrong = _near(float(value), right, rng, choices - 1)
        else:
            pool = set(knowledge().words[property.unit]) - {right}
            wrong = rng.sample(sorted(pool), choices - 1)
    options = [right, *wrong]
    rng.shuffle(options)
    place = options.index(right)
    return QaRow(
        question_id=0,
        question=text,
        options=tuple(options),
        answer=LETTERS[place],
        answer_index=place,
        category=template.category,
        src=f"{SOURCE}/{template.name}",
    )


def rounded(value: str) -> str:
    """A number as an option shows it: whole, or with six digits."""
    return value if value.lstrip("-").isdigit() else f"{float(value):.6g}"


def _near(value: float, right: str, rng: random.Random, number: int) -> list[str]:
    """Other numbers of the same size and form.

    Large whole numbers end with the same digit: that is computed in the head.
    """
    whole = right.lstrip("-").isdigit()
    spread = abs(value) / 6
    if whole:
        spread = max(15.0, spread)
    wrong: list[str] = []
    while len(wrong) < number:
        other = value + rng.uniform(-spread, spread)
        shown = f"{other:.6g}"
        if whole:
            shown = str(_like(round(value), round(other)))
        if other > 0 and shown != right and shown not in wrong:
            wrong.append(shown)
    return wrong


def _like(value: int, other: int) -> int:
    """`other` with the last digit of `value`, where there are several digits."""
    return other if value < LARGE else other - (other - value) % 10
