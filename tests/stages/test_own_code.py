"""Code of the user's: what it gives is checked before it is used, and what was made by another version is not."""

import json
from pathlib import Path

import pytest
from agentcli.analysis.credit_quality import plan as plan_quality
from agentcli.stages.study import StageCommand
from command_line import agentcli, succeeded
from refusal import refused

LAST = """\
from agentcli.credit.switches import Switches
from agentcli.records.types import Credit, StepCredit, Tree


def assign(tree: Tree, settings: Switches) -> Credit:
    rows = [StepCredit(step=step.id, advantage=1.0) for step in tree.steps]
    return Credit(task=tree.task.id, method="last", steps=rows)
"""
GIVEN = '    return Credit(task=tree.task.id, method="last", steps=rows)\n'
OWN = "last.py:assign"


@pytest.fixture(autouse=True)
def here(empty_folder: Path) -> None:
    Path("last.py").write_text(LAST, encoding="utf-8")


def grown(run: str = "runs/x") -> str:
    words = ("rollout", "--env", "tunnel", "--policy", "random", "--tasks", "2", "--leaves", "3", "-q", "-o", run)
    assert agentcli(*words).code == 0
    return run


def change(before: str, after: str, file: str = "last.py") -> None:
    text = Path(file).read_text(encoding="utf-8")
    assert before in text
    Path(file).write_text(text.replace(before, after), encoding="utf-8")


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("    return None\n", ("NoneType", "Credit")),
        ("    return rows\n", ("list", "Credit")),
        ("    rows[0].advantage = float('nan')\n" + GIVEN, ("steps[0].advantage", "not finite")),
        ("    rows[0].parts = {'mine': float('inf')}\n" + GIVEN, ("steps[0].mine", "not finite")),
        ("    rows[1].advantage = None\n" + GIVEN, ("steps[1]", "masked")),
        ("    rows[1].step = 9999\n" + GIVEN, ("steps[1].step", "9999")),
        ("    rows[1].step = -1\n" + GIVEN, ("steps[1].step", ">= 0")),
        ("    rows[1].advantage = 1e300\n" + GIVEN, ("steps[1].advantage",)),
        ("    rows[1].advantage = 'much'\n" + GIVEN, ("steps[1].advantage", "str")),
        ("    import numpy as np\n    rows[1].advantage = np.float32(1)\n" + GIVEN, ("numpy.float32",)),
        ("    import numpy as np\n    rows[1].advantage = np.float64(1)\n" + GIVEN, ("steps[1].adv", "numpy.float64")),
        ("    return Credit(task='other', method='last', steps=rows)\n", ("task", "other")),
    ],
)
def test_credit_that_does_not_fit_its_tree_is_refused_at_once(given: str, names: tuple[str, ...]) -> None:
    run = grown()
    change(GIVEN, given)
    for words in (("assign-credit", run, "--method", OWN, "-q"), ("credit", "compare", run, OWN, "grpo", "-q")):
        refused(agentcli(*words), 3, (OWN, f"{run}/trees.jsonl:1", *names))
    assert not Path(run, "credit").exists()


def test_a_method_with_a_built_in_ones_name_is_refused() -> None:
    """Its credit would be read as that one's."""
    run = grown()
    change("def assign(", "def grpo(")
    refused(agentcli("assign-credit", run, "--method", "last.py:grpo", "-q"), 2, "last.py:grpo", "rename the function")
    assert not Path(run, "credit").exists()


def test_what_a_method_raises_names_its_line_and_an_exit_is_no_success() -> None:
    run = grown()
    change(GIVEN, "    raise KeyError('x')\n")
    refused(agentcli("assign-credit", run, "--method", OWN, "-q"), 1, ("last.py:7", "KeyError"))
    change("    raise KeyError('x')\n", "    raise SystemExit(0)\n")
    refused(agentcli("assign-credit", run, "--method", OWN, "-q"), 1, (OWN, "ends the program"))


def test_steps_without_a_row_are_counted() -> None:
    run = grown()
    change("for step in tree.steps]", "for step in tree.steps[1:]]")
    done = succeeded("assign-credit", run, "--method", OWN)
    assert "2 steps have no row" in done.stderr


def test_a_method_that_changes_the_tree_changes_it_for_nobody_else() -> None:
    run = grown()
    agentcli("assign-credit", run, "--method", "grpo")
    alone = agentcli("credit", "compare", run, "grpo", "rewardflow", "--json").stdout
    change(GIVEN, "    tree.steps.pop()\n    rows.pop()\n" + GIVEN)
    beside = agentcli("credit", "compare", run, OWN, "grpo", "rewardflow", "--json").stdout
    assert json.loads(beside)["methods"][1:] == json.loads(alone)["methods"]


def test_credit_of_a_changed_method_is_not_resumed_and_its_like_says_so() -> None:
    run = grown()
    assign = ("assign-credit", run, "--method", OWN)
    assert agentcli(*assign).code == 0
    assert agentcli(*assign, "--resume").code == 0
    change("advantage=1.0", "advantage=-1.0")
    refused(agentcli(*assign, "--resume", "-q"), 2, ("last.py",))
    said = agentcli(*assign, "--explain", "1:0").stdout
    assert f"agentcli assign-credit {run} --method {OWN} --overwrite" in " ".join(said.split())


def test_for_a_study_a_stage_of_changed_code_has_not_ended() -> None:
    run = grown()
    words = ("assign-credit", run, "--method", OWN)
    assert agentcli(*words).code == 0
    stage = StageCommand(Path(run), "credit/last", words)
    assert stage.ended
    change("advantage=1.0", "advantage=-1.0")
    assert not stage.ended


def test_trees_of_a_changed_world_are_not_gone_on_with() -> None:
    agentcli("env", "new", "two_doors")
    words = ("rollout", "--env", "two_doors.py:TwoDoors", "--policy", "expert", "--tasks", "2", "-q", "-o", "runs/y")
    assert agentcli(*words).code == 0
    change("reward=1.0", "reward=0.5", "two_doors.py")
    refused(agentcli(*words, "--resume"), 2, ("two_doors.py",))


def test_a_method_of_a_file_is_compared_by_the_name_that_the_manifest_has() -> None:
    run = grown()
    for method in (OWN, "grpo"):
        assert agentcli("assign-credit", run, "--method", method).code == 0
    compared = agentcli("credit", "compare", run, "--json").stdout
    assert [row["method"] for row in json.loads(compared)["methods"]] == ["grpo", OWN]
    assert agentcli("view", run, "--no-accounts", "-o", "page.html").code == 0


QUALITY = f"""\
title: Mine
groups: 16
update: 4
tunnels: {{small: {{options: {{decisions: 1, doors: 2, forced: 0}}}}}}
methods: {{mine: {{credit: {{method: "{OWN}"}}}}, grpo: {{}}}}
"""


def test_a_cell_of_a_changed_method_is_another_one() -> None:
    Path("q.yaml").write_text(QUALITY, encoding="utf-8")
    before = plan_quality(Path("q.yaml"), Path("out"))
    cells = {name: before.file("small", name, 0) for name in ("mine", "grpo")}
    change("advantage=1.0", "advantage=-1.0")
    after = plan_quality(Path("q.yaml"), Path("out"))
    assert after.file("small", "mine", 0) != cells["mine"]
    assert after.file("small", "grpo", 0) == cells["grpo"]


@pytest.mark.parametrize(
    ("formula", "names"),
    [("value - mean", "'mean'"), ("value -", "SyntaxError"), ("value / 0", "ZeroDivisionError")],
)
def test_equations_that_cannot_be_computed_are_named(formula: str, names: str) -> None:
    run = grown()
    equation = f'EQUATIONS = (Equation("value", None, "its value"), Equation("advantage", "{formula}", "all of it"))'
    change("\n\n\ndef", f"\nfrom agentcli.credit.equations import Equation\n\n{equation}\n\n\ndef")
    change("advantage=1.0)", 'advantage=1.0, parts={"value": 1.0})')
    refused(agentcli("assign-credit", run, "--method", OWN, "--explain", "best", "-q"), 1, ("EQUATIONS", names))


def test_what_a_method_prints_is_no_result() -> None:
    run = grown()
    change("    rows =", "    print('hello')\n    rows =")
    ran = agentcli("assign-credit", run, "--method", OWN, "--explain", "best", "--json", "-q")
    assert json.loads(ran.stdout)["line"] == 1
    assert "hello" in ran.stderr
