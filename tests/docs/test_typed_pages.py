"""Every command of the README and the guides is typed, in the order of its page, in a folder of a small quickstart."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import agentcli, parse
from small_quickstart import SMALL, make_clone
from typed_pages import ROOT, Block, blocks, commands, pages

PAGES = pages()
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


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
    """A copy of the quickstart's folder for one page, and this process in it."""
    for name in [name for name in os.environ if name.startswith("AGENTCLI_")]:
        monkeypatch.delenv(name)
    for name, value in SMALL.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AGENTCLI_CACHE", str(clone.parent / "cache"))
    folder = tmp_path / "clone"
    shutil.copytree(clone.parent, folder, symlinks=True, ignore=shutil.ignore_patterns("cache", ".venv"))
    with contextlib.chdir(folder / "quickstart"):
        yield folder / "quickstart"


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
            answer = agentcli(*words[1:], *dry)
            assert answer.code == 0, f"{block.place}: {' '.join(words)}: {answer.stderr}"
        else:
            subprocess.run(words, check=True)
