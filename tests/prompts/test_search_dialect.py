"""The dialect of searching: one tag for each action of the world (RewardFlow App. B.3, CARL Table 1)."""

import msgspec
import pytest
from agentcli.environments.protocol import Context
from agentcli.environments.registry import make_world
from agentcli.prompts.protocol import Answer, Moment
from agentcli.prompts.registry import make_dialect
from agentcli.prompts.search import Search
from agentcli.records.settings import EnvironmentSettings, PromptSettings
from agentcli.records.types import Task
from hypothesis import given
from hypothesis import strategies as st
from refusal import refused
from small_world import SmallWorld

CONTEXT = Context(
    task=Task(id="t", world="search_qa", split="train", kind="one hop"), instruction="Who?", observations=("nothing",)
)
MOMENT = Moment(copies=(CONTEXT,))


def dialect_of(actions: str) -> Search:
    world = make_world(EnvironmentSettings(name="search_qa", options={"actions": actions}))
    # It is the world's own style.
    dialect = make_dialect(PromptSettings(style=world.card.dialect), world)
    assert isinstance(dialect, Search)
    return dialect


SEARCH, BROWSE = dialect_of("search"), dialect_of("browse")


def test_the_prompt_names_the_actions_of_the_world_and_what_was_shown() -> None:
    texts = ("nothing", "[12] A: b\n[x/7] C (d): e: f", "[12] A, part 1 of 2: The [i] j: k")
    context = msgspec.structs.replace(CONTEXT, observations=texts, actions=("search[a]", "access[12]"))
    two, four = (dialect.ask(Moment(copies=(context,))).text for dialect in (SEARCH, BROWSE))
    assert "Shown so far: [12] A, [x/7] C (d)." in two
    for part in ("Who?", "<think>", "<search>", "<answer>"):
        assert part in two
        assert part in four
    for part in ("<access>", "<read>"):
        assert part not in two
        assert part in four


words = st.text(st.characters(blacklist_characters="<>[]", blacklist_categories=("Cs",)), min_size=1).map(
    lambda text: " ".join(text.split())
)


@given(words.filter(bool), st.sampled_from(["search", "access", "read", "answer"]), words.filter(bool))
def test_it_reads_what_it_writes(thought: str, name: str, argument: str) -> None:
    answer = Answer("think", thought, {1: f"{name}[{argument}]"})
    assert BROWSE.read(BROWSE.write(answer, MOMENT), MOMENT) == answer


def test_letter_case_blanks_and_text_outside_do_not_matter() -> None:
    response = "Well. <THINK> so\nit is </think> then <Search>\n the  capital </SEARCH> done"
    assert SEARCH.read(response, MOMENT) == Answer("think", "so it is", {1: "search[the capital]"})


@pytest.mark.parametrize(
    "response",
    [
        "",
        "search[x]",
        "<search> x </search>",
        "<think> a </think>",
        "<think> a </think><search> x",
        "<think> a </think><search> </search>",
        "<think> </think><search> x </search>",
        "<think> a </think><search> x </search><answer> y </answer>",
        "<think> a </think><search> x </search><search> y </search>",
        "<search> x </search><think> a </think>",
        "<think> a <search> x </search></think>",
    ],
)
def test_anything_else_is_malformed(response: str) -> None:
    read = BROWSE.read(response, MOMENT)
    assert read.actions == {}
    assert read.problem


def test_an_action_of_another_set_is_malformed() -> None:
    response = "<think> a </think><access> 12 </access>"
    assert BROWSE.read(response, MOMENT).actions == {1: "access[12]"}
    assert SEARCH.read(response, MOMENT).problem


def test_an_action_that_is_no_call_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="go north"):
        SEARCH.write(Answer("think", "so", {1: "go north"}), MOMENT)


def test_a_world_without_such_actions_is_refused() -> None:
    refused(lambda: make_dialect(PromptSettings(style="search"), SmallWorld()), names=("prompt.style", "search"))
