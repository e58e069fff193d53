"""Reading responses: the rule, its inverse, and where it differs from the releases on purpose."""

import json
from pathlib import Path
from typing import Any

import pytest
from agentcli.prompts.tagged import read_tagged, write_tagged
from hypothesis import given
from hypothesis import strategies as st

UNITS: dict[str, list[dict[str, Any]]] = json.loads((Path(__file__).parents[1] / "golden" / "units.json").read_text())
LANGUAGE = "<think>中</think><action>look</action>"
"""The releases refuse Chinese; we judge the form of a response, not its language."""
LOOSE = {
    "<explore>a</explore><think>b</think><action>look</action>",
    "<action>look</action><think>a</think>",
    "<think>a</think><action>look</action><action>look</action>",
    "<think>a</think>\n<explore>b</explore>\n<action>look</action>",
}
"""Ambiguous responses that some release accepts: two reasoning tags, two actions, or the action first."""

without_tags = st.text(st.characters(blacklist_characters="<>", blacklist_categories=("Cs",)))
words = without_tags.map(lambda text: " ".join(text.split())).filter(bool)
markup = st.lists(
    st.sampled_from(
        ["<think>", "</think>", "<explore>", "</EXPLORE>", "<action>", "</action>", "<Action >", "<", "look", " ", "\n"]
    )
).map("".join)


@given(st.one_of(st.text(), markup))
def test_it_never_raises_and_says_all_or_why_not(response: str) -> None:
    parsed = read_tagged(response)
    fields = (parsed.tag, parsed.reasoning, parsed.actions.get(1))
    assert all(fields) if parsed.problem is None else fields == (None, None, None)
    assert set(parsed.actions) <= {1}
    if parsed.problem is None:
        assert fields[2] == " ".join(fields[2].split())
        assert read_tagged(write_tagged(*fields)) == parsed


@given(st.sampled_from(["think", "explore"]), words, words)
def test_reading_inverts_writing(tag: str, sentence: str, action: str) -> None:
    parsed = read_tagged(write_tagged(tag, sentence, action))
    assert (parsed.tag, parsed.reasoning, parsed.actions, parsed.problem) == (tag, sentence, {1: action}, None)


def test_the_canonical_form() -> None:
    response = "<explore> find apple </explore><action> go to fridge 1 </action>"
    assert write_tagged("explore", "find apple", "go to fridge 1") == response


@pytest.mark.parametrize(
    "response",
    [
        "<THINK>a</think>\n\n<Action> go\n to  fridge 1 </ACTION>",
        "Sure! <think>a</think> so <action>go to fridge 1</action> done",
        "<think>1 < 2 and 3 > 2, <b>bold</b></think><action>go\tto fridge 1</action>",
    ],
)
def test_case_white_space_and_text_outside_do_not_matter(response: str) -> None:
    parsed = read_tagged(response)
    assert (parsed.tag, parsed.actions, parsed.problem) == ("think", {1: "go to fridge 1"}, None)


@pytest.mark.parametrize(
    ("response", "problem"),
    [
        ("", "no reasoning tag"),
        ("go to fridge 1", "no reasoning tag"),
        ("<action>look</action>", "no reasoning tag"),
        ("<think>a</think>", "no <action> tag"),
        ("<think> </think><action>look</action>", "<think> is empty"),
        ("<think>a</think><action> \n </action>", "<action> is empty"),
        ("<think>a<action>look</action>", "expected one closed reasoning tag"),
        ("<think>a</think><action>look", "expected one closed reasoning tag"),
        ("<think>a</explore><action>look</action>", "found <think> </explore> <action> </action>"),
        ("<think>a<explore>b</explore></think><action>look</action>", "expected one closed"),
        *((response, "expected one closed reasoning tag") for response in sorted(LOOSE)),
    ],
)
def test_what_is_malformed_and_why(response: str, problem: str) -> None:
    parsed = read_tagged(response)
    assert parsed.actions == {}
    assert problem in (parsed.problem or "")
    assert parsed.tag is None


def test_other_tags_count_when_asked_for() -> None:
    response = "<planning>p</planning><action>look</action>"
    assert read_tagged(response).problem is not None
    assert read_tagged(response, ("planning", "explore", "reflection")).tag == "planning"


@pytest.mark.parametrize("case", UNITS["projection_spark_alfworld"], ids=lambda case: case["text"])
def test_spark_on_alfworld_agrees_but_for_language(case: dict[str, Any]) -> None:
    parsed = read_tagged(case["text"])
    assert (parsed.problem is None) == (bool(case["valid"]) or case["text"] == LANGUAGE)
    if case["valid"]:
        assert (parsed.actions, parsed.tag) == ({1: case["action"]}, case["tag"])


@pytest.mark.parametrize("case", UNITS["projection_spark_sciworld"], ids=lambda case: case["text"])
def test_spark_on_scienceworld_agrees_but_for_language(case: dict[str, Any]) -> None:
    parsed = read_tagged(case["text"], ("think", "explore", "planning", "reflection"))
    assert (parsed.problem is None) == (bool(case["valid"]) or case["text"] == LANGUAGE)
    if case["valid"]:
        assert parsed.actions == {1: case["action"]}


@pytest.mark.parametrize("case", UNITS["projection_alfworld"], ids=lambda case: case["text"])
def test_rewardflow_is_looser(case: dict[str, Any]) -> None:
    """It asks for one <think> pair anywhere and takes the first action; we refuse what is ambiguous."""
    parsed = read_tagged(case["text"])
    expected = (bool(case["valid"]) or case["text"] == LANGUAGE) and case["text"] not in LOOSE
    assert (parsed.problem is None) == expected
    if expected:
        assert parsed.actions == {1: case["action"]}


@pytest.mark.parametrize("case", UNITS["explore_trigger"], ids=lambda case: case["text"])
def test_spark_branches_on_malformed_responses_and_we_do_not(case: dict[str, Any]) -> None:
    """The release looks for <explore> anywhere, even where it then finds no valid action to branch after."""
    parsed = read_tagged(case["text"])
    assert (parsed.tag == "explore") == (case["branch"] and case["text"] not in LOOSE)
