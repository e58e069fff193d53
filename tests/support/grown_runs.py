"""Trees that several test files look at: grown once, every test has a copy. A conftest.py imports these fixtures."""

from pathlib import Path

import pytest
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
