"""Several copies in one response and one prompt: the rule, its inverse, where the release reads more, and what is shown."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from agentcli.environments.protocol import Context
from agentcli.prompts.full import OWN_WORDS
from agentcli.prompts.parallel import LIMIT, RULES, UNREADABLE, read_parallel, write_parallel
from agentcli.prompts.protocol import Moment
from agentcli.prompts.registry import make_dialect
from agentcli.records.settings import PromptSettings
from agentcli.records.types import Task
from hypothesis import given
from hypothesis import strategies as st
from small_world import SmallWorld

RELEASE: list[dict[str, Any]] = json.loads((Path(__file__).parents[1] / "golden" / "dpepo.json").read_text())["parser"]
OURS = {
    "<think>a</think><env_1> go </env_1>": None,
    "<think>t</think><action>go</action>": "expected closed <env_i> tags and nothing else; found <action> </action>",
}
"""What we say of the release's cases, and of all others that no closed <think> comes first. The release reads every
<env_number>...</env_any> anywhere, also out of the thought, and renumbers them 1, 2, ... in textual order, whatever copy they name;
it needs neither <think> nor matching tags. We act where the agent said it acts, or not at all."""

words = st.text(st.characters(blacklist_characters="<>", blacklist_categories=("Cs",))).map(
    lambda text: " ".join(text.split())
)
markup = st.lists(
    st.sampled_from(
        [
            *(
                "<think>",
                "</think>",
                "<parallel>",
                "</parallel>",
                "<env_1>",
                "</env_1>",
                "<env_2>",
                "</ENV_2>",
                "<env_9>",
            ),
            *("</env_9>", "<env_x>", "<action>", "look", " ", "\n", "<"),
        ]
    )
).map("".join)


@pytest.mark.parametrize("case", RELEASE, ids=lambda case: case["text"])
def test_the_releases_cases(case: dict[str, Any]) -> None:
    parsed = read_parallel(case["text"], range(1, 6), 5)
    assert parsed.problem == OURS.get(case["text"], "expected one closed <think> first")
    if parsed.problem is None:
        assert parsed.actions == {int(n): action.strip() for n, action in case["actions"].items()}
        assert parsed.reasoning == case["think"]


def test_the_index_in_the_tag_is_the_copy() -> None:
    """The release would act in copies 1 and 2."""
    parsed = read_parallel("<think>t</think><parallel><env_4>b</env_4><env_2>a</env_2></parallel>", range(1, 5), 4)
    assert parsed.actions == {4: "b", 2: "a"}


@pytest.mark.parametrize(
    ("tags", "beyond"),
    [
        ("<env_3>a</env_3>", True),
        ("<env_1>a</env_1><env_03>a</env_03>", True),
        ("<env_1>a</env_1><env_1>b</env_1><ENV_9>a</ENV_9>", True),
        (f"<env_{'9' * 5000}>a</env_1>", True),
        ("<env_3>a", True),
        ("<env_2>a</env_2>", False),
        ("<env_0>a</env_0>", False),
        ("<env_x>a</env_x>", False),
        ("<env_>a</env_>", False),
        ("<env_\u0663>a</env_\u0663>", False),
        ("<env_1>a</env_1><env_1>b</env_1>", False),
    ],
)
def test_a_copy_above_the_last_is_told_from_what_else_is_wrong(tags: str, beyond: bool) -> None:
    """Two copies, of which the second has ended."""
    parsed = read_parallel(f"<think>t</think><parallel>{tags}</parallel>", [1], 2)
    assert (parsed.beyond, parsed.problem is not None, parsed.actions) == (beyond, True, {})
    assert read_parallel(f"<parallel>{tags}</parallel>", [1], 2).beyond == beyond, "without a thought before it"
    assert not read_parallel(f"<think>t {tags}</think><env_1>a</env_1>", [1], 2).beyond, "what it only thinks of"


@given(st.one_of(st.text(), markup))
def test_it_never_raises_and_says_all_or_why_not(text: str) -> None:
    parsed = read_parallel(text, [1, 2], 2)
    assert (parsed.problem is None) == bool(parsed.actions) == (parsed.reasoning is not None)
    assert not (parsed.beyond and parsed.problem is None)
    if parsed.problem is None:
        assert set(parsed.actions) <= {1, 2}
        assert all(parsed.actions.values())
        assert read_parallel(write_parallel(parsed.reasoning, parsed.actions), [1, 2], 2) == parsed


@given(words.filter(bool), st.dictionaries(st.integers(1, 9), words.filter(bool), min_size=1))
def test_reading_inverts_writing(sentence: str, actions: dict[int, str]) -> None:
    parsed = read_parallel(write_parallel(sentence, actions), range(1, 10), 9)
    assert (parsed.reasoning, parsed.actions, parsed.problem) == (sentence, actions, None)


def test_the_canonical_form() -> None:
    written = write_parallel("look around", {1: "look", 3: "go to bed 1"})
    assert (
        written == "<think> look around </think><parallel><env_1> look </env_1><env_3> go to bed 1 </env_3></parallel>"
    )


@pytest.mark.parametrize(
    ("response", "problem"),
    [
        ("", "expected one closed <think> first"),
        ("<think>t</think>", "found none"),
        ("<think> </think><parallel><env_1>a</env_1></parallel>", "<think> is empty"),
        ("<think>t</think><parallel></parallel>", "expected closed <env_i> tags"),
        ("<think>t</think><parallel><env_1> </env_1></parallel>", "an <env_i> is empty"),
        ("<think>t</think><parallel><env_1>a</env_1><env_1>b</env_1></parallel>", "<env_1> acts twice"),
        ("<think>t</think><parallel><env_3>a</env_3></parallel>", "no <env_3> to act in; there are env_1, env_2"),
        ("<think>t</think><parallel><env_0>a</env_0></parallel>", "no <env_0>"),
        ("<think>t</think><parallel><env_01>a</env_01></parallel>", "no <env_01>"),
        ("<think>t</think><parallel><env_x>a</env_x></parallel>", "no <env_x>"),
        ("<think>t</think><parallel><env_1>a</env_2></parallel>", "expected closed <env_i> tags"),
        ("<think>t</think><parallel><env_1>a</env_1>", "one closed <parallel>"),
        ("<think>t</think><env_1>a</env_1><env_2>b</env_2>", "one closed <parallel>"),
        ("<think>t</think><parallel><env_1>a<env_2>b</env_2></env_1></parallel>", "expected closed <env_i> tags"),
        ("<think>t</think><parallel><env_1>a</env_1></parallel><action>b</action>", "one closed <parallel>"),
        (
            "<think>t</think><parallel><env_1>a</env_1><action>b</action></parallel>",
            "found <parallel> <env_1> </env_1>",
        ),
        ("<think>t</think><parallel><env_1>a</env_1><env_2>b</parallel>", "expected closed <env_i> tags"),
        ("<explore>t</explore><parallel><env_1>a</env_1></parallel>", "expected one closed <think> first"),
    ],
)
def test_what_is_malformed_and_why(response: str, problem: str) -> None:
    parsed = read_parallel(response, [1, 2], 3)
    assert problem in (parsed.problem or "")
    assert (parsed.actions, parsed.reasoning) == ({}, None)


@pytest.mark.parametrize(
    "response",
    [
        "Well. <THINK>t</Think> so\n<Parallel>\n<ENV_1> go\n to  bed 1 </env_1 >\n</PARALLEL> done",
        "<think>t</think><env_1>go to bed 1</env_1>",
    ],
)
def test_case_white_space_text_outside_and_a_single_action_without_wrapper_do_not_matter(response: str) -> None:
    assert read_parallel(response, [1], 1).actions == {1: "go to bed 1"}


class Room(SmallWorld):
    """Shows the last observation."""

    def compact(self, context: Context) -> str:
        """The last observation."""
        return f"now {context.observations[-1]}"


WORLD = Room()
FRESH = Context(
    task=Task(id="t", world="room", split="train", kind="k"),
    instruction="find the cup",
    observations=("A room.",),
    admissible=("go north", "look"),
)


def lived(*pairs: tuple[str, str]) -> Context:
    actions, seen = zip(*pairs, strict=True)
    return msgspec.structs.replace(FRESH, actions=actions, observations=("A room.", *seen), admissible=("go south",))


def several(*copies: Context, ended: set[int] = frozenset(), acted: tuple[int, ...] = ()) -> Moment:
    return Moment(copies=copies, numbered=True, ended=frozenset(ended), acted=acted)


def full(moment: Moment) -> str:
    return asked(moment, "full")


def compact(moment: Moment) -> str:
    return asked(moment, "compact")


def asked(moment: Moment, style: str) -> str:
    return make_dialect(PromptSettings(style=style), WORLD, numbered=True).ask(moment).text


def test_the_first_prompt_shows_one_copy_for_all() -> None:
    text = full(several(FRESH, FRESH, FRESH))
    assert text.count("A room.") == 1
    assert "env_1 to env_3" in text
    assert "copy: go north; look" in text
    assert text.endswith(RULES)
    assert all(later not in text for later in ("The last step", "Not acted in yet", UNREADABLE))


def test_the_limit_is_told_where_naming_a_copy_beyond_it_fails_the_task() -> None:
    limited = msgspec.structs.replace(several(FRESH, FRESH), limited=True)
    said = LIMIT.format(count=2)
    assert full(limited).replace(f"{said}\n\n", "") == full(several(FRESH, FRESH))
    assert said in full(limited)


def test_a_gap_in_an_action_is_said_to_be_filled_in_as_long_as_a_copy_shows_one() -> None:
    search = msgspec.structs.replace(FRESH, admissible=("search[<your query>]",))
    assert OWN_WORDS in full(several(search, FRESH))
    assert OWN_WORDS not in full(several(FRESH, FRESH))
    assert OWN_WORDS not in full(several(search, FRESH, ended={1}))


def test_all_pairs_are_kept_and_the_last_step_has_its_admissible_actions() -> None:
    one = lived(("go north", "A hall."), ("look", "Still a hall."))
    two = lived(("look", "Nothing new."))
    text = full(several(one, FRESH, two, acted=(1,)))
    earlier, last = text.index("Steps before the last:"), text.index("The last step:")
    assert earlier < text.index("1. Action: go north\n   Observation: A hall.") < last
    assert earlier < text.index("env_3\n1. Action: look\n   Observation: Nothing new.") < last
    assert last < text.index(
        "env_1\n2. Action: look\n   Observation: Still a hall.\n   Admissible actions now: go south"
    )
    assert text.count("Admissible actions now") == text.count("Action: look\n   Observation: Still a hall.") == 1
    assert all(part in text for part in ("Not acted in", " yet: env_2."))


def test_copies_that_ended_are_named_and_closed() -> None:
    context = several(lived(("look", "Gone.")), FRESH, ended={1}, acted=(1,))
    assert context.open == [2]
    assert all(part in full(context) for part in ("no action is possible", " there: env_1."))
    assert "Admissible actions now" not in full(context), "nothing can be done there"


def test_compact_shows_open_copies_and_those_that_look_alike_once() -> None:
    context = several(FRESH, lived(("look", "A hall.")), FRESH, lived(("look", "Gone.")), ended={4}, acted=(2,))
    text = compact(context)
    assert text == "env_1 env_3\nnow A room.\nenv_2\nnow A hall."


def test_compact_ends_with_the_copies_that_acted_last() -> None:
    """What they are told of is what the response continues."""
    moved = [lived(("look", f"Hall {number}.")) for number in range(1, 5)]

    def shown(*acted: int) -> list[str]:
        text = compact(several(*moved, acted=acted))
        return [line for line in text.splitlines() if line.startswith("env_")]

    assert shown(1, 2, 3, 4) == ["env_1", "env_2", "env_3", "env_4"]
    assert shown(2) == ["env_1", "env_3", "env_4", "env_2"]
    assert shown(3, 1) == ["env_2", "env_4", "env_1", "env_3"]
    alike = several(FRESH, moved[0], FRESH, acted=(3,))
    assert compact(alike) == "env_2\nnow Hall 1.\nenv_1 env_3\nnow A room."


def test_after_an_unreadable_response_the_prompt_is_another_one() -> None:
    """Else a policy at temperature 0 would give the same response up to the horizon."""
    moved = several(FRESH, lived(("look", "A hall.")), acted=(2,))
    stuck = [msgspec.structs.replace(moved, unread=count) for count in range(4)]
    assert compact(stuck[1]) == compact(moved) + "\nlast > nothing"
    assert UNREADABLE not in full(moved)
    assert UNREADABLE in full(stuck[1])
    for form in (compact, full):
        assert len({form(moment) for moment in stuck}) == len(stuck)


def test_an_unreadable_response_hides_no_admissible_action() -> None:
    moved = several(FRESH, lived(("look", "A hall.")), acted=(2,))
    stuck = msgspec.structs.replace(moved, unread=1)
    assert full(stuck).replace(f"{UNREADABLE}\n\n", "") == full(moved)
    assert "Admissible actions now" in full(stuck)
