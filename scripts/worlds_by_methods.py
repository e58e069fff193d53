"""Writes docs/worlds.md: which methods run in which worlds, as tests/test_worlds_by_methods.py found it.

usage: python scripts/worlds_by_methods.py [RESULTS.xml]...

RESULTS.xml is what `pytest -o junit_family=xunit1 --junitxml` wrote, of all tests or of
one world; a later file replaces what an earlier one says of a test. Without any the
tests are run, which takes minutes. The page is written only where every test passed.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests" / "test_worlds_by_methods.py"
PAGE = ROOT / "docs" / "worlds.md"
TITLES = {
    "test_trees_grow": "Growing trees",
    "test_credit_is_assigned": "Giving credit",
    "test_a_policy_is_trained": "Training",
    "test_the_rest_of_the_chain": "The rest of the chain",
}
"""The heading of each test's table."""
INTRO = """# Worlds and methods

Every world runs every method, except `rare-tool`, which needs a world with tools. A cell is a test that runs the commands at
the smallest size: demonstrations, a tiny policy from random weights, two trees per method, credit, an update, evaluations. It
says that they work together, not that anything is learned; [what was measured](results.md) says that.

`yes`: the test passes. `-`: the command refuses, for the reason below the table. Training `dpo` counts the first trajectory of
each tree as a success, since so small a policy has none.

`python scripts/worlds_by_methods.py` writes this page from
[the tests](../tests/test_worlds_by_methods.py).
"""
"""What stands above the tables."""


class Cell(NamedTuple):
    """One test that passed."""

    test: str
    world: str
    method: str
    refusal: str | None
    """Why the world does not take the method; None where it runs."""


def run_tests(results: Path) -> None:
    """Runs the tests, whose results are written to a file."""
    words = [sys.executable, "-m", "pytest", "-q", "-m", "slow", str(TESTS)]
    # Only the older form of the file holds what a test notes.
    written = ["-o", "junit_family=xunit1", f"--junitxml={results}"]
    subprocess.run([*words, *written], cwd=ROOT, check=False)


def read_cells(results: Iterable[Path]) -> list[Cell]:
    """The tests that files of results hold. Ends the script where one did not pass."""
    cases = {}
    for file in results:
        for case in ElementTree.parse(file).iter("testcase"):
            cases[case.get("name", "")] = case
    cells = []
    for name, case in cases.items():
        for problem in ("failure", "error", "skipped"):
            if case.find(problem) is not None:
                sys.exit(f"{name}: {problem}; the page needs every test to pass")
        noted = {}
        for note in case.iter("property"):
            noted[note.get("name")] = note.get("value", "")
        test = name.partition("[")[0]
        cell = Cell(test, noted["world"], noted["method"], noted.get("refused"))
        cells.append(cell)
    return cells


def page(cells: list[Cell]) -> str:
    """The text of the page."""
    parts = [INTRO]
    for test, title in TITLES.items():
        of_test = [cell for cell in cells if cell.test == test]
        parts.append(f"## {title}\n\n{table(of_test)}")
    return "\n".join(parts)


def table(cells: list[Cell]) -> str:
    """A row a method, a column a world, and the refusals."""
    by_place = {(cell.method, cell.world): cell for cell in cells}
    worlds = sorted({cell.world for cell in cells})
    methods = list(dict.fromkeys(cell.method for cell in cells))
    lines = [row("", worlds), row("---", ["---"] * len(worlds))]
    for method in methods:
        refusals = [by_place[method, world].refusal for world in worlds]
        marks = ["-" if refusal else "yes" for refusal in refusals]
        lines.append(row(f"`{method}`", marks))
    lines.append("")
    for cell in cells:
        if cell.refusal:
            lines.append(f"- `{cell.method}` in {cell.world}: `{cell.refusal}`")
    return "\n".join(lines).rstrip() + "\n"


def row(first: str, others: list[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join([first, *others])} |"


def main(arguments: list[str]) -> None:
    """Writes the page."""
    with tempfile.TemporaryDirectory() as folder:
        results = [Path(argument) for argument in arguments]
        if not results:
            results = [Path(folder) / "results.xml"]
            run_tests(results[0])
        PAGE.write_text(page(read_cells(results)), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main(sys.argv[1:])
