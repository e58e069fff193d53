"""The table of worlds and methods names exactly those there are, and its script reads results as pytest writes them."""

import re
from pathlib import Path

import pytest
from agentcli.credit.registry import METHODS as CREDIT
from agentcli.environments.registry import WORLDS
from agentcli.exploration.registry import METHODS as GROWTH
from agentcli.exploration.settings import VOTING
from agentcli.training.objectives import OBJECTIVES
from typed_pages import ROOT
from worlds_by_methods import TITLES, page, read_cells

CASE = """<testsuites><testsuite>
<testcase name="test_trees_grow[sea-chain]"><properties>
<property name="world" value="sea"/><property name="method" value="chain"/></properties></testcase>
<testcase name="test_trees_grow[sky-chain]"><properties>
<property name="world" value="sky"/><property name="method" value="chain"/>
<property name="refused" value="no boats"/></properties></testcase>{}
</testsuite></testsuites>"""


def tables() -> dict[str, tuple[list[str], list[str]]]:
    """The columns and the rows of each table of the page."""
    shown = {}
    for part in (ROOT / "docs/worlds.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        lines = [line for line in part.splitlines() if line.startswith("|")]
        columns = [cell.strip() for cell in lines[0].strip("|").split("|")][1:]
        shown[part.splitlines()[0]] = columns, re.findall(r"^\| `([^`]+)`", part, re.MULTILINE)
    return shown


def test_the_page_names_the_worlds_and_methods_there_are() -> None:
    """After a new one: python scripts/worlds_by_methods.py."""
    shown = tables()
    assert list(shown) == list(TITLES.values())
    assert {tuple(columns) for columns, _ in shown.values()} == {tuple(sorted(WORLDS))}
    rows = [sorted(methods) for _, methods in shown.values()]
    assert rows[:3] == [sorted({*GROWTH} - {VOTING}), sorted(CREDIT), sorted(OBJECTIVES)]
    assert VOTING in rows[3]


def test_a_refusal_is_a_dash_with_its_reason(tmp_path: Path) -> None:
    results = tmp_path / "results.xml"
    results.write_text(CASE.format(""), encoding="utf-8")
    lines = page(read_cells([results])).splitlines()
    assert "| `chain` | yes | - |" in lines
    (without,) = (line for line in lines if "`no boats`" in line)
    assert without.startswith("- `chain` in sky: ")


@pytest.mark.parametrize("problem", ["failure", "error", "skipped"])
def test_no_page_is_made_where_a_test_did_not_pass(tmp_path: Path, problem: str) -> None:
    results = tmp_path / "results.xml"
    results.write_text(CASE.format(f'<testcase name="test_x[sea]"><{problem}/></testcase>'), encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        read_cells([results])
    assert "test_x[sea]" in str(ended.value)


def test_a_later_file_replaces_what_an_earlier_one_says(tmp_path: Path) -> None:
    earlier, later = tmp_path / "earlier.xml", tmp_path / "later.xml"
    earlier.write_text(CASE.format("").replace("</properties>", "</properties><failure/>", 1), encoding="utf-8")
    later.write_text(CASE.format(""), encoding="utf-8")
    assert read_cells([earlier, later]) == read_cells([later])
