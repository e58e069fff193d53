"""`agentcli show RUN --calls`: how often each tool is called, and one tree's calls with their scores."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import agentcli, succeeded
from refusal import refused

PRESET = """
environment: {name: "quiz_world:QuizWorld", max_steps: 5}
policy: {kind: expert}
rollout: {method: rare-tool, leaves: 2, judge: {kind: tool-judge}}
"""


@pytest.fixture(autouse=True)
def _run(tmp_path: Path) -> Iterator[None]:
    (tmp_path / "quiz.yaml").write_text(PRESET, encoding="utf-8")
    with contextlib.chdir(tmp_path):
        succeeded("rollout", "--preset", "./quiz.yaml", "-q", "-o", "x")
        yield


def test_shares_by_step() -> None:
    done = agentcli("show", "x", "--calls", "--json")
    together, first, second = [json.loads(line) for line in done.stdout.splitlines()]
    assert together["calls"] == {"answer": 12, "weigh": 12}
    assert (first["step"], first["calls"], first["entropy"]) == (1, {"weigh": 12}, 0.0)
    assert second["calls"] == {"answer": 12}
    table = succeeded("show", "x", "--calls")
    assert "weigh" in table.stderr + table.stdout


def test_the_calls_of_one_tree() -> None:
    done = agentcli("show", "x", "1", "--calls", "--json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["action"] for row in rows[:2]] == ["weigh[the boxes]", "answer[A]"]
    assert (rows[0]["notes"]["chosen"], rows[0]["notes"]["best"]) == (7.0, 9.0)
    table = agentcli("show", "x", "1", "--calls")
    text = table.stderr + table.stdout
    assert "step of the plan" in text
    assert "7.0" in text


def test_words_in_the_place_of_scores_are_shown() -> None:
    file = Path("x/trees.jsonl")
    text = file.read_text(encoding="utf-8").replace('"chosen":7.0', '"chosen":"fair"')
    file.write_text(text.replace('"process_ok":1.0', '"process_ok":"per\\nhaps"'), encoding="utf-8")
    table = succeeded("show", "x", "1", "--calls")
    assert "fair" in table.stdout
    assert "per haps" in table.stdout


def test_steps_are_counted_from_one_in_both_tables_and_named_as_step_takes_them() -> None:
    table = agentcli("show", "x", "2", "--calls")
    rows = [[cell.strip() for cell in line.split("│")] for line in table.stdout.splitlines()]
    calls = [row for row in rows if "weigh" in row or "answer" in row]
    assert [row[row.index("2:0") - 1] for row in calls if "2:0" in row] == ["1"]
    assert [row[row.index("2:1") - 1] for row in calls if "2:1" in row] == ["2"]
    assert agentcli("show", "x", "--step", "2:1").code == 0


def test_other_views_are_refused() -> None:
    refused(agentcli("show", "x", "--calls", "--failed"), 2, "--calls", "failed")
    refused(agentcli("show", "--calls"), 2, "agentcli show RUN")
