"""Observation to message: what the full prompt holds, how much history, and the styles' names."""

from typing import Any

import msgspec
import pytest
from small_world import SmallWorld

from agentcli.environments.protocol import Context
from agentcli.errors import UsageError
from agentcli.prompts.parse import format_response, parse
from agentcli.prompts.render import reasoning_tags, render
from agentcli.records.settings import PromptSettings
from agentcli.records.types import Task

WORLD = SmallWorld()
CONTEXT = Context(
    task=Task(id="t", world="room", split="train", kind="k"),
    instruction="put the apple in the fridge",
    observations=tuple(f"Room number {index}." for index in range(8)),
    actions=("go north", "go east", "", "look", "go south", "take apple 1", "go west"),
    admissible=("open fridge 1", "look"),
)


def full(context: Context = CONTEXT, **settings: Any) -> str:
    return render(context, PromptSettings(**settings), WORLD)


def test_the_full_prompt_holds_everything_in_order() -> None:
    text = full()
    marks = [
        *(
            WORLD.card.role,
            CONTEXT.instruction,
            "Room number 2.",
            "Room number 6.",
            "go west",
            "Current observation: Room number 7.",
        ),
        *("- open fridge 1\n- look", "<explore>", "<think>", "</think>", "<action> your action </action>"),
    ]
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)
    assert "one of the admissible actions" in text


@pytest.mark.parametrize(("history", "first"), [(0, 7), (1, 6), (5, 2), (50, 0)])
def test_history_counts_pairs_and_numbers_them_from_the_start(history: int, first: int) -> None:
    text = full(history=history)
    shown = [index for index in range(7) if f"{index + 1}. Observation: Room number {index}.\n" in text]
    assert shown == list(range(first, 7))
    assert ("Steps taken so far: 7" in text) == (history > 0)
    assert [index for index in range(8) if f"Room number {index}." in text] == [*shown, 7]


def test_an_unreadable_response_is_shown_as_such() -> None:
    assert "Observation: Room number 2.\n   Action: (none: the response held no readable action)" in full()


def test_the_first_step_has_no_history_and_a_world_may_list_no_actions() -> None:
    text = full(msgspec.structs.replace(CONTEXT, observations=("Start.",), actions=(), admissible=()))
    assert "Steps taken" not in text
    assert "dmissible" not in text
    assert "Current observation: Start." in text


def test_compact_is_the_worlds_own_view() -> None:
    assert full(style="compact") == "put the apple in the fridge | Room number 7."


def test_an_unknown_style_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"prompt\.style: no style 'compat'; did you mean compact\?"):
        full(style="compat")


def test_react_tells_the_story_in_turns() -> None:
    text = full(style="react", history=2)
    trace = [
        *("Observation 5: Room number 5.", "Action 6: take apple 1", "Observation 6: Room number 6."),
        *("Action 7: go west", "Observation 7: Room number 7."),
    ]
    assert "\n".join(trace) in text
    assert "Room number 4." not in text
    assert "open fridge 1; look" in text
    assert text.index(WORLD.card.role) < text.index(CONTEXT.instruction) < text.index(trace[0]) < text.index("<action>")
    assert "explore" not in text


def test_react_at_the_first_step_and_without_listed_actions() -> None:
    first = msgspec.structs.replace(CONTEXT, observations=("Start.",), actions=(), admissible=())
    text = full(first, style="react")
    assert "Observation 0: Start." in text
    assert "Action 1" not in text
    assert "possible now" not in text
    assert "Action 3: (none: the response held no readable action)" in full(style="react")


def test_the_form_that_react_asks_for_can_be_read() -> None:
    assert parse(full(style="react").split("in this form:\n")[1]).action == "your action"


def test_rlvmr_asks_for_its_tags_and_reads_them() -> None:
    prompt = full(style="rlvmr")
    for tag in reasoning_tags("rlvmr"):
        assert f"<{tag}>" in prompt
        assert parse(format_response(tag, "why", "go to shelf 1"), reasoning_tags("rlvmr")).tag == tag
    assert parse(format_response("planning", "why", "go"), reasoning_tags("full")).action is None
