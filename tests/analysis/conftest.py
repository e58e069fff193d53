"""Runs that several test files look at: made once, every test has a copy."""

import shutil
from pathlib import Path

import pytest
from compared_runs import make_two
from grown_runs import grown, run

__all__ = ["grown", "run", "runs", "two_runs"]


@pytest.fixture(scope="session")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs a and b (compared_runs.py)."""
    folder = tmp_path_factory.mktemp("compared")
    make_two(folder)
    return folder


@pytest.fixture
def runs(two_runs: Path, empty_folder: Path) -> tuple[Path, Path]:
    """Copies of them in the folder to be in."""
    shutil.copytree(two_runs, empty_folder, dirs_exist_ok=True)
    return Path("a"), Path("b")
