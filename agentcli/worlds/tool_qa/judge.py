"""The local judge: every tool is run, and its result compared with the solution path.

It takes the place of the judge model of Rare-tool section 4.1 where the answers are
known. A value is *needed* if it is on the solution path, whose end is the answer, and
no result has stated it.

    a tool whose result states something needed    6 to 10: 10, minus the tool's cost
                                                   (0 to 2), minus 1 for every 40 words
                                                   of the result (at most 2)
    a tool that states only what is known          4
    a tool that states nothing of use              2
    a tool that answers with an error              0
    cot, where the answer is known                 10
    cot, where only computing is left              4
    cot, else                                      2

The step makes sense (`process_ok`) if any of them is worth 6 or more.

`judge_by_kind` runs nothing, as Rare-tool's judge does not: it knows what kind of thing a
query asks for, and which tools may have it. It serves rollout.judge.kind=plausible.

    a tool that could hold what the query asks for,    6 to 9, at random for each
    is needed, and has not been asked it               question and tool
    any other tool                                     2
    cot                                                as above
    the tool of its habit, on a share of questions,    9.5
    if it could ever hold what the query asks for

The habit is what a judge model has: without the rarity rule, search is what is mostly run
(Rare-tool Fig. 5).
"""

import math
import random
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache

from agentcli.environments.protocol import Verdict
from agentcli.records.calls import COT
from agentcli.records.files import derive_seed
from agentcli.worlds.tool_qa.questions import Need, slotted
from agentcli.worlds.tool_qa.tools.registry import ERROR, AgentTool, answer

TOLERANCE = 1e-5
"""Relative; options show six digits."""
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w])")


def same_number(one: float, other: float) -> bool:
    """Whether two numbers are equal up to rounding."""
    return math.isclose(one, other, rel_tol=TOLERANCE)


def states(text: str, value: str) -> bool:
    """Whether a text holds a value: a number up to rounding, or words."""
    if _NUMBER.fullmatch(value.strip()):
        wanted = float(value)
        # "31" states 31.0, and 310 or 1.31 does not (the pattern has its bounds).
        numbers = map(float, _NUMBER.findall(text))
        return any(same_number(wanted, number) for number in numbers)
    # Whole words: "iron" does not state "environment".
    words = re.escape(value.strip().rstrip("."))
    return re.search(rf"(?<!\w){words}(?!\w)", text, re.IGNORECASE) is not None


def stated(texts: Iterable[str], fact: str) -> str | None:
    """The value that one of the texts gives for a fact; None where none does."""
    pattern = _value_of(fact)
    for text in texts:
        match = pattern.search(text)
        if match:
            return match[1] or match[2]
    return None


@lru_cache(maxsize=4096)
def _value_of(fact: str) -> re.Pattern[str]:
    name = re.escape(fact)
    value = r"([\w-]+(?:\.\d+)?)"
    return re.compile(rf"(?<!\w){name} (?:is|=) {value}|There are {value} {name}")


def letters_of(options: Sequence[str], text: str, letters: str) -> list[str]:
    """The letters of the options that a text states."""
    named = []
    for letter, option in zip(letters, options, strict=False):
        if states(text, option):
            named.append(letter)
    return named


VIABLE = 6.0
"""The least score of what helps (Rare-tool section 4.1: the threshold)."""
BEST, KNOWN, USELESS, FAILED = 10.0, 4.0, 2.0, 0.0
PLAUSIBLE = (VIABLE, 9.0)
"""The range of a tool that could hold what is needed."""
HABIT, HABITUAL = "search", 9.5
"""The tool that a judge with a habit scores best, and its score."""
WORDS_PER_POINT = 40
MOST_CLUTTER = 2.0


def is_known(need: Need, texts: Sequence[str]) -> bool:
    """Whether one of the texts states what is needed."""
    # A document may hold the same number for another fact.
    if need.fact:
        return stated(texts, need.fact) == need.value
    return any(states(text, need.value) for text in texts)


def known_values(needs: Sequence[Need], texts: Sequence[str]) -> dict[str, str]:
    """The values of the lookups that are known, by their slots."""
    values = {}
    for slot, need in slotted(needs):
        if is_known(need, texts):
            values[slot] = need.value
    return values


def judge(
    tools: Mapping[str, AgentTool],
    argument: str,
    needs: Sequence[Need],
    results: Sequence[str],
) -> Verdict:
    """The scores of all tools and of `cot`, after these results."""
    missing = [need for need in needs if not is_known(need, results)]
    scores = {}
    for name, tool in tools.items():
        text = answer(tool, argument)
        scores[name] = _score(tool, text, needs, missing)
    scores[COT] = _score_of_a_thought(needs, missing)
    return Verdict(scores=scores, process_ok=max(scores.values()) >= VIABLE)


def _score(
    tool: AgentTool, text: str, needs: Sequence[Need], missing: Sequence[Need]
) -> float:
    if text.startswith(ERROR):
        return FAILED
    if any(is_known(need, [text]) for need in missing):
        # A long result costs the agent context (the table above).
        clutter = min(MOST_CLUTTER, len(text.split()) / WORDS_PER_POINT)
        # However long it is, what helps stays viable (the table above).
        return max(VIABLE, round(BEST - tool.cost - clutter, 1))
    if any(is_known(need, [text]) for need in needs):
        return KNOWN
    return USELESS


def _score_of_a_thought(needs: Sequence[Need], missing: Sequence[Need]) -> float:
    answer_need = needs[-1]
    if answer_need not in missing:
        return BEST
    # Thinking can compute, but it cannot look anything up.
    lookups = [need for need in missing if need.fact]
    return USELESS if lookups or answer_need.fact else KNOWN


def has_habit(task: str, share: float) -> bool:
    """Whether the judge follows its habit on this question."""
    return random.Random(derive_seed("habit", task)).random() < share


def judge_by_kind(
    tools: Collection[str],
    fitting: Collection[str],
    thought: float,
    task: str,
    habitual: bool = False,
) -> Verdict:
    """The scores of all tools, and `thought` of `cot`, without running any.

    `fitting` tools could hold what is needed. `task` is the id of the question, with
    which their scores vary. `habitual`: whether search is scored by habit.
    """
    scores = {}
    for name in tools:
        rng = random.Random(derive_seed("plausible", task, name))
        scores[name] = round(rng.uniform(*PLAUSIBLE), 1) if name in fitting else USELESS
    if habitual:
        scores[HABIT] = HABITUAL
    scores[COT] = thought
    return Verdict(scores=scores, process_ok=max(scores.values()) >= VIABLE)
