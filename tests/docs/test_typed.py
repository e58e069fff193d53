"""What is written for a user to type is typed: every command of the README and the guides, and every hint of a message.

The quickstart is played once, small. Each page and each hint gets a copy of its folder; a page is typed in its order.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from agentcli.stages.layers import NOT_SETTINGS, PREFIX
from command_line import agentcli, parse
from hints import Hint, hints
from packaging.requirements import Requirement
from small_quickstart import EXTRAS, SMALL, SMALL_GAMES, make_clone
from typed_pages import ROOT, Block, blocks, commands, pages

PAGES = pages()
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
NOT_TYPED = {
    "agentcli push RUN USER/NAME": "needs an account on the hub",
    "agentcli export {run} --to model && agentcli push": "needs an account on the hub",
    "agentcli eval --model {repo}": "loads a model of the hub",
    "agentcli serve runs/rl --port 8001": "starts vLLM, and stays until Ctrl-C; tests/with_vllm types it",
    "agentcli env serve": "stays until Ctrl-C; tests/stages/test_env_server.py types it",
    "agentcli study tunnel-credit --seeds 0-7": "takes an hour; tests/stages/test_study.py plans it",
    "agentcli compare 'runs/a-*' 'runs/b-*'": "needs runs of several seeds; docs/guides/comparing.md types it",
    "agentcli show RUN [TREE]": "the brackets say that TREE may be left out",
    "agentcli rollout --method rare-tool": "names the method alone; trees.md types it with its world and judge",
    "agentcli assign-credit --method rare-tool": "needs the trees of the hint above, which trees.md types",
}
"""Beginnings of hints that nobody can type as they stand, and why."""
CREDIT = "assign-credit runs/x"
CRITIC = "--critic runs/sft/checkpoint"
ROLLOUT = "rollout --preset quickstart --model runs/sft/checkpoint --tasks 4"
SHARDS = [f"{ROLLOUT} --shard {index}/2 -o runs/part-{index}" for index in (1, 2)]
FIRST = {
    "agentcli train {": [CREDIT],
    "agentcli train runs/x": [CREDIT],
    "agentcli train RUN --set train.objective=process-reward": [CREDIT],
    "agentcli show runs/x 4 --credit": [f"{CREDIT} --method rewardflow"],
    "agentcli export {run.path} --to model": [CREDIT, "train runs/x --lora 4"],
    "agentcli merge": SHARDS,
    "agentcli import": ["export runs/x --to conversations"],
    "agentcli assign-credit --method ppo": [f"{ROLLOUT} {CRITIC} -o runs/valued"],
    "agentcli train --set train.objective=ppo": [f"{ROLLOUT} {CRITIC} -o runs/valued", "assign-credit --method ppo"],
    "agentcli compare runs/x/evaluation/L2.json": [
        "eval runs/x --split L2 --tasks 2",
        "test-time-branch runs/x --split L2 --tasks 2 --label test-time-branch-L2",
    ],
    "agentcli compare runs/a runs/b/evaluation/L0.json": [
        "eval runs/sft --split L0 --tasks 2",
        "eval runs/rl --split L0 --tasks 2",
    ],
    "agentcli sft RUN": ["demos --preset quickstart --count 20 -o runs/x --overwrite"],
}
"""What the reader of a hint has done before, by the hint's beginning."""
HINTS = [hint for hint in hints() if not hint.text.startswith(tuple(NOT_TYPED))]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_command_of_a_page_is_one(page: Path, empty_folder: Path) -> None:
    """What is not typed below is at least read by the command line."""
    for block in blocks(page):
        if block.title is not None:
            # A method of one's own is read for its settings.
            write_file(block)
        for words in commands(block):
            if words[0] in ("agentcli", "torchrun"):
                parse(words[words.index("agentcli") + 1 :])


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_the_quickstart_s_environment_has_every_module_that_a_page_runs(page: Path) -> None:
    """`python -m MODULE`: these tests run in an environment that has more than the reader's."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    stated = [*project["dependencies"], *chain.from_iterable(extras[extra] for extra in EXTRAS)]
    there = {Requirement(line).name for line in stated} | {"agentcli"}
    for block in blocks(page):
        if "not typed" not in block.marks:
            for words in commands(block):
                assert words[:2] != ["python", "-m"] or words[2] in there, f"{block.place}: {words[2]}"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The quickstart, played once."""
    return make_clone(tmp_path_factory.mktemp("docs") / "clone")


@pytest.fixture
def quickstart(clone: Path, tmp_path: Path, no_variables: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the quickstart's folder, and this process in it."""
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
            write_file(block)
        elif "not typed" not in block.marks:
            with pytest.MonkeyPatch.context() as patch:
                if "other world" in block.marks:
                    for name in SMALL_GAMES:
                        patch.delenv(name)
                type_block(block)


def write_file(block: Block) -> None:
    """The file that a block with a title is."""
    assert block.title is not None
    Path(block.title).write_text("\n".join([*block.lines, ""]), encoding="utf-8")


def type_block(block: Block) -> None:
    """Types the commands of a block; each must end well."""
    size, _, smaller = block.marks.get("smaller", "").partition(",")[0].partition(" as ")
    for words in commands(block):
        if size:
            words = [word.replace(size, smaller) for word in words]
        if words[0] == "agentcli":
            dry = ["--dry-run"] if "dry" in block.marks else []
            ends_well([*words[1:], *dry], block.place)
        else:
            subprocess.run(words, check=True)


@pytest.mark.slow
@pytest.mark.parametrize("hint", HINTS, ids=[hint.text for hint in HINTS])
def test_a_hint_works_as_typed(hint: Hint, quickstart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "ezpoints" in hint.text:
        for name in SMALL_GAMES:
            monkeypatch.delenv(name)
    for line in next((lines for start, lines in FIRST.items() if hint.text.startswith(start)), []):
        ends_well(line.split(), hint.place)
    for words in hint.commands:
        # A hint says how to make what is not there.
        if "-o" in words:
            shutil.rmtree(words[words.index("-o") + 1], ignore_errors=True)
        ends_well(words, hint.place)


def ends_well(words: list[str], place: str) -> None:
    """Types one command line; fails with its message where it does not end well."""
    with pytest.MonkeyPatch.context() as patch:
        # A study refuses settings that its file does not show.
        for name in [name for name in os.environ if words[0] == "study" and name.startswith(PREFIX)]:
            if name not in NOT_SETTINGS:
                patch.delenv(name)
        answer = agentcli(*words)
    assert answer.code == 0, f"{place}: agentcli {' '.join(words)}: {answer.stderr}"
