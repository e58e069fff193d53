"""The dialect of tool calls: what is asked, what is read, and what is malformed (Rare-tool section 4.1)."""

import pytest
from agentcli.environments.protocol import Context
from agentcli.prompts.protocol import Answer, Moment
from agentcli.prompts.registry import make_dialect
from agentcli.prompts.tools import Tools
from agentcli.records.settings import EnvironmentSettings, PromptSettings
from agentcli.records.types import Task
from hypothesis import given
from hypothesis import strategies as st
from quiz_world import QuizWorld
from refusal import refused
from small_world import SmallWorld

CONTEXT = Context(
    task=Task(id="t", world="quiz", split="train", kind="A"), instruction="Which box?", observations=("nothing",)
)
MOMENT = Moment(copies=(CONTEXT,))
CALL = "<think> hm </think><tool> peek </tool><intended_query_for_tool> the boxes </intended_query_for_tool>"


@pytest.fixture(scope="module")
def tools() -> Tools:
    dialect = make_dialect(PromptSettings(style="tools"), QuizWorld(EnvironmentSettings()))
    assert isinstance(dialect, Tools)
    return dialect


def test_the_prompt_lists_the_tools_and_the_form(tools: Tools) -> None:
    text = tools.ask(MOMENT).text
    for part in ("Which box?", "- peek: looks into a box", "peek, weigh, cot", "<intended_query_for_tool>", "<answer>"):
        assert part in text


words = st.text(st.characters(blacklist_characters="<>[]", blacklist_categories=("Cs",)), min_size=1).map(
    lambda text: " ".join(text.split())
)


@given(words.filter(bool), st.sampled_from(["peek", "weigh", "cot", "answer", "other"]), words.filter(bool))
def test_it_reads_what_it_writes(thought: str, name: str, query: str) -> None:
    dialect = make_dialect(PromptSettings(style="tools"), QuizWorld(EnvironmentSettings()))
    answer = Answer("think", thought, {1: f"{name}[{query}]"})
    assert dialect.read(dialect.write(answer, MOMENT), MOMENT) == answer


def test_letter_case_and_blanks_do_not_matter(tools: Tools) -> None:
    read = tools.read(CALL.upper().replace("BOXES", "boxes\n  now"), MOMENT)
    assert read.actions == {1: "peek[THE boxes\n  now]"}


def test_the_lines_of_a_program_stay_lines(tools: Tools) -> None:
    program = "total = 0\nfor n in range(4):\n    total += n\nprint(total)"
    read = tools.read(CALL.replace("peek", "python").replace("the boxes", f"\n{program}\n"), MOMENT)
    assert read.actions == {1: f"python[{program}]"}
    assert tools.read(tools.write(read, MOMENT), MOMENT) == read


@pytest.mark.parametrize(
    "response",
    [
        "",
        "peek",
        CALL.removesuffix("</intended_query_for_tool>"),
        CALL.replace("peek", " "),
        CALL.replace("the boxes", " "),
        CALL.replace(" hm ", " "),
        CALL + "<answer> A </answer>",
        CALL + CALL,
        CALL.replace("peek", "pe ek"),
        "<answer> A </answer>",
        "<answer> A </answer><think> hm </think>",
        "<tool> peek </tool><think> hm </think><intended_query_for_tool> x </intended_query_for_tool>",
    ],
)
def test_anything_else_is_malformed(tools: Tools, response: str) -> None:
    read = tools.read(response, MOMENT)
    assert read.problem
    assert read.actions == {}


def test_a_world_without_tools_is_refused() -> None:
    refused(lambda: make_dialect(PromptSettings(style="tools"), SmallWorld()), names=("prompt.style", "tools"))
