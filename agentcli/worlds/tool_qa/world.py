"""Questions with ten options, and eight tools to find the answer (Rare-tool).

Rows of MMLU-Pro are read where --data names them. Else the questions are generated, in
the same schema and most of its categories, about an invented world and large numbers:
they cannot be answered without tools, and often by several of them.
"""

from collections.abc import Mapping
from functools import cached_property

from agentcli.environments.protocol import Advice, Card, Context, Requisite, options_of
from agentcli.errors import UsageError
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.registry import nearest
from agentcli.worlds.generated import SPLITS
from agentcli.worlds.tool_qa import tutor
from agentcli.worlds.tool_qa.engine import ToolQaEngine
from agentcli.worlds.tool_qa.questions import QuestionSource, templates_of
from agentcli.worlds.tool_qa.rows import ToolQaOptions
from agentcli.worlds.tool_qa.tools.registry import AgentTool, tool_class, tool_names


class ToolQaWorld:
    """The World, its Tutor and its Toolbox."""

    card = Card(
        name="tool_qa",
        role="You answer questions, and you have tools to find out what you need.",
        splits=tuple(SPLITS),
        evaluation_split="test",
        dialect="tools",
        reads_data=True,
        extra="tools",
    )
    habits = tutor.ToolQaHabits
    compact = staticmethod(tutor.compact)
    vocabulary = staticmethod(tutor.vocabulary)

    def __init__(self, settings: EnvironmentSettings) -> None:
        self.options = options_of(settings, ToolQaOptions)
        templates_of(self.options)
        self._names = _chosen_tools(self.options)
        self._source = QuestionSource(self.options, settings.data)

    @property
    def tools(self) -> Mapping[str, str]:
        """Name -> what the tool answers, and how it is asked."""
        return {name: tool_class(name).description for name in self._names}

    def tasks(self, split: str) -> list[Task]:
        """The questions of a split; kind is the category."""
        return self._source.tasks(split, self.card.name)

    def engine(self) -> ToolQaEngine:
        """A new engine; all engines of a process share one set of tools."""
        # An ImportError of what they need is due here, not in the middle of a rollout.
        import bm25s  # noqa: F401
        import pint  # noqa: F401
        import sympy  # noqa: F401

        return ToolQaEngine(self._source, self._tools)

    @cached_property
    def _tools(self) -> dict[str, AgentTool]:
        return {name: tool_class(name)() for name in self._names}

    def next(
        self,
        context: Context,
        seed: int,
        habits: tutor.ToolQaHabits,
    ) -> Advice:
        """The searching expert's call (see tutor.py)."""
        return tutor.advise(context, seed, habits, self._names)

    @staticmethod
    def requisites(environ: Mapping[str, str]) -> list[Requisite]:
        """The protections around the tool python."""
        from agentcli.worlds.tool_qa.sandbox_client import protections_here

        active = protections_here()
        name = "tool_qa sandbox"
        if isinstance(active, str):
            get = "use Linux on x86-64 or 64-bit ARM; the other tools work anywhere"
            return [Requisite(name=name, present=False, detail=active, get=get)]
        detail = "seccomp, limits and namespaces"
        if not active.namespaces:
            detail = f"seccomp and limits; no namespaces ({active.reason})"
        return [Requisite(name=name, present=True, detail=detail)]

    @staticmethod
    def cache_folder(environ: Mapping[str, str]) -> None:
        """Nothing is kept on disk."""


def _chosen_tools(options: ToolQaOptions) -> list[str]:
    """The names of the tools there are. Raises UsageError for one that does not exist."""
    names = tool_names()
    if options.tools is None:
        return names
    for name in options.tools:
        if name not in names:
            raise UsageError(
                f"environment.options.tools: no tool {name!r}; {nearest(name, names)}"
            )
    return list(options.tools)
