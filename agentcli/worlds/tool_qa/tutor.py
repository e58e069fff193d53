"""tool_qa for policies from scratch: a short prompt, and an expert with faults.

The expert reads a question as its template writes it (questions.py), and knows
which tools may answer. What a tool does not know it learns only by asking.
"""

import random
from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from agentcli.environments.protocol import Advice, Context
from agentcli.records.calls import ANSWER, COT, read_call
from agentcli.records.files import derive_seed
from agentcli.records.section import Share
from agentcli.worlds.generated import chance
from agentcli.worlds.tool_qa.judge import letters_of, stated
from agentcli.worlds.tool_qa.knowledge import FACTORS, PLACES, knowledge
from agentcli.worlds.tool_qa.questions import (
    Reading,
    needs_of,
    next_calls,
    read_question,
    slotted,
)
from agentcli.worlds.tool_qa.rows import LETTERS
from agentcli.worlds.tool_qa.tools.registry import ERROR, TOOLS

NUMBER_LETTERS = "abcde"
LONGEST_QUERY = 200
"""Characters of a question that is searched for as it is."""


class ToolQaHabits(msgspec.Struct, kw_only=True, frozen=True):
    """The faults that the expert has on purpose."""

    forget: Share = 0.0
    """Share of episodes in which it knows one tool for everything to be looked up, and
    guesses the answer where that tool does not help.
    """
    overlook: Share = 0.0
    """Share of episodes in which it guesses instead of computing."""
    wander: Share = 1.0
    """Share of episodes in which it tries tools in an order of its own; else the best
    one comes first.
    """


class Insight(NamedTuple):
    """What an agent can know from its own past."""

    question: str
    options: tuple[str, ...]
    reading: Reading | None
    """None for a question of another hand."""
    values: dict[str, str]
    """The values that were looked up, by slot."""
    asked: tuple[tuple[str, str], ...]
    """Tools that were called, each with what came back."""
    letters: list[str]
    """The options that the results name."""


def insight_of(context: Context) -> Insight:
    """Reads a context: the question off the instruction, the rest off what was seen."""
    question, *lines = context.instruction.split("\n")
    options = [line.partition(": ")[2] for line in lines if line[1:3] == ": "]
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


def _asked(context: Context) -> list[tuple[str, str]]:
    pairs = []
    for action, text in zip(context.actions, context.observations[1:], strict=True):
        call = read_call(action)
        if call and text.startswith(f"{call.name}: "):
            pairs.append((call.name, text.removeprefix(f"{call.name}: ")))
    return pairs


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
    letters = iter(NUMBER_LETTERS)
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
        return Advice("think", "answer", _spelled(ANSWER, letter))
    if insight.reading is None:
        return _search_or_guess(insight, seed, tools)
    needs = needs_of(*insight.reading)
    need, possible = next_calls(needs, insight.values)
    calls = [call for call in possible if call[0] in tools]
    if not need.fact and chance(seed, "overlook") < habits.overlook:
        return _guess(insight, seed)
    if chance(seed, "wander") < habits.wander:
        random.Random(derive_seed(seed, need.fact)).shuffle(calls)
    tried = _tried(context)
    left = [call for call in calls if call not in tried]
    gives_up = len(left) < len(calls) and chance(seed, "forget") < habits.forget
    if gives_up or not left:
        return _guess(insight, seed)
    name, argument = left[0]
    sentence = "look up" if name in PLACES else "compute"
    return Advice("think", sentence, _spelled(name, argument))


def _tried(context: Context) -> set[tuple[str, str]]:
    """The calls that were made; tokens of a tiny policy stand apart."""
    tried = set()
    for action in context.actions:
        call = read_call(action)
        if call:
            tried.add((call.name, call.argument))
    return tried


def _search_or_guess(insight: Insight, seed: int, tools: Collection[str]) -> Advice:
    """Of a question that no template reads, only the text is known."""
    if insight.asked or "search" not in tools:
        return _guess(insight, seed)
    query = insight.question[:LONGEST_QUERY].replace("[", "(").replace("]", ")")
    return Advice("explore", "look up", _spelled("search", query))


def _guess(insight: Insight, seed: int) -> Advice:
    letters = insight.letters or LETTERS[: len(insight.options)]
    rng = random.Random(derive_seed(seed, "guess"))
    return Advice("explore", "guess", _spelled(ANSWER, rng.choice(letters)))


def _spelled(name: str, argument: str) -> str:
    return f"{name} [ {argument} ]"
