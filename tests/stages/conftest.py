"""Runs that several test files look at: made once, every test has a copy."""

import shutil
from pathlib import Path

import pytest
from compared_runs import make_two
from test_rollout import roll, toy


@pytest.fixture(scope="session")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight trees of spark."""
    folder = tmp_path_factory.mktemp("grown")
    roll(toy("spark", tasks=8), folder / "run")
    return folder / "run/trees.jsonl"


@pytest.fixture
def run(grown: Path, tmp_path: Path) -> Path:
    """A folder with these trees and nothing else."""
    (tmp_path / "trees.jsonl").write_bytes(grown.read_bytes())
    return tmp_path


@pytest.fixture(scope="session")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs a and b (compared_runs.py)."""
    folder = tmp_path_factory.mktemp("compared")
    make_two(folder)
    return folder


@pytest.fixture
def runs(two_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Copies of them in the folder to be in."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(two_runs, tmp_path, dirs_exist_ok=True)
    return Path("a"), Path("b")
