"""The package without any extra: what it lists, and what it says to whoever has neither a model nor a world."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from agentcli.environments.registry import WORLDS

ROOT = Path(__file__).parents[2]
EXTRAS = (
    "alfworld",
    "textworld",
    "fast_downward",
    "scienceworld",
    "py4j",
    "bm25s",
    "Stemmer",
    "rapidfuzz",
    "ijson",
    "pint",
)
PLAIN = f"""
import sys
from importlib import metadata

for name in {EXTRAS}:
    sys.modules[name] = None

def version(name, known=metadata.version):
    if name in {EXTRAS}:
        raise metadata.PackageNotFoundError(name)
    return known(name)

metadata.version = version
from agentcli.cli.app import main
main()
"""
"""agentcli where the packages of the worlds can be neither imported nor found."""


def plain(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "AGENTCLI_CACHE": str(folder / "cache")}
    command = [sys.executable, "-c", PLAIN, *words]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)


def test_the_worlds_are_listed_and_what_cannot_be_counted_says_why(tmp_path: Path) -> None:
    done = plain(tmp_path, "env", "list", "--json")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["world"] for row in rows} == set(WORLDS)
    assert {row["world"] for row in rows if row["tasks"] is None} == {"alfworld"}
    assert {row["extra"] for row in rows if row["world"] in ("alfworld", "ezpoints")} == {"alfworld", None}
    assert done.stderr.count("pip install 'agentcli[alfworld]'") == 1


@pytest.mark.parametrize(
    ("world", "named", "missing"),
    [("alfworld", "quickstart-ezpoints", True), ("sokoban", "quickstart-sokoban", False)],
)
def test_without_a_model_the_hint_can_be_typed_at_once(tmp_path: Path, world: str, named: str, missing: bool) -> None:
    done = plain(tmp_path, "rollout", "--env", world)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.endswith(f"agentcli demos --preset {named} && agentcli sft")
    assert ("pip install 'agentcli[alfworld]'" in line) == missing
