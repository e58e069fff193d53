"""What is written for a user to type is typed: every command of the README and the guides, and every hint of a message.

The quickstart is played once, small. Each page and each hint gets a copy of its folder; a page is typed in its order.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import agentcli, parse
from hints import Hint, hints
from small_quickstart import SMALL, make_clone
from typed_pages import ROOT, Block, blocks, commands, pages

PAGES = pages()
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
NOT_TYPED = {
    "agentcli push RUN USER/NAME": "needs an account on the hub",
    "agentcli show RUN [TREE]": "the brackets say that TREE may be left out",
    "agentcli rollout --method rare-tool": "needs a world with tools and a judge",
    "agentcli assign-credit --method rare-tool": "needs trees that a judge saw",
    "agentcli assign-credit --method ppo": "needs trees with a critic's values",
    "agentcli train --set train.objective=ppo": "needs ppo's credit",
    "agentcli train RUN --set train.objective=process-reward": "needs a run with credit, which credit.md types",
    "agentcli train {run}": "needs credit; the message before it says how to make it",
    "agentcli merge": "needs runs of shards, which overnight.md types",
    "agentcli rollout --shard": "writes one shard of several, which overnight.md types",
    "agentcli compare runs/x/evaluation/L2.json": "names files that a quickstart does not have",
    "agentcli compare runs/a runs/b/evaluation/L0.json": "names files that a quickstart does not have",
    "agentcli sft RUN": "stands for a run with demonstrations",
    "agentcli show runs/x 4 --credit": "needs credit, which credit.md gives it first",
    "agentcli eval --model {repo}": "loads a model of the hub",
    "agentcli export {run} --to model && agentcli push": "uploads to the hub",
    "agentcli export {run.path} --to model": "needs a run whose checkpoint is an adapter, which own-model.md trains",
    "agentcli train {self.run}": "needs credit, which credit.md gives it first",
    "agentcli train runs/x": "needs credit, which credit.md gives it first",
}
"""Beginnings of hints that the folder of a quickstart has nothing for, and why."""
HINTS = [hint for hint in hints() if not hint.text.startswith(tuple(NOT_TYPED))]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_command_of_a_page_is_one(page: Path) -> None:
    """What is not typed below is at least read by the command line."""
    for block in blocks(page):
        for words in commands(block):
            if words[0] == "agentcli":
                parse(words[1:])


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The quickstart, played once."""
    return make_clone(tmp_path_factory.mktemp("docs") / "clone")


@pytest.fixture
def quickstart(clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the quickstart's folder, and this process in it."""
    for name in [name for name in os.environ if name.startswith("AGENTCLI_")]:
        monkeypatch.delenv(name)
    for name, value in SMALL.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AGENTCLI_CACHE", str(clone.parent / "cache"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    folder = tmp_path / "clone"
    shutil.copytree(clone.parent, folder, symlinks=True, ignore=shutil.ignore_patterns("cache", ".venv"))
    with contextlib.chdir(folder / "quickstart"):
        yield folder / "quickstart"
    shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_a_page_works_as_typed(page: Path, quickstart: Path) -> None:
    for block in blocks(page):
        if block.title is not None:
            Path(block.title).write_text("\n".join([*block.lines, ""]), encoding="utf-8")
        elif block.mark != "not typed":
            type_block(block)


def type_block(block: Block) -> None:
    """Types the commands of a block; each must end well."""
    for words in commands(block):
        if words[0] == "agentcli":
            dry = ["--dry-run"] if block.mark == "dry" else []
            ends_well([*words[1:], *dry], block.place)
        else:
            subprocess.run(words, check=True)


@pytest.mark.slow
@pytest.mark.parametrize("hint", HINTS, ids=[hint.text for hint in HINTS])
def test_a_hint_works_as_typed(hint: Hint, quickstart: Path) -> None:
    for words in hint.commands:
        # A hint says how to make what is not there.
        if "-o" in words:
            shutil.rmtree(words[words.index("-o") + 1], ignore_errors=True)
        ends_well(words, hint.place)


def ends_well(words: list[str], place: str) -> None:
    """Types one command line; fails with its message where it does not end well."""
    answer = agentcli(*words)
    assert answer.code == 0, f"{place}: agentcli {' '.join(words)}: {answer.stderr}"
