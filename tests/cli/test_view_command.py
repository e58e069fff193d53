"""`agentcli view` as a user meets it: what it writes, what it names, what it refuses."""

import subprocess
import sys
from pathlib import Path

import pytest
from agentcli.analysis.page import pack
from agentcli.records.files import RecordWriter
from agentcli.records.types import Outcome
from command_line import agentcli
from credit_trees import step, tree
from grown_runs import grown, run
from pages import unpacked, viewed
from processes import as_here
from refusal import refused

__all__ = ["grown", "run"]

pytestmark = pytest.mark.usefixtures("empty_folder")


def test_without_a_run_all_below_runs_are_shown(run: Path) -> None:
    for name in ("b", "a"):
        Path(f"runs/{name}/settings").mkdir(parents=True)
        Path(f"runs/{name}/trees.jsonl").write_bytes((run / "trees.jsonl").read_bytes())
    index, _ = viewed(Path("page.html"))
    assert sorted(one["name"] for one in index["runs"]) == ["a", "b"]
    assert {source["path"] for source in index["sources"]} == {"runs/a", "runs/b"}


def test_the_page_is_view_html_and_only_a_page_is_replaced_unasked(run: Path) -> None:
    assert agentcli("view", str(run), "-q").stdout == "view.html\n"
    first = Path("view.html").read_bytes()
    assert agentcli("view", str(run), "--credit", "grpo", "-q").code == 0
    assert Path("view.html").read_bytes() != first
    Path("mine.html").write_text("<!doctype html><p>agentcli", encoding="utf-8")
    # It is refused before the run is looked for.
    refused(agentcli("view", "runs/none", "-o", "mine.html"), names="mine.html", remedy="--overwrite")
    assert Path("mine.html").stat().st_size < 100
    assert agentcli("view", str(run), "-o", "mine.html", "-q", "--overwrite").code == 0


def test_no_path_of_this_machine_is_in_the_page(run: Path, tmp_path: Path) -> None:
    viewed(Path("page.html"), str(run))
    for block in unpacked(Path("page.html")).values():
        assert str(tmp_path.parent) not in str(block)


@pytest.mark.parametrize(
    ("words", "code", "names", "remedy"),
    [
        (["runs/none"], 3, "runs/none", "agentcli rollout"),
        (["empty"], 2, "empty", "agentcli show"),
        (["{run}", "{run}"], 2, "{run}", ""),
        (["{run}", "-o", "page.txt"], 2, "page.txt", "page.html"),
        (["{run}", "--credit", "grop"], 2, "grop", "grpo"),
        (["{run}", "--credit", "ppo"], 3, "trees.jsonl:1", ""),
        ([], 2, "", "agentcli demos"),
    ],
)
def test_what_cannot_be_shown_is_refused(run: Path, words: list[str], code: int, names: str, remedy: str) -> None:
    Path("empty").mkdir()
    real = [word.replace("{run}", str(run)) for word in words]
    refused(agentcli("view", *real, "-q"), code, names=names.replace("{run}", str(run)), remedy=remedy)
    assert not Path("view.html").exists()


def test_damaged_trees_are_named_with_their_line(run: Path) -> None:
    lines = (run / "trees.jsonl").read_bytes().splitlines(keepends=True)
    (run / "trees.jsonl").write_bytes(lines[0] + b"{}\n")
    refused(agentcli("view", str(run), "-q"), 3, names="trees.jsonl:2")


def test_a_run_without_steps_is_a_page(run: Path) -> None:
    (run / "trees.jsonl").write_bytes(b"")
    index, trees = viewed(Path("page.html"), str(run))
    assert (index["trees"], trees) == ([], [])


def test_a_tree_with_too_many_steps_gets_a_page_without_accounts(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every account lists a group, which may be the whole tree."""
    monkeypatch.setattr(pack, "MOST_ACCOUNTS", 3)
    words = ("view", str(run), "--credit", "grpo", "-o", str(run / "x.html"), "-q")
    refused(agentcli(*words), 2, f"{run / 'trees.jsonl'}:1:", "--no-accounts")
    assert agentcli(*words, "--no-accounts").code == 0


LIMITED = """
import resource, sys
from agentcli.cli.app import main
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["roots", "chain"])
def test_a_hundred_thousand_steps_take_at_most_two_gigabytes(shape: str, tmp_path: Path) -> None:
    count = 100_000
    steps = []
    for number in range(count):
        is_leaf = shape == "roots" or number == count - 1
        parent = None if shape == "roots" or number == 0 else number - 1
        steps.append(step(number, parent, outcome=Outcome.SUCCESS if is_leaf else None))
    with RecordWriter(tmp_path / "trees.jsonl") as writer:
        writer.write(tree(*steps))
    words = ["view", str(tmp_path), "--credit", "grpo", "--no-accounts", "-o", str(tmp_path / "x.html"), "-q"]
    subprocess.run([sys.executable, "-c", LIMITED, *words], check=True, timeout=1200, env=as_here())
    assert (tmp_path / "x.html").stat().st_size > count
