"""assign-credit --explain and credit compare as typed: what goes where, what has no effect, and what is not loaded."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from agentcli.records.files import read_json, write_json
from agentcli.records.settings import Settings
from agentcli.records.types import Ledger, Manifest, Outcome, StageRecord, Step, Task, Tree
from command_line import agentcli, files_below, succeeded
from refusal import refused
from typed_pages import ROOT, blocks


def a_tree(number: int) -> Tree:
    """Three trajectories of two steps from one state, the first successful, one invalid."""
    steps: list[Step] = []
    for leaf in range(3):
        for depth in range(2):
            steps.append(
                Step(
                    id=len(steps),
                    parent=None if depth == 0 else len(steps) - 1,
                    prompt="p",
                    response="r",
                    observation="a room",
                    action=f"go {leaf}",
                    validity="inadmissible" if (leaf, depth) == (2, 1) else "valid",  # type: ignore[arg-type]
                    state="start" if depth == 0 else f"room {leaf}",
                    next_state=f"room {leaf}" if depth == 0 else f"end {leaf}",
                    next_observation="another",
                    value=0.5,
                    outcome=None if depth == 0 else Outcome.FAILURE if leaf else Outcome.SUCCESS,
                )
            )
    task = Task(id=f"valid/pick:apple/{number}", world="w", split="s", kind=("pick", "heat")[number % 2])
    return Tree(task=task, instruction="do it", method="chain", seed=0, steps=steps, ledger=Ledger())


@pytest.fixture
def run(empty_folder: Path, no_variables: None) -> Path:
    folder = Path("runs/x")
    folder.mkdir(parents=True)
    (folder / "trees.jsonl").write_bytes(b"".join(msgspec.json.encode(a_tree(number)) + b"\n" for number in range(4)))
    return folder


@pytest.mark.parametrize("method", ["grpo", "rewardflow", "carl", "ppo", "dpepo"])
def test_explain_writes_to_stdout_and_nowhere_else(run: Path, method: str) -> None:
    assert agentcli("assign-credit", str(run), "--method", method).code == 0
    before = files_below(Path())
    words = ["assign-credit", str(run), "--method", method, "--explain", "valid/pick:apple/2:0"]
    plain = agentcli(*words)
    assert (plain.code, plain.stderr) == (0, "")
    assert "valid/pick:apple/2 " in plain.stdout
    assert "(runs/x/trees.jsonl:3), kind pick" in plain.stdout
    assert f"same in runs/x/credit/{method}.jsonl" in plain.stdout
    assert "\n  advantage = " in plain.stdout
    answer = json.loads(agentcli(*words, "--json").stdout)
    last = answer["explanation"]["account"][-1]
    assert (last["name"], last["value"]) == ("advantage", pytest.approx(answer["explanation"]["advantage"]))
    dry = agentcli(*words, "--dry-run", "--json")
    assert (json.loads(dry.stdout)["outputs"], json.loads(dry.stdout)["counts"]) == ([], {"trees": 4})
    assert files_below(Path()) == before


@pytest.mark.parametrize("flag", ["--graph", "--resume", "--overwrite"])
def test_what_has_no_effect_on_an_explanation_is_refused(run: Path, flag: str) -> None:
    answer = agentcli("assign-credit", str(run), "--explain", "worst", flag)
    assert (answer.code, answer.stdout) == (2, "")
    assert answer.stderr.startswith(f"error: {flag} has no effect")
    assert "with --explain" in answer.stderr


def test_the_statistics_are_a_table_on_stderr(run: Path) -> None:
    answer = agentcli("assign-credit", str(run), "--graph")
    assert answer.stdout == "runs/x\n"
    for text in ("without a success", "masked %", "drift (|mean| / std)", "graph nodes: mean, most"):
        assert text in answer.stderr
    statistics = json.loads(agentcli("assign-credit", str(run), "--graph", "--overwrite", "--json").stdout)[
        "statistics"
    ]
    assert statistics["graphs"] == {"nodes": 7.0, "edges": 6.0, "most_nodes": 7, "most_edges": 6}


def test_another_method_than_the_runs_own_keeps_its_shared_switches(run: Path) -> None:
    settings = Settings(credit={"method": "rewardflow", "gamma": 0.8, "invalid_penalty": 0.3})
    recorded = StageRecord(
        command=[],
        settings=msgspec.to_builtins(settings),
        versions={},
        git_commit=None,
        seed=0,
        started="",
        finished="",
    )
    write_json(run / "manifest.json", Manifest(stages={"rollout": recorded}))
    answer = agentcli("assign-credit", str(run), "--method", "grpo", "--dry-run", "--json")
    assert json.loads(answer.stdout)["settings"]["credit"] == {"method": "grpo", "invalid_penalty": 0.3}
    assert agentcli("assign-credit", str(run), "--method", "dpepo", "-q").stderr == ""
    written = read_json(run / "manifest.json", Manifest).stages["credit/dpepo"].settings["credit"]
    assert (written["invalid_penalty"], written["gamma"]) == (0.3, 0.95)


def test_compare_prints_tables_or_one_json_line(run: Path) -> None:
    assert agentcli("assign-credit", str(run), "--method", "carl", "-q").code == 0
    before = files_below(Path())
    plain = agentcli("credit", "compare", str(run), "grpo", "carl", "-q")
    assert (plain.code, plain.stderr) == (0, "")
    for text in ("runs/x/credit/carl.jsonl", "computed now", "grpo ~ carl", "heat", "pick", "all"):
        assert text in plain.stdout
    answer = agentcli("credit", "compare", str(run), "grpo", "carl", "--json", "--top", "1")
    (line,) = answer.stdout.splitlines()
    found = json.loads(line)
    assert [row["method"] for row in found["methods"]] == ["grpo", "carl"]
    assert [row["kind"] for row in found["agreement"]] == ["heat", "pick", None]
    assert len(found["disagreements"]) == 1
    assert files_below(Path()) == before


def test_a_method_where_the_run_would_stand_means_the_latest_run(run: Path) -> None:
    Path("runs/latest").symlink_to("x", target_is_directory=True)
    answer = succeeded("credit", "compare", "grpo", "carl", "--json")
    assert "using runs/x (runs/latest)" in answer.stderr
    shutil.copytree(run, "grpo")
    one = agentcli("credit", "compare", "grpo", "carl")
    assert one.code == 2
    assert one.stderr.splitlines()[-1].partition(" in grpo;")[0] == "error: nothing to compare"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["runs/x", "grpo", "carl", "--top", "-1"], "--top -1: must be at least 0"),
        (["runs/x", "grpo", "rewardflwo"], "credit.method: no credit method 'rewardflwo'; did you mean rewardflow?"),
        (["runs/x"], "nothing to compare in runs/x; name two methods"),
        (["runs/y", "grpo", "carl"], "runs/y: no such run directory"),
    ],
)
def test_compare_refusals(run: Path, words: list[str], message: str) -> None:
    answer = agentcli("credit", "compare", *words)
    assert answer.code == (3 if "runs/y" in words else 2)
    assert answer.stderr.startswith(f"error: {message}")
    assert answer.stderr.count("\n") == 1


def test_only_what_is_needed_is_loaded(run: Path) -> None:
    """assign-credit and --explain load no torch, networkx, scipy or numpy; --graph adds networkx, compare numpy."""
    program = (
        "import sys\n"
        "from unittest.mock import patch\n"
        "from agentcli.cli.app import main\n"
        "heavy = 'torch transformers textworld networkx scipy numpy agentcli.environments.engines agentcli.policies.hf'.split()\n"
        "lines = [['assign-credit', 'runs/x', '--method', 'rewardflow'], ['assign-credit', 'runs/x', '--explain', 'worst'],\n"
        "         ['assign-credit', 'runs/x', '--method', 'gigpo', '--set', 'credit.similarity=difflib:0.9'],\n"
        "         ['credit', 'compare', 'runs/x', 'grpo', 'carl'], ['assign-credit', 'runs/x', '--method', 'carl', '--graph']]\n"
        "found = []\n"
        "for words in lines:\n"
        "    with patch.object(sys, 'argv', ['agentcli', *words]):\n"
        "        try:\n"
        "            main()\n"
        "        except SystemExit as end:\n"
        "            assert not end.code, end.code\n"
        "    found.append(' '.join(name for name in heavy if name in sys.modules))\n"
        "print(found)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    found = done.stdout.splitlines()[-1]
    assert found == str(["", "", "", "numpy", "networkx numpy"])


MINE = """
import msgspec
from agentcli.records.types import Credit, StepCredit

class Switches(msgspec.Struct, forbid_unknown_fields=True):
    gain: float = 2.0

def mine(tree, settings: Switches):
    rows = [StepCredit(step=step.id, advantage=settings.gain * step.reward) for step in tree.steps]
    return Credit(task=tree.task.id, method="mine", steps=rows)

assign = mine
"""


@pytest.mark.parametrize(("place", "name"), [("own.py:mine", "mine"), ("./own.py:assign", "own")])
def test_a_method_is_used_by_the_place_of_its_function(run: Path, place: str, name: str) -> None:
    Path("own.py").write_text(MINE, encoding="utf-8")
    words = ("assign-credit", str(run), "--method", place)
    answer = succeeded(*words)
    assert answer.stderr.count(f"agentcli train {run} --credit {name}") == 1
    assert (run / f"credit/{name}.jsonl").is_file()
    stage = read_json(run / "manifest.json", Manifest).stages[f"credit/{name}"]
    assert stage.settings["credit"] == {"method": place, "gain": 2.0}
    assert "the same" in agentcli(*words, "--explain", "1:0").stdout
    for named in (place, name):
        assert agentcli("credit", "compare", str(run), "grpo", named).code == 0
        assert agentcli("view", str(run), "--credit", named, "-o", "page.html", "--overwrite").code == 0
    refused(agentcli(*words, "--overwrite", "--set", "credit.gian=1"), names="credit.gian", remedy="gain")
    refused(agentcli("assign-credit", str(run), "--method", "own.py:yours"), names=("own.py", "yours"))


def test_the_method_of_the_guide_has_a_switch_and_explains_itself(run: Path) -> None:
    (code,) = [block for block in blocks(ROOT / "docs/guides/own-method.md") if block.title == "my_credit.py"]
    Path("my_credit.py").write_text("\n".join(code.lines), encoding="utf-8")
    words = ("assign-credit", str(run), "--method", "my_credit.py:assign", "--set")
    assert agentcli(*words, "credit.gamma=0.9").code == 0
    told = agentcli(*words, "credit.gamma=0.9", "--explain", "best")
    assert "advantage = value - mean" in told.stdout
    refused(agentcli(*words, "credit.gamma=2", "--overwrite"), names="gamma")


WITH_FACTS = """from agentcli.credit.equations import Equation, Evidence
from agentcli.credit.survey import survey_of
from agentcli.credit.switches import Switches

EQUATIONS = (Equation("advantage", "reward - mean_tree", "above the mean of the tree"),)

def assign(tree, settings: Switches):
    survey = survey_of(tree, settings)
    ends = survey.live_ends()
    mean = sum(survey.rewards[end] for end in ends) / len(ends)

    def advantage(step, reward):
        return reward - mean, {"reward": reward}

    def facts(row, step, reward):
        evidence = Evidence()
        evidence.group("tree", "outcomes", [(end, survey.rewards[end], 1.0) for end in ends], set())
        return evidence

    return survey.credit("with_facts", survey.rows("merge"), advantage, facts=facts)
"""


def test_a_method_of_ones_own_says_what_its_equations_need(run: Path) -> None:
    Path("with_facts.py").write_text(WITH_FACTS, encoding="utf-8")
    told = succeeded("assign-credit", str(run), "--method", "with_facts.py:assign", "--explain", "best")
    assert "advantage = reward - mean_tree" in told.stdout


def test_a_method_that_is_named_as_its_file_is_not_named_again(run: Path) -> None:
    assert " is named " not in agentcli("assign-credit", str(run), "--method", "grpo", "--overwrite").stderr


OWN = """import msgspec
from agentcli.records.types import Credit, Tree

class Switches(msgspec.Struct):
    pass

def assign(tree: Tree, settings: Switches) -> Credit:
    return helped(tree)

def helped(tree):
    return sorted([tree.nowhere])
"""


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (OWN, 1, "own.py:11: AttributeError: 'Tree' object has no attribute 'nowhere'"),
        ("import shapes_of_mine", 4, "own.py:1: No module named 'shapes_of_mine'; install it, or correct the import"),
    ],
)
def test_an_error_in_ones_own_file_names_its_line(run: Path, text: str, code: int, message: str) -> None:
    Path("own.py").write_text(text, encoding="utf-8")
    refused(agentcli("assign-credit", str(run), "--method", "own.py:assign", "-q"), code=code, names=message)
