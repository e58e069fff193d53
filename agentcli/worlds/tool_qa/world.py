"""Questions with ten options, and eight tools to find the answer (Rare-tool).

Rows of MMLU-Pro are read where --data names them. Else the questions are generated, in
the same schema and most of its categories, about an invented world and large numbers:
they cannot be answered without tools, and often by several of them. One question at a
time: tools are called until an answer is given.

The tutor's expert reads a question as its template writes it (questions.py), and knows
which tools may answer. What a tool does not know it learns only by asking.
"""

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

from agentcli.environments.protocol import (
    Advice,
    Card,
    Context,
    Observation,
    Requisite,
    Start,
    Verdict,
    options_of,
)
from agentcli.errors import UsageError
from agentcli.records.calls import ANSWER, COT, ToolCall, read_call
from agentcli.records.files import derive_seed
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task
from agentcli.worlds.generated import (
    SPLITS,
    CallEngine,
    Habits,
    chosen,
    indulges,
    spelled,
)
from agentcli.worlds.tool_qa.judge import (
    BEST,
    HABIT,
    KNOWN,
    USELESS,
    has_habit,
    is_known,
    judge,
    judge_by_kind,
    known_values,
    letters_of,
    stated,
)
from agentcli.worlds.tool_qa.knowledge import FACTORS, PLACES, knowledge
from agentcli.worlds.tool_qa.questions import (
    EXPONENT,
    LETTERS,
    NUMBERS,
    Need,
    QuestionSource,
    Reading,
    ToolQaOptions,
    ToolQuestion,
    needs_of,
    next_calls,
    read_question,
    slotted,
    templates_of,
)
from agentcli.worlds.tool_qa.tools.registry import (
    ERROR,
    TOOLS,
    AgentTool,
    answer,
    tool_class,
    tool_names,
)

LONGEST_QUERY = 200
"""Characters of a question that is searched for as it is."""


class ToolQaHabits(Habits, frozen=True):
    """The faults that the expert has on purpose.

    Of episodes, `forget` knows one tool for everything to be looked up, and guesses the
    answer where that tool does not help, `overlook` guesses instead of computing, and
    `wander` tries tools in an order of its own; else the best one comes first.
    """


class Insight(NamedTuple):
    """What an agent can know from its own past."""

    question: str
    options: tuple[str, ...]
    reading: Reading | None
    """None for a question that no template made."""
    values: dict[str, str]
    """The values that were looked up, by slot."""
    asked: tuple[tuple[str, str], ...]
    """Tools that were called, each with what came back."""
    letters: list[str]
    """The options that the results name."""


def insight_of(context: Context) -> Insight:
    """Reads a context: the question off the instruction, the rest off what was seen."""
    lines = context.instruction.split("\n")
    # A question may have several lines, and some of them look like options.
    starts = [place for place, line in enumerate(lines) if line.startswith("A: ")]
    first = starts[-1] if starts else len(lines)
    question = " ".join(lines[:first])
    options = [line[3:] for line in lines[first:] if line[1:3] == ": "]
    reading = read_question(question)
    asked = tuple(_asked(context))
    results = [(tool, text) for tool, text in asked if not text.startswith(ERROR)]
    texts = [text for _, text in results]
    values = {}
    if reading:
        for slot, need in slotted(needs_of(*reading)):
            value = stated(texts, need.fact)
            if value is not None:
                values[slot] = value
        texts = _answers(reading, results, values)
    letters: dict[str, None] = {}
    for text in texts:
        letters |= dict.fromkeys(letters_of(options, text, LETTERS))
    return Insight(question, tuple(options), reading, values, asked, [*letters])


def _calls(context: Context) -> Iterator[tuple[ToolCall, str]]:
    """The calls that were made, each with the text that followed."""
    for action, text in zip(context.actions, context.own[1:], strict=True):
        call = read_call(action)
        if call:
            yield call, text


def _bare(argument: str) -> str:
    """An argument without spaces, which a tiny policy writes between all words."""
    return "".join(argument.split())


def _asked(context: Context) -> Iterator[tuple[str, str]]:
    """Tools with their results; what was refused has no result."""
    for call, text in _calls(context):
        if text.startswith(f"{call.name}: "):
            yield call.name, text.removeprefix(f"{call.name}: ")


def _answers(
    reading: Reading,
    results: Sequence[tuple[str, str]],
    values: dict[str, str],
) -> list[str]:
    """The texts that may state the answer: other numbers in a document do not count."""
    last = {tool for tool, _ in reading.template.calls}
    if last:
        return [text for tool, text in results if tool in last]
    return list(values.values())


def compact(context: Context) -> str:
    """The question, what was looked up, what was asked, and what the results name.

    Every number has a letter before it, in order, so that a small model can point at
    one. No word stands before a number: a tiny tokenizer would make one token of both.
    """
    insight = insight_of(context)
    lines = [_lettered(insight.question)]
    for slot, value in insight.values.items():
        lines.append(f"{slot} = {value}")
    tools = [name for name, _ in insight.asked]
    if tools:
        lines.append(f"asked {' '.join(tools)}")
    lines.append(f"named {' '.join(insight.letters) or 'none'}")
    return "\n".join(lines)


def _lettered(question: str) -> str:
    """The question with `a =`, `b =` and so on before its numbers."""
    letters = iter(NUMBERS + EXPONENT)
    words = []
    for word in question.split():
        if word.strip("?.,").isdigit():
            words.append(f"{next(letters, '#')} =")
        words.append(word)
    return " ".join(words)


def vocabulary() -> list[str]:
    """Names, numbers, tools and letters, as whole tokens."""
    known = knowledge()
    words = {*TOOLS, COT, ANSWER, *LETTERS, *FACTORS.values()}
    words |= {str(number) for number in range(8, 100)}
    for names in (*known.subjects.values(), *known.words.values()):
        words |= set(names)
    for unit, other in FACTORS:
        words |= {unit, other}
    return sorted(words)


def advise(
    context: Context,
    seed: int,
    habits: ToolQaHabits,
    tools: Collection[str],
) -> Advice:
    """The next call of a tool there is, or the answer; without such a tool, a guess."""
    insight = insight_of(context)
    if len(insight.letters) == 1:
        letter = insight.letters[0]
        return Advice("think", "answer", spelled(ANSWER, letter))
    if insight.reading is None:
        return _search_or_guess(insight, seed, tools)
    needs = needs_of(*insight.reading)
    need, possible = next_calls(needs, insight.values)
    calls = [call for call in possible if call[0] in tools]
    if not need.fact and indulges(habits, "overlook", seed):
        return _guess(insight, seed)
    if indulges(habits, "wander", seed):
        # Seeded by the need and not by the step: an order once begun is kept to.
        random.Random(derive_seed(seed, need.fact)).shuffle(calls)
    tried = {(call.name, call.argument) for call, _ in _calls(context)}
    left = [call for call in calls if call not in tried]
    gives_up = len(left) < len(calls) and indulges(habits, "forget", seed)
    if gives_up or not left:
        return _guess(insight, seed)
    name, argument = left[0]
    sentence = "look up" if name in PLACES else "compute"
    return Advice("think", sentence, spelled(name, argument))


def _search_or_guess(insight: Insight, seed: int, tools: Collection[str]) -> Advice:
    """Searches once for a question that no template made, then guesses."""
    if insight.asked or "search" not in tools:
        return _guess(insight, seed)
    query = insight.question[:LONGEST_QUERY].replace("[", "(").replace("]", ")")
    return Advice("explore", "look up", spelled("search", query))


def _guess(insight: Insight, seed: int) -> Advice:
    letters = insight.letters or LETTERS[: len(insight.options)]
    rng = random.Random(derive_seed(seed, "guess"))
    return Advice("explore", "guess", spelled(ANSWER, rng.choice(letters)))


HOW = (
    "Act with one call a step: NAME[argument] calls a tool, cot[thought] thinks on, "
    "answer[LETTER] gives the answer and ends the episode."
)


class Reached(NamedTuple):
    """A state: the results without repeats, and what was observed last."""

    results: tuple[tuple[str, str], ...]
    """Call and its result, sorted; errors are left out: they teach nothing."""
    text: str
    accepted: bool = True
    looked: bool = False
    end: Literal["success", "failure"] | None = None


class ToolQaEngine(CallEngine[Reached]):
    """One question at a time; it is Solvable and Judging.

    All engines of a process call the same tools, so none closes them.
    """

    _called: Mapping[str, AgentTool]

    def __init__(self, source: QuestionSource, tools: Mapping[str, AgentTool]) -> None:
        self._source = source
        self._called = tools
        names = ", ".join((*tools, COT, ANSWER))
        self._unknown = f"There is no tool {{name}}; there are {names}."

    def start(self, task: Task) -> Start:
        """Opens a question. Raises DataError for a task of other settings."""
        self._task = task.id
        self._question: ToolQuestion = self._source.question(task)
        lines = [f"{name}: {tool.description}" for name, tool in self._called.items()]
        self._now = Reached((), "\n".join(["Your tools:", *lines]))
        return Start(instruction=asked(self._question), observation=self._observe())

    def plan(self) -> list[str]:
        """Calls that show the answer, and the answer; each call is tried first.

        Without a known way, or where a tool does not run here, only the answer.
        """
        texts = [text for _, text in self._now.results]
        needs = self._question.needs
        plan: list[ToolCall] = []
        # Of a real question only the answer is known, and no call that shows it.
        while needs[-1].calls and not is_known(needs[-1], texts):
            need, choices = next_calls(needs, known_values(needs, texts))
            step = self._first_that_helps(need, choices)
            if step is None:
                break
            call, text = step
            plan.append(call)
            texts.append(text)
        plan.append(ToolCall(ANSWER, self._question.row.answer))
        return list(map(str, plan))

    def _first_that_helps(
        self, need: Need, choices: list[tuple[str, str]]
    ) -> tuple[ToolCall, str] | None:
        """The first call whose result states what is needed, and the result."""
        for name, argument in choices:
            if name not in self._called:
                continue
            text = answer(self._called[name], argument)
            if is_known(need, [text]):
                return ToolCall(name, argument), text
        return None

    def judge(self, argument: str) -> Verdict:
        """What each tool would make of an argument here (judge.py has the table)."""
        results = [text for _, text in self._now.results]
        return judge(self._called, argument, self._question.needs, results)

    def _call(self, call: ToolCall) -> None:
        text = answer(self._called[call.name], call.argument)
        results = self._now.results
        # An error, and what was known before, change nothing that matters.
        if not text.startswith(ERROR):
            results = tuple(sorted({*results, (str(call), text)}))
        idle = results == self._now.results
        self._now = Reached(results, f"{call.name}: {text}", looked=idle)

    def _end(self, answer: str) -> None:
        row = self._question.row
        letter = answer.strip("() .").upper()
        if letter not in tuple(LETTERS[: len(row.options)]):
            last = LETTERS[len(row.options) - 1]
            self._tell(f"The answer must be a letter from A to {last}.", accepted=False)
            return
        end: Literal["success", "failure"] = "failure"
        if letter == row.answer:
            end = "success"
        text = f"You answer {letter}."
        self._now = Reached(self._now.results, text, end=end)

    def _tell(self, text: str, *, accepted: bool = True, looked: bool = False) -> None:
        self._now = Reached(self._now.results, text, accepted=accepted, looked=looked)

    def _observe(self) -> Observation:
        reached = self._now
        # A program may hold newlines.
        calls = [repr(call) for call, _ in reached.results]
        # What was read counts, whichever call it came from.
        texts = sorted({text for _, text in reached.results})
        return Observation(
            text=reached.text,
            state="\n".join([self._task, reached.end or "", *calls]),
            canonical="\n".join([self._question.row.question, *texts]),
            accepted=reached.accepted,
            looked=reached.looked,
            reward=float(reached.end == "success"),
            end=reached.end,
        )


def asked(question: ToolQuestion) -> str:
    """The question, its options, and how to act."""
    row = question.row
    options = zip(LETTERS, row.options, strict=False)
    lines = [f"{letter}: {option}" for letter, option in options]
    return "\n".join([row.question, *lines, HOW])


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
    habits = ToolQaHabits
    compact = staticmethod(compact)
    vocabulary = staticmethod(vocabulary)

    def __init__(self, settings: EnvironmentSettings) -> None:
        self.options = options_of(settings, ToolQaOptions)
        templates_of(self.options)
        self._names = chosen(self.options.tools, tool_names(), "tools", "tool")
        self._source = QuestionSource(self.options, settings.data)

    @property
    def tools(self) -> Mapping[str, str]:
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
        habits: ToolQaHabits,
    ) -> Advice:
        return advise(context, seed, habits, self._names)

    def forejudge(self, context: Context, argument: str) -> Verdict:
        """What each tool scores by its kind (judge.py has the table).

        Raises UsageError for a question from a file: which tools may answer it is not
        known.
        """
        insight = insight_of(context)
        if insight.reading is None:
            raise UsageError(
                "rollout.judge.kind: plausible judges generated questions alone, and "
                f"{context.task.id} is from a file; choose tool-judge or openai"
            )
        task = context.task.id
        if len(insight.letters) == 1:
            return judge_by_kind(self._names, (), BEST, task)
        needs = needs_of(*insight.reading)
        lookups = slotted(needs)
        missing = [need for slot, need in lookups if slot not in insight.values]
        _, calls = next_calls(needs, insight.values)
        for need in missing:
            calls += need.calls
        query = _bare(argument)
        fitting = {name for name, text in calls if _bare(text) == query}
        by_habit = HABIT in fitting and has_habit(task, self.options.habit)
        # What was asked in vain does not hold it.
        for call, _ in _calls(context):
            if _bare(call.argument) == query:
                fitting.discard(call.name)
        thought = USELESS if missing else KNOWN
        return judge_by_kind(self._names, fitting, thought, task, by_habit)

    @staticmethod
    def requisites(environ: Mapping[str, str]) -> list[Requisite]:
        """The protections around the tool python."""
        from agentcli.worlds.tool_qa.tools.python import fault_here

        fault = fault_here()
        name = "tool_qa sandbox"
        if fault is None:
            detail = "seccomp, limits and no privileges"
            return [Requisite(name=name, present=True, detail=detail)]
        get = "use Linux on x86-64 or 64-bit ARM; the other tools work anywhere"
        return [Requisite(name=name, present=False, detail=fault, get=get)]

    @staticmethod
    def cache_folder(environ: Mapping[str, str]) -> None:
        """Nothing is kept on disk."""
