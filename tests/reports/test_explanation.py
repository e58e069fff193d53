"""An explained step as text: what it holds, large groups shortened, hostile texts harmless."""

import io
import json
import re
from typing import Any

import msgspec
import pytest
from agentcli.credit.explain import ExplainedStep
from agentcli.reports.explanation import excerpt, explanation, folded
from agentcli.reports.output import print_answer
from rich.console import Console

HOSTILE = "[bold]x[/nonsense] :warning: \x1b[31mred\x00\x07\r\n\tnext \ud800 \u202egnp.exe é 🙂"


def explained(**changes: Any) -> ExplainedStep:
    about: dict[str, Any] = {
        "task": "train/3",
        "kind": "open",
        "instruction": "Reach room 4.",
        "method": "grpo",
        "settings": {},
        "changed": {},
        "step": 7,
        "parent": 6,
        "siblings": 1,
        "tag": "explore",
        "observation": "A room.",
        "action": "go east",
        "moves": [],
        "validity": "valid",
        "outcome": None,
        "next_observation": "Another room.",
        "advantage": 0.4,
        "masked": None,
        "why_masked": None,
        "weight": 1.0,
        "parts": {"reward": 1.0},
        "row": 0,
        "rows": [0.4],
        "account": [group(2), number("x", 1.0), number("advantage", 0.4, "(x - mean_g) * 0.8", "SPARK eq. 1")],
        "peers": {str(n): {"action": "go east", "outcome": "success"} for n in range(500)},
    }
    written = {"file": "run/credit/grpo.jsonl", "advantage": 0.4, "same": True, "settings": {}}
    values = {
        "trees": "run/trees.jsonl",
        "line": 4,
        "written": changes.pop("written", written),
        "explanation": about | changes,
    }
    return msgspec.convert(values, ExplainedStep, str_keys=True)


def number(name: str, value: float, formula: str | None = None, source: str | None = None) -> dict[str, Any]:
    return {
        "entry": "number",
        "name": name,
        "value": value,
        "formula": formula,
        "meaning": "what it is",
        "source": source,
    }


def group(size: int, places: tuple[int, ...] = (1,)) -> dict[str, Any]:
    return {
        "entry": "group",
        "name": "g",
        "meaning": "a group",
        "of": "step",
        "members": [{"step": n, "score": n % 2, "weight": 1.0, "explained": n in places} for n in range(size)],
        "mean": 0.5,
        "std": 0.7,
        "weight": size,
    }


def shown(capsys: pytest.CaptureFixture[str], **changes: Any) -> str:
    print_answer(explained(**changes), explanation, json=False)
    return capsys.readouterr().out


def test_the_text_holds_step_group_and_arithmetic(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [" ".join(line.split()) for line in shown(capsys).splitlines()]
    assert lines[:6] == [
        "task train/3 (run/trees.jsonl:4), kind open",
        "instruction Reach room 4.",
        "step 7: after step 6, 1 other from the same state, tag explore",
        "saw A room.",
        "did go east",
        "then Another room.",
    ]
    assert any(line.startswith("method grpo, ") and line.endswith("defaults") for line in lines)
    assert "advantage +0.4" in lines
    (written,) = (line for line in lines if line.startswith("written "))
    assert written.startswith("written the same in")
    assert written.endswith(" run/credit/grpo.jsonl")
    assert "2 entries, mean 0.5, std 0.7, W 2" in lines
    assert "> 1 go east success 1 1" in lines
    assert lines[-1] == "advantage = (x - mean_g) * 0.8 = (1 - 0.5) * 0.8 = 0.4 what it is [SPARK eq. 1]"


def test_a_masked_step_several_rows_and_other_credit(capsys: pytest.CaptureFixture[str]) -> None:
    differing = {"file": "f", "advantage": None, "same": False, "settings": {"gamma": [0.5, 0.9]}}
    text = shown(
        capsys,
        advantage=None,
        masked="errored",
        why_masked="it broke",
        account=[],
        rows=[None, -1.0],
        written=differing,
    )
    assert "advantage    none, masked as" in text
    assert "'errored'" in text
    assert ": it broke" in text
    assert "is row 0 of 2 of" in text
    assert "below it: none, -1" in text
    assert "written      none in f: " in text
    assert "credit.gamma 0.5 there, 0.9 here" in text
    stale = {"file": "run/credit/grpo.jsonl", "advantage": None, "same": False, "settings": {}}
    said = (
        "none in run/credit/grpo.jsonl: not of these trees as they are; write it again with: agentcli assign-credit run"
    )
    assert f"written      {said} --method grpo --overwrite" in shown(capsys, written=stale)
    assert "reward 1 (the method" in shown(capsys, account=[], written=None)


def test_a_large_group_is_shortened_around_the_steps_own(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, account=[group(500, places=(3, 250, 499)), number("advantage", 0.4)])
    rows = re.findall(r"^ +(>?) +(\d+)  go east", text, re.MULTILINE)
    assert [int(step) for mark, step in rows if mark] == [3, 250, 499]
    assert [int(step) for mark, step in rows if not mark] == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert "... and 488 more" in text
    assert len(shown(capsys, account=[group(500, places=tuple(range(500)))]).splitlines()) < 40


def test_hostile_texts_are_escaped_and_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("task", "kind", "instruction", "tag", "observation", "action", "next_observation", "masked")
    peers = {str(n): {"action": HOSTILE * 50, "outcome": "success"} for n in range(2)}
    text = shown(capsys, **dict.fromkeys(names, HOSTILE), moves=[HOSTILE], peers=peers)
    assert "[bold]x[/nonsense] :warning: \\x1b[31mred\\x00\\x07 next \\ud800 \\u202egnp.exe é 🙂" in text
    assert all(letter.isprintable() for letter in text.replace("\n", ""))
    text.encode()
    assert max(map(len, text.splitlines())) < 400
    print_answer(explained(action=HOSTILE), explanation, json=True)
    assert json.loads(capsys.readouterr().out)["explanation"]["action"] == HOSTILE


def test_an_excerpt_keeps_both_ends() -> None:
    long = excerpt("begin " + "x" * 10_000_000 + " end")
    assert long.startswith("begin xxx")
    assert len(long) < 170
    assert excerpt("a" * 100 + "b" * 100, 40) == "a" * 26 + " ... " + "b" * 10
    assert excerpt(None) == "-"
    assert excerpt("  two\n lines ") == "two lines"


def test_every_part_is_a_string_or_a_table() -> None:
    out = io.StringIO()
    console = Console(file=out, width=40, emoji=False)
    for part in explanation(explained()):
        console.print(part, markup=False, soft_wrap=isinstance(part, str))
    assert "0.4" in out.getvalue()


def test_a_narrow_terminal_tears_no_number_and_leaves_out_no_text() -> None:
    scores = [number + 0.1234567891 for number in range(3)]
    members = [{"step": n, "score": score, "weight": -score, "explained": n == 1} for n, score in enumerate(scores)]
    peers = {str(n): {"action": "Ω" * 60, "outcome": "truncated"} for n in range(3)}
    about = explained(account=[group(2) | {"members": members}], peers=peers)
    out = io.StringIO()
    console = Console(file=out, width=56, emoji=False)
    for part in explanation(about):
        console.print(part, markup=False, soft_wrap=isinstance(part, str))
    assert "…" not in out.getvalue()
    for score in scores:
        assert f"{score:.10g}" in out.getvalue().split()
        assert f"{-score:.10g}" in out.getvalue().split()
    assert out.getvalue().count("Ω") == 3 * 60


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        ("saw          a room", ["saw          a room"]),
        ("saw          a room with a door", ["saw          a room", " " * 13 + "with a", " " * 13 + "door"]),
        ("  x = 1 + 1    the sum", ["  x = 1 + 1", "        the sum"]),
    ],
)
def test_a_narrow_terminal_folds_a_line_below_its_beginning(line: str, lines: list[str]) -> None:
    assert folded(line, 20).splitlines() == lines
