"""A method of one's own that grows trees, named by the place of its function."""

import contextlib
import json
import sys
from collections.abc import Iterator
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
OTHERS = """
def grow(actor, settings): ...
async def unsettled(actor): ...
async def narrow(actor, settings: int): ...
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path) -> Iterator[None]:
    """A folder with the method of the guide."""
    _, _, after = PAGE.read_text(encoding="utf-8").partition('```python title="my_growth.py"\n')
    (tmp_path / "my_growth.py").write_text(after.partition("```")[0], encoding="utf-8")
    (tmp_path / "others.py").write_text(OTHERS, encoding="utf-8")
    (tmp_path / "toy.yaml").write_text(SETTINGS, encoding="utf-8")
    with contextlib.chdir(tmp_path):
        yield


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


def test_a_file_can_import_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [*sys.path])
    Path("below").mkdir()
    Path("my_growth.py").rename("below/neighbour_of_it.py")
    Path("below/mine.py").write_text("from neighbour_of_it import grow\n", encoding="utf-8")
    assert agentcli(*rollout(method="below/mine.py:grow")).code == 0
