"""Where questions come from: a file of real ones, or the generator."""

from functools import lru_cache
from pathlib import Path

from agentcli.errors import DataError
from agentcli.records.types import Task
from agentcli.worlds.tool_qa.options import ToolQaOptions
from agentcli.worlds.tool_qa.questions.draw import (
    ToolQuestion,
    drafts,
    draw_question,
)
from agentcli.worlds.tool_qa.questions.path import Need
from agentcli.worlds.tool_qa.questions.templates import Template
from agentcli.worlds.tool_qa.rows import QaRow, load_rows, rows_of_split

REAL = "mmlu-pro"
"""Begins the ids of tasks that were read from files."""


class QuestionSource:
    """The tasks of the splits, and the question behind each."""

    def __init__(self, options: ToolQaOptions, data: str | None) -> None:
        self._options = options
        self._data = Path(data).expanduser() if data else None

    def tasks(self, split: str, world: str) -> list[Task]:
        """The tasks of a split. Raises UsageError and DataError."""
        if self._data is None:
            return list(_generated(self._options, split, world))
        rows = rows_of_split(self._data, self._options, split)
        return [_task(row, split, world) for row in rows]

    def question(self, task: Task) -> ToolQuestion:
        """The question of a task. Raises DataError for a task of other settings."""
        prefix, _, rest = task.id.partition("/")
        if self._data is None and prefix == digest(self._options):
            split, _, index = rest.partition("/")
            if int(index) < getattr(self._options.sizes, split):
                return draw_question(self._options, split, int(index))
        if self._data is not None and prefix == REAL:
            row = load_rows(self._data).get(int(rest))
            if row is not None:
                return real_question(row)
        raise DataError(
            f"task {task.id}: it is none of these environment.options and --data; use "
            "those of its panel"
        )


def real_question(row: QaRow) -> ToolQuestion:
    """A question of a file; all that is known of the way is where it ends."""
    answer = Need("", (), row.options[row.answer_index])
    return ToolQuestion(row, (answer,))


def digest(options: ToolQaOptions) -> str:
    """The part of a task's id that names what its question was drawn under."""
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
    if any("{v}" not in form for _, form in template.calls):
        return 1
    return len(template.lookups) + bool(template.calls)


def _task(row: QaRow, split: str, world: str) -> Task:
    return Task(
        id=f"{REAL}/{row.question_id}",
        world=world,
        split=split,
        kind=row.category,
        attributes={"src": row.src or ""},
    )
