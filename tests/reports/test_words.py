"""One vocabulary: tables, messages, page and guides use the words of docs/concepts.md."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from agentcli.evaluation.record import Results
from agentcli.reports.tables import RATIOS

ROOT = Path(__file__).parents[2]
RETIRED = re.compile(
    r"\b(unreadable|unusable|repetitive|exploring|looped|rejected|broke)\b|\(refused\)|refused %", re.I
)
"""What was said besides malformed, inadmissible, repeated, explore and errored."""
FIELD = re.compile(r"\.repetitive|\"repetitive\"")
"""A field of evaluations on disk, which keeps its name."""
PRINTING = sorted(path for room in ("reports", "cli") for path in (ROOT / "agentcli" / room).rglob("*.py"))
SCRIPTS = sorted((ROOT / "agentcli/reports/page").glob("*.js"))


def texts(module: str) -> Iterator[str]:
    """The texts of a Python module that are no docstrings."""
    tree = ast.parse(module)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def test_no_retired_word_is_printed() -> None:
    said = {}
    for file in PRINTING:
        words = [text for text in texts(file.read_text(encoding="utf-8")) if text not in Results.__struct_fields__]
        said[file.name] = RETIRED.findall("\n".join(words))
    assert not {name: words for name, words in said.items() if any(words)}


def test_the_search_finds_a_retired_word() -> None:
    found = [text for text in texts('"""unreadable"""\nx = f"{y} (refused)"\nz = "looped"') if RETIRED.search(text)]
    assert set(found) == {" (refused)", "looped"}


@pytest.mark.parametrize("file", SCRIPTS, ids=lambda file: file.stem)
def test_no_retired_word_is_in_the_page(file: Path) -> None:
    assert not RETIRED.search(FIELD.sub("", file.read_text(encoding="utf-8")))


def test_columns_of_shares_are_words_of_the_concepts() -> None:
    concepts = (ROOT / "docs/concepts.md").read_text(encoding="utf-8")
    assert set(RATIOS) <= set(Results.__struct_fields__)
    for word in RATIOS.values():
        assert f"**{word}**" in concepts
