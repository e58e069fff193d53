"""PAPERS.md and its pages name functions and tests that there are."""

import importlib
import re
from functools import cache, reduce
from pathlib import Path
from types import ModuleType

import agentcli
import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "PAPERS.md", *sorted(ROOT.glob("docs/papers/*.md"))]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
NAMES = sorted(set(re.findall(r"`([^`\s]+)`", TEXT)))
PACKAGES = sorted(path.parent.name for path in Path(agentcli.__file__).parent.glob("*/__init__.py"))
OTHERS = {"evaluation.beyond", "test_time_branch"}
"""A setting and a module, which only look like the names below."""
FUNCTIONS = sorted(name for name in set(NAMES) - OTHERS if re.fullmatch(rf"(?:{'|'.join(PACKAGES)})(?:\.\w+)+", name))
TESTS = sorted(set(re.findall(r"\btest_\w+(?:\.py)?\b", TEXT)) - OTHERS)


@cache
def texts() -> dict[str, str]:
    """Name of a file -> its text."""
    return {path.name: path.read_text(encoding="utf-8") for path in ROOT.joinpath("tests").rglob("test_*.py")}


def test_there_are_such_names() -> None:
    assert len(FUNCTIONS) > 80
    assert len(TESTS) > 150


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_where_it_is_said_to_be(name: str) -> None:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            module: ModuleType = importlib.import_module(".".join(["agentcli", *parts[:length]]))
        except ModuleNotFoundError:
            continue
        reduce(getattr, parts[length:], module)
        return
    pytest.fail(f"no module of {name}")


@pytest.mark.parametrize("name", TESTS)
def test_a_test_is_there(name: str) -> None:
    if name.endswith(".py"):
        assert name in texts()
    else:
        assert any(f"def {name}(" in text or f"{name}.py" in texts() for text in texts().values())


def test_papers_are_cited_by_name() -> None:
    """Their numbers mean nothing to a reader."""
    # Not 0.001, 1,000 or runs/eval-001, and no letter drawn in dots.
    number = re.compile(r"(?<![\w.,/-])(?<!\d )00[0-4](?![\w-]| \d|,\d)")
    files = [path for folder in ("agentcli", "presets") for path in ROOT.joinpath(folder).rglob("*.*")]
    files += list(ROOT.joinpath("docs").rglob("*.md"))
    cited = {path.name for path in files if path.suffix != ".pyc" and number.search(path.read_text(encoding="utf-8"))}
    assert not cited
