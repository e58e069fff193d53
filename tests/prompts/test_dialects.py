"""Observation to message: what the full prompt holds, how much history, and the styles' names."""

from importlib import metadata
from typing import Any

import msgspec
import pytest
from agentcli.environments.protocol import Context, Picture, World
from agentcli.prompts.full import Rlvmr
from agentcli.prompts.parallel import ParallelCompact
from agentcli.prompts.protocol import Answer, Message, Moment
from agentcli.prompts.registry import GROWING, dialect_names, make_dialect
from agentcli.prompts.tagged import Tagged, read_tagged, write_tagged
from agentcli.records.settings import PromptSettings
from agentcli.records.types import Task
from hypothesis import given
from hypothesis import strategies as st
from policy_requests import make_request
from refusal import refused
from small_world import SmallWorld

WORLD = SmallWorld()
CONTEXT = Context(
    task=Task(id="t", world="room", split="train", kind="k"),
    instruction="put the apple in the fridge",
    observations=tuple(f"Room number {index}." for index in range(8)),
    actions=("go north", "go east", "", "look", "go south", "take apple 1", "go west"),
    admissible=("open fridge 1", "look"),
)


def full(context: Context = CONTEXT, **settings: Any) -> str:
    return make_dialect(PromptSettings(**settings), WORLD).ask(Moment(copies=(context,))).text


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
    assert "one of the admissible" in text


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
    refused(lambda: full(style="compat"), names=("prompt.style", "compat"), remedy="compact")


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
    assert "Action 3: (none: the response" in full(style="react")


def test_the_form_that_react_asks_for_can_be_read() -> None:
    assert read_tagged(full(style="react").split("in this form:\n")[1]).actions == {1: "your action"}


def test_rlvmr_asks_for_its_tags_and_reads_them() -> None:
    prompt = full(style="rlvmr")
    moment = Moment(copies=(CONTEXT,))
    rlvmr, plain = (make_dialect(PromptSettings(style=style), WORLD) for style in ("rlvmr", "full"))
    for tag in Rlvmr.tags:
        assert f"<{tag}>" in prompt
        answer = Answer(tag, "why", {1: "go to shelf 1"})
        assert rlvmr.read(rlvmr.write(answer, moment), moment) == answer
    assert plain.read(write_tagged("planning", "why", "go"), moment).actions == {}


words = st.text(st.characters(blacklist_characters="<>", blacklist_categories=("Cs",))).map(
    lambda text: " ".join(text.split())
)


@pytest.mark.parametrize("style", sorted({*dialect_names()} - {"search", "tools"}))
@given(reasoning=words.filter(bool), actions=st.dictionaries(st.integers(1, 3), words.filter(bool), min_size=1))
def test_every_dialect_reads_what_it_writes(style: str, reasoning: str, actions: dict[int, str]) -> None:
    several = style.startswith("parallel-")
    actions = actions if several else {1: next(iter(actions.values()))}
    moment = Moment(copies=(CONTEXT,) * (3 if several else 1), numbered=several)
    dialect = make_dialect(PromptSettings(style=style), WORLD, several)
    answer = Answer("think", reasoning, actions)
    assert dialect.read(dialect.write(answer, moment), moment) == answer
    if style in GROWING:  # the task is told where a conversation begins
        begun = msgspec.structs.replace(CONTEXT, actions=(), observations=CONTEXT.observations[:1])
        moment = Moment(copies=(begun,))
    message = dialect.ask(moment)
    assert CONTEXT.instruction in message.system + message.text


@pytest.mark.parametrize(("name", "value"), [("restart", 3), ("keep_thinking", False)])
def test_what_only_a_conversation_reads_is_refused_in_other_styles(name: str, value: object) -> None:
    told = {"names": (f"prompt.{name}", "full"), "remedy": "prompt.style=chat"}
    refused(lambda: make_dialect(PromptSettings(**{name: value}), WORLD), **told)
    refused(lambda: make_dialect(PromptSettings(style="full", **{name: value}), WORLD, True), **told)
    make_dialect(PromptSettings(style="chat", **{name: value}), WORLD)


def test_a_conversation_that_begins_anew_names_its_actions_on_one_short_line() -> None:
    dialect = make_dialect(PromptSettings(style="chat", restart=2), WORLD)
    acted = msgspec.structs.replace(CONTEXT, actions=("go\n north", "a" * 5000), observations=("one", "two", "three"))
    line = dialect.ask(Moment(copies=(acted,))).text.split("\n\n")[0]
    assert line == f"Steps taken so far: 2. Your actions: go north; {'a' * 100}...."


def test_typed_names_are_refused_where_there_are_none() -> None:
    refused(lambda: full(style="full", names="typed"), names=("prompt.names", "full"), remedy="prompt.style=compact")
    refused(lambda: full(names="typed"), names="prompt.names", remedy="prompt.style=compact")
    refused(lambda: full(style="compact", names="typed"), names=("prompt.names", "small"), remedy="--env")


def test_a_style_has_its_counterpart_for_several_copies_or_is_refused() -> None:
    settings = PromptSettings(style="compact")
    assert type(make_dialect(settings, WORLD, numbered=True)) is ParallelCompact
    assert type(make_dialect(PromptSettings(style="parallel-compact"), WORLD, numbered=True)) is ParallelCompact
    refused(
        lambda: make_dialect(PromptSettings(style="react"), WORLD, numbered=True),
        names=("prompt.style", "parallel-react"),
        remedy="parallel-",
    )


def test_a_text_policy_refuses_pictures() -> None:
    pictured = make_request(message=Message(("Where?", Picture(b"png"))))
    assert pictured.message.pictures == (Picture(b"png"),)
    refused(lambda: pictured.prompt, names=("policy.kind", "pictures"))


def test_an_installed_package_adds_a_dialect(monkeypatch: pytest.MonkeyPatch) -> None:
    point = metadata.EntryPoint("shouted", f"{__name__}:Shouted", "agentcli.dialects")
    monkeypatch.setattr(metadata, "entry_points", lambda **wanted: metadata.EntryPoints([point]).select(**wanted))
    assert "shouted" in dialect_names()
    assert full(style="shouted") == "ROOM NUMBER 7."


class Shouted(Tagged):
    """A dialect as an installed package offers it."""

    fixed = None

    def __init__(self, settings: PromptSettings, world: World) -> None:
        """Nothing of either has a part in it."""

    def ask(self, moment: Moment) -> Message:
        """The observation alone."""
        return Message((moment.text.upper(),))
