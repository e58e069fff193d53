"""A method of one's own that grows trees, named by the place of its function."""

import json
import sys
from itertools import count
from pathlib import Path

import pytest
from agentcli.records.files import read_json, read_records
from agentcli.records.types import Manifest, Outcome, Tree
from command_line import agentcli
from refusal import refused

PAGE = Path(__file__).parents[2] / "docs/guides/own-method.md"
SETTINGS = """
environment: {name: "toy_world:ToyWorld", max_steps: 6, options: {tasks: 6, length: 3}}
prompt: {style: compact}
policy: {kind: random}
rollout: {leaves: 8}
"""
NUMBERS = count()
OTHERS = """
def grow(actor, settings): ...
async def unsettled(actor): ...
async def narrow(actor, settings: int): ...
"""


SWITCH = """
from agentcli.credit.switches import Switches


class Named(Switches, kw_only=True):
    method: int = 3


def assign(tree, settings: Named): ...
"""
GROWN = """
import asyncio
import sys

from agentcli.exploration.actor import Actor
from agentcli.exploration.chain import follow_all
from agentcli.records.section import Share
from agentcli.records.settings import RolloutSettings
from agentcli.records.types import Tree


class Plain(RolloutSettings, kw_only=True):
    {setting}


async def grow(actor: Actor, settings: Plain) -> Tree:
    root = await actor.start()
    {body}
    return actor.tree("mine")
"""


@pytest.fixture(autouse=True)
def _folder(empty_folder: Path) -> None:
    """A folder with the method of the guide."""
    _, _, after = PAGE.read_text(encoding="utf-8").partition('```python title="my_growth.py"\n')
    (empty_folder / "my_growth.py").write_text(after.partition("```")[0], encoding="utf-8")
    (empty_folder / "others.py").write_text(OTHERS, encoding="utf-8")
    (empty_folder / "toy.yaml").write_text(SETTINGS, encoding="utf-8")


def rollout(*words: str, method: str = "my_growth.py:grow", out: str = "x") -> tuple[str, ...]:
    return ("rollout", "-c", "toy.yaml", "--method", method, "-o", out, "-q", *words)


def successes(out: str) -> list[list[bool]]:
    """For every tree, whether each of its leaves succeeded."""
    ends = []
    for tree in read_records(Path(out, "trees.jsonl"), Tree):
        assert tree.method == "persistent"
        ends.append([step.outcome is Outcome.SUCCESS for step in tree.steps if step.outcome is not None])
    return ends


@pytest.mark.parametrize("wins", [1, 2])
def test_it_grows_its_trees_with_a_setting_of_its_own(wins: int) -> None:
    done = agentcli(*rollout("--set", f"rollout.wins={wins}"))
    assert done.code == 0, done
    trees = successes("x")
    assert any(len(tree) < 8 for tree in trees)
    for tree in trees:
        assert sum(tree) == wins if len(tree) < 8 else sum(tree) <= wins
    settings = read_json(Path("x/manifest.json"), Manifest).stages["rollout"].settings["rollout"]
    assert (settings["method"], settings["wins"]) == ("my_growth.py:grow", wins)


def test_a_rollout_that_was_stopped_goes_on_with_the_same_method_only() -> None:
    for out in ("whole", "x"):
        assert agentcli(*rollout(out=out)).code == 0
    whole = Path("whole/trees.jsonl").read_bytes()
    trees = Path("x/trees.jsonl")
    trees.write_bytes(b"".join(whole.splitlines(keepends=True)[:3]))
    method = Path("my_growth.py")
    text = method.read_text(encoding="utf-8")
    method.write_text(f"{text}# changed\n", encoding="utf-8")
    refused(agentcli(*rollout("--resume")), 2, "my_growth.py", "--overwrite")
    method.write_text(text, encoding="utf-8")
    assert agentcli(*rollout("--resume")).code == 0
    assert trees.read_bytes() == whole


def test_a_dry_run_shows_its_setting() -> None:
    done = agentcli(*rollout("--set", "rollout.wins=3", "--dry-run", "--json"))
    assert done.code == 0, done
    assert json.loads(done.stdout)["settings"]["rollout"]["wins"] == 3


@pytest.mark.parametrize(
    ("method", "setting", "names", "remedy"),
    [
        ("my_growth.py:grow", "rollout.win=2", "rollout.win", "rollout.wins"),
        ("my_growth.py:grow", "rollout.wins=0", "rollout.wins", ">= 1"),
        ("my_growth.py:shrink", "seed=0", "my_growth.py", "shrink"),
        ("my_growth.py:grwo", "seed=0", "my_growth.py:grwo", "did you mean grow?"),
        ("my_growth.py", "seed=0", "my_growth.py", "my_growth.py:NAME"),
        ("my_growth.py:", "seed=0", "my_growth.py:", "my_growth.py:NAME"),
        ("my_growth.yp:grow", "seed=0", "my_growth.yp", "did you mean my_growth.py:grow?"),
        ("toy.yaml:grow", "seed=0", "toy.yaml", "ends with .py"),
        ("nothing.yp:grow", "seed=0", "nothing.yp", "a file ends with .py"),
        ("none.py:grow", "seed=0", "none.py", "folder/file.py:NAME"),
        ("others.py:grow", "seed=0", "others.py:grow", "async"),
        ("others.py:unsettled", "seed=0", "unsettled", "settings"),
        ("others.py:narrow", "seed=0", "others.py:narrow", "RolloutSettings"),
    ],
)
def test_what_cannot_grow_is_refused(method: str, setting: str, names: str, remedy: str) -> None:
    refused(agentcli(*rollout("--set", setting, method=method)), 2, names, remedy)
    assert not Path("x").exists()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def grow(:", ("broken.py", "line 1")),
        ("raise SystemExit(0)", ("broken.py", "ends the program")),
        ("async def grow(actor, settings: 'Nope'): ...", ("grow", "Nope")),
    ],
)
@pytest.mark.parametrize("command", ["rollout", "assign-credit"])
def test_a_file_that_cannot_be_used_is_named_in_one_line(command: str, text: str, names: tuple[str, ...]) -> None:
    Path("broken.py").write_text(text + "\n", encoding="utf-8")
    words = rollout(method="broken.py:grow")
    if command == "assign-credit":
        assert agentcli(*rollout()).code == 0
        words = ("assign-credit", "x", "--method", "broken.py:grow", "-q")
    refused(agentcli(*words), 2, names)


def mine(body: str = "pass", setting: str = "pass") -> str:
    """The place of a new method with this body and setting; a place is loaded once in a process."""
    file = Path(f"mine_{next(NUMBERS)}.py")
    file.write_text(GROWN.format(body=body, setting=setting), encoding="utf-8")
    return f"{file}:grow"


@pytest.mark.parametrize(
    ("body", "remedy"),
    [
        ("await actor.act(root)", "act until every node is finished"),
        ("pass", "actor.act"),
        ("await asyncio.gather(actor.act(root, 0), actor.act(root, 0))", "index"),
        ("await follow_all(actor, root, range(9))", "rollout.leaves (8)"),
        ("await follow_all(actor, root, range(2)); tree = actor.tree('m'); tree.steps.pop(); return tree", "as it is"),
        (
            "await follow_all(actor, root, range(2)); tree = actor.tree('m'); tree.steps[0].reward = float('nan'); return tree",
            "steps[0].reward",
        ),
        ("return None", "return actor.tree(NAME)"),
        ("return 5", "return actor.tree(NAME)"),
        ("sys.exit()", "raise another error"),
        ("raise asyncio.CancelledError", "raise another error"),
    ],
)
def test_what_is_no_finished_tree_is_never_written(body: str, remedy: str) -> None:
    method = mine(body)
    refused(agentcli(*rollout(method=method)), 2, f"rollout.method {method}", remedy)
    trees = Path("x/trees.jsonl")
    assert not trees.exists() or trees.stat().st_size == 0


def test_a_task_of_its_own_that_ends_the_program_is_named_by_its_line() -> None:
    method = mine("async def leave(): sys.exit()\n    await asyncio.gather(leave())")
    refused(agentcli(*rollout(method=method)), 1, (method.removesuffix("grow"), "SystemExit"))


def test_a_tree_that_its_deadline_ends_is_no_fault_of_the_method() -> None:
    method = mine("await actor.act(root)\n    await asyncio.Event().wait()")
    words = ("--set", "rollout.deadline_seconds=0.2", "--set", "rollout.most_errored=1", "--tasks", "1")
    assert agentcli(*rollout(*words, method=method)).code == 0
    (tree,) = read_records(Path("x/trees.jsonl"), Tree)
    assert [step.outcome for step in tree.steps] == [Outcome.ERRORED]


@pytest.mark.parametrize("name", ["temperature", "seed", "tasks", "split"])
@pytest.mark.parametrize("word", ["--dry-run", "--help"])
def test_a_setting_with_the_name_of_an_option_is_refused(name: str, word: str) -> None:
    method = mine(setting=f"{name}: Share = 0.3")
    refused(agentcli(*rollout(word, method=method)), 2, (method, f"`{name}`"), "rename")


@pytest.mark.parametrize("name", ["leaves", "method"])
def test_a_shared_setting_of_another_type_is_refused(name: str) -> None:
    method = mine(setting=f"{name}: Share = 0.3")
    refused(agentcli(*rollout(method=method)), 2, (method, f"`{name}`"), "rename")


def test_a_switch_with_the_name_of_an_option_is_refused() -> None:
    Path("switch.py").write_text(SWITCH, encoding="utf-8")
    refused(agentcli("assign-credit", "x", "--method", "switch.py:assign"), 2, ("switch.py", "`method`"), "rename")


def test_a_file_can_import_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [*sys.path])
    Path("below").mkdir()
    Path("my_growth.py").rename("below/neighbour_of_it.py")
    Path("below/mine.py").write_text("from neighbour_of_it import grow\n", encoding="utf-8")
    assert agentcli(*rollout(method="below/mine.py:grow")).code == 0
