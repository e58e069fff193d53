"""The full prompt in the order that shares most: the same words, and prompts of a trajectory that begin alike."""

from itertools import takewhile

import msgspec
import pytest
from agentcli.environments.protocol import Context
from agentcli.prompts.protocol import Message, Moment
from agentcli.prompts.registry import make_dialect
from agentcli.records.settings import PromptSettings
from small_world import SmallWorld
from test_dialects import CONTEXT, WORLD


def asked(style: str, context: Context = CONTEXT, history: int = 5) -> str:
    settings = PromptSettings(style=style, history=history)
    message: Message = make_dialect(settings, WORLD).ask(Moment(copies=(context,)))
    return message.text


def at(step: int) -> Context:
    """The context of the first steps of a trajectory."""
    return msgspec.structs.replace(
        CONTEXT, observations=CONTEXT.observations[: step + 1], actions=CONTEXT.actions[:step]
    )


def beginning(one: str, other: str) -> str:
    """The text with which both begin."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return "".join(letter for letter, _ in pairs)


@pytest.mark.parametrize("history", [0, 3, 50])
@pytest.mark.parametrize("step", [0, 1, 7])
def test_it_says_what_full_says(step: int, history: int) -> None:
    full, shared = (asked(style, at(step), history).split("\n") for style in ("full", "shared"))
    headings = ("Steps taken so far", "The last steps")
    said = [sorted(line for line in lines if not line.startswith(headings)) for lines in (full, shared)]
    blank = abs(full.count("") - shared.count(""))
    assert [line for line in said[0] if line] == [line for line in said[1] if line]
    assert blank <= 2
    assert (f"Steps taken so far: {step}" in "\n".join(shared)) == (step > 0 and history > 0)


def test_what_changes_comes_last() -> None:
    text = asked("shared")
    marks = (WORLD.card.role, CONTEXT.instruction, "<action>", "Room number 2.", "Room number 7.", "- open fridge 1")
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)


@pytest.mark.parametrize("step", range(1, 5))
def test_prompts_of_a_trajectory_begin_alike_up_to_the_new_step(step: int) -> None:
    common, of_full = (beginning(asked(style, at(step)), asked(style, at(step + 1))) for style in ("shared", "full"))
    assert f"Observation: Room number {step - 1}." in common
    assert len(common) > len(of_full)


def test_a_world_that_lists_nothing_is_asked_too() -> None:
    text = asked("shared", msgspec.structs.replace(at(0), admissible=()))
    assert "dmissible" not in text
    assert text.endswith("Current observation: Room number 0.")
    assert SmallWorld().card.role in text
