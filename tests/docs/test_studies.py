"""docs/studies.md has a row for every table and figure of the papers, and every shipped study plans at each of its sizes."""

import re
from functools import cache
from pathlib import Path

import pytest
from agentcli.records.study import DROP, PASSES, TRAINING_TOKENS, Study
from agentcli.stages.study import list_studies, plan, read_study
from agentcli.stages.yaml_files import read_yaml
from typed_pages import ROOT

PAGE = ROOT / "docs/studies.md"
NUMBERS = {"SPARK": (16, 13), "Rare-tool": (2, 5), "RewardFlow": (11, 22), "CARL": (7, 6), "DPEPO": (8, 21)}
"""Of the tables and the figures of each paper, the last."""
FILES = {path.stem: path for path in list_studies()}
BOTH = {"laptop", "paper"}


@cache
def rows() -> dict[str, dict[str, str]]:
    """Paper -> table or figure -> where it is played, or why it is not."""
    found: dict[str, dict[str, str]] = {}
    for part in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        paper = part.splitlines()[0]
        cells = [line.strip("| ").split(" | ") for line in part.splitlines() if re.match(r"\| (Table|Figure) ", line)]
        if cells:
            assert all(len(cell) == 3 for cell in cells)
            assert len({cell[0] for cell in cells}) == len(cells)
            found[paper] = {number: where for number, _, where in cells}
    return found


def named(text: str) -> set[str]:
    """The studies in a text."""
    kinds = "|".join(short(paper) for paper in NUMBERS)
    return set(re.findall(rf"`((?:{kinds})-(?:table|figure)-[\w-]+)`", text))


def short(paper: str) -> str:
    return paper.lower()


def sizes(name: str) -> list[str]:
    return list(read_yaml(FILES[name]).get("sizes", {}))


def study(name: str, size: str) -> Study:
    return read_study(FILES[name], size)


OF_PAPERS = sorted(name for name in FILES if name.startswith(tuple(f"{short(paper)}-" for paper in NUMBERS)))
PLAYED = [(name, size) for name in OF_PAPERS for size in sizes(name)]


def test_every_table_and_figure_has_one_row() -> None:
    assert list(rows()) == list(NUMBERS)
    for paper, (tables, figures) in NUMBERS.items():
        wanted = [f"Table {number}" for number in range(1, tables + 1)]
        wanted += [f"Figure {number}" for number in range(1, figures + 1)]
        assert list(rows()[paper]) == wanted


def test_a_row_names_a_study_or_gives_a_reason() -> None:
    for paper in rows().values():
        for where in paper.values():
            assert named(where) or re.fullmatch(r"[a-z][^`]+(`[^`]+`[^`]*)*", where)


def test_the_page_names_the_studies_there_are() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert {name for name in FILES if f"`{name}`" in text} == set(FILES)
    assert named(text) == set(OF_PAPERS)


@pytest.mark.parametrize("name", OF_PAPERS)
def test_a_study_is_named_in_the_row_of_its_table(name: str) -> None:
    paper, kind, number = re.fullmatch(r"(.+?)-(table|figure)-(\d+)(?:-\w+)?", name).groups()
    (whole,) = (one for one in NUMBERS if short(one) == paper)
    assert name in named(rows()[whole][f"{kind.title()} {number}"])


@pytest.mark.parametrize("name", OF_PAPERS)
def test_a_study_has_both_sizes(name: str) -> None:
    assert sizes(name)[0] == "laptop"
    assert set(sizes(name)) >= BOTH
    assert all(study(name, size).gpu_hours for size in sizes(name) if size != "laptop")


@pytest.mark.parametrize(("name", "size"), PLAYED)
def test_it_plans(name: str, size: str, tmp_path: Path) -> None:
    made = plan(study(name, size), tmp_path / "out")
    assert {command.stage for chain in made.chains for command in chain.commands} >= {"run"}
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "size"), PLAYED)
def test_its_figures_are_of_a_table_with_a_row(name: str, size: str) -> None:
    found = study(name, size)
    assert found.regime
    for result in found.results:
        assert named(rows()[result.paper][numbered(result.table)[-1]]) >= {name}
        # A model that is taken as it is gets no evaluation.
        played = {*found.arms} | {start for start in found.starts if found.starts[start].demonstrations}
        assert set(result.figures) <= played
        assert result.measure in (*found.measures, *PASSES, DROP, TRAINING_TOKENS)


def numbered(label: str) -> list[str]:
    """The tables and figures in a label: "Tables 1 and 3 (...)" -> Table 1, Table 3."""
    kind, numbers = re.match(r"(Table|Figure)s? (\d+(?: and \d+)*)", label).groups()
    return [f"{kind} {number}" for number in numbers.split(" and ")]
