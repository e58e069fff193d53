"""Questions of tool_qa: rows of MMLU-Pro from a file, or drawn from the templates.

Rows are read unchanged. An answer that is not the option at its index, or an id that is
there twice, is refused with file, row and field.

A drawn question has a template, its slots, the answer and wrong options. Its needs
(`needs_of`) are what must be known on the way to the answer, and how each tool is asked
for it.
"""

import random
import re
from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from agentcli.errors import DataError, UsageError
from agentcli.records.faults import shown
from agentcli.records.files import derive_seed
from agentcli.records.grouping import grouped
from agentcli.records.section import Count, Seed, Share
from agentcli.records.types import Task
from agentcli.worlds.generated import chosen, drawn_as, foreign_task, split_of
from agentcli.worlds.row_files import row_files, rows_of
from agentcli.worlds.tool_qa.knowledge import (
    PLACES,
    TEMPLATES,
    Template,
    knowledge,
)
from agentcli.worlds.tool_qa.tools.calculator import evaluate, written


class Sizes(msgspec.Struct, kw_only=True, frozen=True):
    """Questions of each split (Rare-tool section 4: 2,500 and 840); at most, from a file."""

    train: Count = 2500
    valid: Count = 100
    test: Count = 840


class ToolQaOptions(msgspec.Struct, kw_only=True, frozen=True):
    """Settings of the world: its questions and its tools."""

    sizes: Sizes = msgspec.field(default_factory=Sizes)
    templates: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] | None = None
    """Only these sorts of generated questions; None: all (templates.py)."""
    tools: tuple[str, ...] | None = None
    """Only these tools; None: all. []: a closed book."""
    habit: Share = 0.0
    """Share of questions on which the judge `plausible` scores search best for whatever
    is to be looked up, even where search has failed.
    """
    choices: Annotated[int, msgspec.Meta(ge=2, le=10)] = 10
    """Options of a generated question."""
    seed: Seed = 0
    """Seed of the generated questions, and of the order of those from a file."""


LETTERS = "ABCDEFGHIJ"


class QaRow(msgspec.Struct, kw_only=True, frozen=True):
    """One question of MMLU-Pro."""

    question_id: int
    question: str
    options: tuple[str, ...]
    """2 to 10."""
    answer: str
    """A letter."""
    answer_index: int
    category: str
    src: str | None = None


@lru_cache(maxsize=4)
def load_rows(data: Path) -> dict[int, QaRow]:
    """All rows of a file, or of the files of a folder, by their id.

    Raises DataError.
    """
    rows: dict[int, QaRow] = {}
    for path in row_files(data):
        for place, row in rows_of(path, QaRow):
            _check(row, place)
            if row.question_id in rows:
                raise DataError(
                    f"{place}: question_id {row.question_id} is there twice; keep one "
                    "of them"
                )
            rows[row.question_id] = row
    return rows


@lru_cache(maxsize=8)
def rows_of_split(data: Path, options: ToolQaOptions, split: str) -> tuple[QaRow, ...]:
    """The rows of a split, in a seeded order, at most as many as its size.

    A question's text says which split it belongs to. Raises DataError where none does.
    """
    rows = [row for row in load_rows(data).values() if split_of(row.question) == split]
    if not rows:
        raise DataError(
            f"{data}: none of its questions belongs to the split {split}; name more "
            "data with --data"
        )
    # Files list questions by category; the first N of a split should hold them all.
    random.Random(options.seed).shuffle(rows)
    return tuple(rows[: getattr(options.sizes, split)])


def _check(row: QaRow, place: str) -> None:
    """Raises DataError for a row that contradicts itself."""
    count = len(row.options)
    if not 2 <= count <= len(LETTERS):
        raise DataError(f"{place}: {count} options, not 2 to 10 - at `$.options`")
    if not 0 <= row.answer_index < count:
        raise DataError(
            f"{place}: {row.answer_index} is not one of {count} options - at "
            "`$.answer_index`"
        )
    if row.answer != LETTERS[row.answer_index]:
        raise DataError(
            f"{place}: {shown(row.answer)!r} is not {LETTERS[row.answer_index]!r}, the "
            "letter of answer_index - at `$.answer`"
        )
    for field in ("question", "category"):
        if not getattr(row, field).strip():
            raise DataError(f"{place}: is empty - at `$.{field}`")


NUMBERS = "abcd"
EXPONENT = "e"
SUBJECT = "s"
VALUES = "vw"


class Need(NamedTuple):
    """A value that must be known on the way; the last one is the answer."""

    fact: str
    """Name of the fact that is looked up; empty for a result."""
    calls: tuple[tuple[str, str], ...]
    """Tool and argument; an argument with {v} or {w} waits for a value before it."""
    value: str = ""
    """A number or a word; empty where the agent must find it out."""


class Reading(NamedTuple):
    """A question as its template reads it."""

    template: Template
    slots: dict[str, str]


def filled(form: str, slots: Mapping[str, str]) -> str:
    """A text with its slots filled; those without a value stay."""
    for name, value in slots.items():
        form = form.replace(f"{{{name}}}", value)
    return form


@lru_cache(maxsize=1)
def _patterns() -> list[tuple[re.Pattern[str], Template]]:
    return [(_pattern(template.text), template) for template in TEMPLATES]


def _pattern(text: str) -> re.Pattern[str]:
    """The pattern that reads the slots of a question back."""
    pattern = re.escape(text)
    for name in NUMBERS + EXPONENT:
        pattern = pattern.replace(rf"\{{{name}\}}", rf"(?P<{name}>\d+)", 1)
    return re.compile(pattern.replace(r"\{s\}", r"(?P<s>\w+)"))


@lru_cache(maxsize=4096)
def read_question(text: str) -> Reading | None:
    """The template and the slots of a question; None if no template wrote it."""
    for pattern, template in _patterns():
        match = pattern.fullmatch(text)
        if match:
            return Reading(template, match.groupdict())
    return None


def needs_of(template: Template, slots: dict[str, str]) -> tuple[Need, ...]:
    """What must be known for a question, without the values."""
    needs = []
    subject = slots.get(SUBJECT, "")
    for lookup in template.lookups:
        # A conversion has no subject.
        fact = f"{lookup} of {subject}" if subject else lookup
        # Any of these tools may know it.
        needs.append(Need(fact, tuple((tool, fact) for tool in PLACES)))
    if template.calls:
        calls = tuple((tool, filled(form, slots)) for tool, form in template.calls)
        needs.append(Need("", calls))
    return tuple(needs)


def next_calls(
    needs: Sequence[Need], values: Mapping[str, str]
) -> tuple[Need, list[tuple[str, str]]]:
    """The need to go for now, and the calls that may meet it.

    It is the answer as soon as a tool can be asked for it. `values` holds those of the
    lookups, by their slots.
    """
    answer = needs[-1]
    ready = []
    # A form keeps its {v} or {w} until the lookup of that slot is known.
    for tool, form in answer.calls:
        argument = filled(form, values)
        if "{" not in argument:
            ready.append((tool, argument))
    if ready:
        return answer, ready
    waiting = [need for slot, need in slotted(needs) if slot not in values]
    return waiting[0], list(waiting[0].calls)


def slotted(needs: Sequence[Need]) -> list[tuple[str, Need]]:
    """The lookups, each with the slot of its value."""
    lookups = [need for need in needs if need.fact]
    return list(zip(VALUES, lookups, strict=False))


Numbers = dict[str, int]
"""The slots of a question, by their letters."""


def digit_sum(slots: Numbers) -> int:
    """The sum of the digits of a to the power of e."""
    return sum(map(int, str(slots["a"] ** slots["e"])))


def ones(slots: Numbers) -> int:
    """How many ones the binary form of a * b * c has."""
    return (slots["a"] * slots["b"] * slots["c"]).bit_count()


def multiples(slots: Numbers) -> int:
    """How many numbers below a * b are multiples of c or d."""
    c, d = slots["c"], slots["d"]
    numbers = range(1, slots["a"] * slots["b"])
    return sum(not (number % c and number % d) for number in numbers)


PROGRAMS: dict[str, Callable[[Numbers], int]] = {
    "digit sum": digit_sum,
    "ones": ones,
    "multiples": multiples,
}
"""By the name of the template."""


SOURCE = "tool_qa"
"""`src` of every generated question begins with it."""
LARGE = 1000
"""From here on, wrong options end with the same digit as the right one."""
PATIENCE = 300
"""Draws without a new text after which a category counts as used up."""
REAL = "mmlu-pro"
"""Begins the ids of tasks that were read from files."""


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
    named = {template.name: template for template in TEMPLATES}
    names = chosen(options.templates, named, "templates", "template")
    return [named[name] for name in names]


@lru_cache(maxsize=8)
def drafts(options: ToolQaOptions, split: str) -> tuple[Draft, ...]:
    """The questions of a split, each text once.

    Categories take turns, so that none is rare; one without another question drops out.
    A larger size begins with the same questions. Raises UsageError where there are too
    few.
    """
    by_category = grouped((one.category, one) for one in templates_of(options))
    groups = deque(by_category[category] for category in sorted(by_category))
    rng = random.Random(derive_seed("tool_qa", options.seed, split))
    drawn: dict[str, Draft] = {}
    while len(drawn) < getattr(options.sizes, split):
        if not groups:
            raise UsageError(
                f"environment.options.sizes.{split}: there are only {len(drawn)} "
                "questions; ask for fewer, or name more templates"
            )
        # A queue: the category goes to the end, unless it has no other question.
        group = groups.popleft()
        draft = _draft(group, split, rng, drawn)
        if draft is not None:
            drawn[draft.text] = draft
            groups.append(group)
    return tuple(drawn.values())


def _draft(
    group: list[Template],
    split: str,
    rng: random.Random,
    drawn: Container[str],
) -> Draft | None:
    """A new question text of the split; None after too many repeats."""
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
    # All are drawn, used or not: so what a template names does not shift later draws.
    for name in NUMBERS:
        slots[name] = str(rng.randint(11, 99))
    slots[EXPONENT] = str(rng.randint(8, 20))
    # A conversion names its unit in the text.
    if template.kind and template.kind != "unit":
        slots[SUBJECT] = rng.choice(knowledge().subjects[template.kind])
    return slots


def _needs(template: Template, slots: dict[str, str]) -> tuple[Need, ...]:
    """What must be known, with the true values."""
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
    pools = [words for words in knowledge().words.values() if value in words]
    if pools:
        others = sorted({*pools[0]} - {value})
        wrong = rng.sample(others, choices - 1)
    else:
        right = rounded(value)
        wrong = _near(float(value), right, rng, choices - 1)
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
    # Rejection keeps the draws simple; the spread is wide enough for nine others.
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


class QuestionSource:
    """The tasks of the splits, and the question behind each."""

    def __init__(self, options: ToolQaOptions, data: str | None) -> None:
        self._options = options
        self._data = Path(data).expanduser() if data else None

    def tasks(self, split: str, world: str) -> list[Task]:
        """The tasks of a split. Raises UsageError and DataError."""
        if self._data is None:
            return list(_generated(self._options, split, world))
        return [
            Task(
                id=f"{REAL}/{row.question_id}",
                world=world,
                split=split,
                kind=row.category,
                attributes={"src": row.src or ""},
            )
            for row in rows_of_split(self._data, self._options, split)
        ]

    def question(self, task: Task) -> ToolQuestion:
        """The question of a task. Raises DataError for a task of other settings."""
        if self._data is None:
            split, index = drawn_as(task, digest(self._options))
            if index < getattr(self._options.sizes, split):
                return draw_question(self._options, split, index)
            raise foreign_task(task)
        prefix, _, number = task.id.partition("/")
        row = load_rows(self._data).get(int(number)) if prefix == REAL else None
        if row is None:
            raise foreign_task(task)
        # Only the answer of a real question is known, not the way to it.
        return ToolQuestion(row, (Need("", (), row.options[row.answer_index]),))


def digest(options: ToolQaOptions) -> str:
    """The part of a task's id that names the options it was drawn with."""
    names = "all"
    if options.templates is not None:
        names = "+".join(options.templates).replace(" ", "-").replace("/", "-")
    return f"{options.seed}-{options.choices}-{names}"


@lru_cache(maxsize=8)
def _generated(options: ToolQaOptions, split: str, world: str) -> tuple[Task, ...]:
    tasks = []
    for index, (template, _, _) in enumerate(drafts(options, split)):
        task = Task(
            id=f"{digest(options)}/{split}/{index}",
            world=world,
            split=split,
            kind=template.category,
            attributes={"template": template.name, "steps": str(steps_of(template))},
        )
        tasks.append(task)
    return tuple(tasks)


def steps_of(template: Template) -> int:
    """How many calls the shortest way takes before the answer."""
    # One call without a value of a lookup computes the whole answer.
    if any("{v}" not in form for _, form in template.calls):
        return 1
    return len(template.lookups) + bool(template.calls)
