"""AGENTS.md says nothing that CONTRIBUTING.md says otherwise: its commands, files and rules are the same, and they are there."""

import re

import pytest
from command_line import all_commands
from typed_pages import ROOT, blocks, commands

AGENTS = ROOT / "AGENTS.md"
SHORT, WHOLE = (
    dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n)+)", file.read_text(encoding="utf-8"), re.MULTILINE))
    for file in (AGENTS, ROOT / "CONTRIBUTING.md")
)
WHOLE["Tests"] = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("\n## ")[0]
SAME = {
    "Run the tests": ["Tests"],
    "Add a method": ["Adding a credit method", "Adding an exploration method", "Adding a knob"],
    "Add a world": ["Adding a world"],
}
"""Sections of AGENTS.md, and those of CONTRIBUTING.md that say the same at length."""
PLACE = re.compile(r"(?<![\w/.])(?:agentcli|tests|docs|scripts|\.ci)/[\w./-]*")


def whole(section: str) -> str:
    return "\n".join(WHOLE[title] for title in SAME[section])


def typed(text: str) -> set[str]:
    """The commands that a text names, by the words that name them; ours without their arguments."""
    ours = {" ".join(name) for name in all_commands()}
    found = re.findall(r"`agentcli ([^`]+)`|^agentcli (.+)$", text, re.MULTILINE)
    words = [first or second for first, second in found]
    others = re.findall(r"(?:scripts/\w+\.sh|\.ci/\w+|just --list)", text)
    return {name for word in words for name in ours if word.startswith(name)} | set(others)


@pytest.mark.parametrize("section", SAME)
def test_a_section_types_what_the_whole_types(section: str) -> None:
    assert typed(SHORT[section]) == typed(whole(section))


@pytest.mark.parametrize("section", SAME)
def test_a_section_names_files_that_the_whole_names_and_that_are_there(section: str) -> None:
    named = set(PLACE.findall(SHORT[section]))
    assert named - {"agentcli/", "tests/"} <= set(PLACE.findall(whole(section)))
    for place in named:
        assert "NAME" in place or (ROOT / place.rstrip(".")).exists(), place


def test_the_rules_are_the_house_s() -> None:
    """Each begins with the words of a rule of the whole, or names the test that is there to hold it."""
    rules = re.sub(r"[*`]|\s+", " ", WHOLE["House rules"])
    for rule in re.findall(r"^- (.+)$", SHORT["Keep to it"], re.MULTILINE):
        words = re.sub(r"[*`]|\s+", " ", rule)
        start = re.split(r"[.;,]", words)[0]
        files = PLACE.findall(rule)
        assert start in rules or (files and all((ROOT / file).exists() for file in files)), rule


def test_what_reads_a_run_is_typed() -> None:
    """Its page is one of those that tests/docs/test_typed.py types."""
    lines = [words for block in blocks(AGENTS) if "not typed" not in block.marks for words in commands(block)]
    assert ["agentcli", "validate", "runs/x"] in lines


def test_it_is_short() -> None:
    assert len(AGENTS.read_text(encoding="utf-8").splitlines()) < 80
