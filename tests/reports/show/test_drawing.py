"""The drawing of a tree: folded, shortened, harmless, whatever the texts hold."""

import io

import pytest
from agentcli.records.trees import path
from agentcli.records.types import StepCredit, Tree, Validity
from agentcli.reports.show.chat import chat, step_details
from agentcli.reports.show.drawing import side_by_side, tree_drawing
from agentcli.reports.show.style import sparkline
from agentcli.reports.show.trees import ShownTree
from credit_trees import SUCCESS, TRUNCATED, step, tree
from rich.console import Console

HOSTILE = "\x1b[31mred\x1b[0m [bold]markup[/bold] \u202ereversed\u2066 \x07\r\nnext [/] [link=x]y"


def printed(*parts: object, width: int = 120, color: bool = False) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=color, highlight=False, emoji=False)
    for part in parts:
        console.print(part)
    return file.getvalue()


def shown(tree: Tree, rows: dict[int, list[StepCredit]] | None = None) -> ShownTree:
    credit = None if rows is None else "grpo"
    return ShownTree(file="trees.jsonl", line=1, tree=tree, credit=credit, rows=rows or {})


def line_of(length: int, **fields: object) -> Tree:
    """One trajectory."""
    steps = [step(number, number - 1 if number else None, **fields) for number in range(length)]
    steps[-1].outcome = SUCCESS
    return tree(*steps)


def test_equal_neighbours_are_folded() -> None:
    text = printed(tree_drawing(shown(line_of(10, action="look"))))
    assert text.count("look") == 1
    assert "x10 look" in text


def test_neighbours_of_unlike_advantage_are_not_folded() -> None:
    rows = {0: [StepCredit(step=0, advantage=1.0)], 1: [StepCredit(step=1, advantage=-1.0)]}
    text = printed(tree_drawing(shown(line_of(2, action="look"), rows)))
    assert "+1.00" in text
    assert "-1.00" in text


def test_a_step_without_advantage_is_not_one_of_zero() -> None:
    rows = {0: [StepCredit(step=0, advantage=None)], 1: [StepCredit(step=1, advantage=0.0)]}
    first, second = printed(tree_drawing(shown(line_of(2), rows))).splitlines()[-2:]
    assert " - " in first
    assert "+0.00" in second


def test_a_fork_says_what_its_branches_come_to() -> None:
    forked = tree(step(0, None), step(1, 0, outcome=SUCCESS), step(2, 0, outcome=TRUNCATED))
    text = printed(tree_drawing(shown(forked)))
    assert "1 of 2 succeed, then a fork" in text
    assert "trajectory 1: success" in text
    assert "trajectory 2: truncated" in text


@pytest.mark.parametrize("validity", [Validity.MALFORMED, Validity.INADMISSIBLE])
def test_what_did_nothing_is_marked(validity: Validity) -> None:
    text = printed(tree_drawing(shown(line_of(1, validity=validity, response="words"))))
    assert ("malformed: words" if validity is Validity.MALFORMED else "(inadmissible)") in text


@pytest.mark.parametrize(
    ("fields", "times", "said"),
    [
        ({}, 1, ""),
        ({"validity": Validity.INADMISSIBLE}, 1, "inadmissible"),
        ({"validity": Validity.MALFORMED, "action": None}, 1, "malformed"),
        ({"response": ""}, 1, "look up"),
        ({"action": "look down"}, 1, "look down"),
        ({"error": "engine lost"}, 1, "errored: engine lost"),
    ],
)
def test_a_chat_says_an_action_once(fields: dict[str, object], times: int, said: str) -> None:
    grown = line_of(1, **{"response": "<think>so</think> look up", "action": "look up", "tag": "think", **fields})
    text = printed(*chat(shown(grown), grown.steps, 1))
    assert text.count("look up") == times
    assert said in text


def test_a_long_stretch_is_shortened_and_whole_on_demand() -> None:
    long = shown(line_of(200))
    text = printed(tree_drawing(long))
    assert "165 more lines; --all" in text
    assert "go 100" not in text
    whole = printed(tree_drawing(long, whole=True))
    assert all(f"go {number} " in whole for number in range(200))


def test_many_trajectories_are_shortened_by_one_note() -> None:
    wide = shown(tree(*[step(number, None, outcome=TRUNCATED) for number in range(2000)]))
    text = printed(tree_drawing(wide))
    assert text.count("--all shows them") == 1
    assert "1399 more steps in 1399 trajectories" in text


def test_deep_forks_are_shortened() -> None:
    steps = [step(0, None)]
    for _ in range(40):
        parent = steps[-1].id
        steps.append(step(len(steps), parent, outcome=TRUNCATED))
        steps.append(step(len(steps), parent))
    steps[-1].outcome = SUCCESS
    assert "--all shows them" in printed(tree_drawing(shown(tree(*steps))))
    assert "--all" not in printed(tree_drawing(shown(tree(*steps)), whole=True))


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("color", [False, True])
def test_hostile_texts_are_harmless(width: int, color: bool) -> None:
    """No escape of theirs, no control or bidirectional character, and no markup is obeyed."""
    names = ("system", "tools", "prompt", "response", "observation", "next_observation", "action", "tag", "state")
    fields = dict.fromkeys(names, HOSTILE)
    hostile = tree(step(0, None, **fields, outcome=SUCCESS, notes={HOSTILE: HOSTILE}))
    hostile.instruction = hostile.method = HOSTILE
    rows = {0: [StepCredit(step=0, advantage=1.0, parts={HOSTILE: 1.0}, masked=HOSTILE)]}
    one = shown(hostile, rows)
    one.file = one.credit = HOSTILE
    views = [
        tree_drawing(one),
        side_by_side(one, one),
        *chat(one, path(hostile, hostile.steps[0]), 1),
        *step_details(one, hostile.steps[0]),
    ]
    text = printed(*views, width=width, color=color)
    for character in "\u202e\u2066\x07\r":
        assert character not in text
    assert "\x1b[31mred" not in text
    if not color:
        assert "\x1b" not in text
        assert "[bold]" in "".join(text.split()) or width == 40


def test_a_step_of_a_conversation_shows_its_tools_and_who_speaks() -> None:
    first = step(0, None, system="Be brief.", tools='[{"function":{"name":"peek"}}]')
    second = step(1, 0, role="tool", continues="exact", outcome=SUCCESS)
    one = shown(tree(first, second))
    begun, returned = (printed(*step_details(one, each)) for each in (first, second))
    assert "Be brief." in begun
    assert '"peek"' in begun
    assert "what the tool returned, after step 0" in returned


def test_no_line_is_wider_than_the_terminal() -> None:
    text = printed(tree_drawing(shown(line_of(30, next_observation="word " * 100))), width=80)
    assert max(map(len, text.splitlines())) <= 80


def test_two_trees_stand_side_by_side() -> None:
    text = printed(side_by_side(shown(line_of(2)), shown(line_of(3))), width=160)
    assert any(line.count("go 0") == 2 for line in text.splitlines())


def test_a_sparkline_goes_from_the_lowest_bar_to_the_highest() -> None:
    assert sparkline([0.0, 0.5, 1.0]) == "▁▅█"
    assert sparkline([]) == ""
