"""The site is built without a warning, a broken link or anything from outside; files for other programs fit their schemas."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from agentcli.version import __version__
from reference import reference_pages
from typed_pages import ROOT

SCHEMAS = {
    "CITATION.cff": "citation-file-format",
    ".github/workflows/ci.yml": "github-workflows",
    ".github/workflows/newest.yml": "github-workflows",
    ".github/ISSUE_TEMPLATE/bug.yml": "github-issue-forms",
    ".github/ISSUE_TEMPLATE/idea.yml": "github-issue-forms",
    ".github/ISSUE_TEMPLATE/config.yml": "github-issue-config",
}


class Fetched(HTMLParser):
    """What a browser fetches to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Links are only followed by a reader; the rest is fetched."""
        if tag != "a":
            self.places += [value or "" for name, value in attributes if name in ("src", "href")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", ROOT / "mkdocs.yml", "-d", folder]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder


@pytest.mark.slow
def test_no_page_needs_the_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        parser = Fetched()
        parser.feed(page.read_text(encoding="utf-8"))
        assert not [place for place in parser.places if "//" in place], page


@pytest.mark.slow
def test_links_to_the_repository_lead_into_the_site(site: Path) -> None:
    assert (site / "examples/own_world.py").read_text() == (ROOT / "examples/own_world.py").read_text()
    assert "papers/" in (site / "index.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_programs_find_every_page(site: Path) -> None:
    """llms.txt lists the pages of the menu, and each is there."""
    listed = re.findall(r"\]\(([^)]*)\)", (site / "llms.txt").read_text(encoding="utf-8"))
    assert {"guides/first-run/", "reference/settings/", "papers/"} <= set(listed)
    assert [place for place in listed if not (site / place / "index.html").is_file()] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEMAS)
def test_a_file_for_another_program_fits_its_schema(name: str) -> None:
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{SCHEMAS[name]}", str(ROOT / name)]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


def test_the_reference_has_every_setting_command_and_preset() -> None:
    pages = reference_pages()
    text = "".join(pages.values())
    for name in (
        "train.lora.rank",
        "policy.endpoint.base_url",
        "rollout.criterion",
        "credit.pruning",
        "train.options.beta",
    ):
        assert f"`{name}`" in text
    for path in (ROOT / "presets").glob("*.yaml"):
        assert f"## {path.stem}\n" in pages["reference/presets.md"]
    assert "## agentcli credit\n" in pages["reference/commands.md"]
    assert not re.search(r"<function|0x[0-9a-f]{6}|NODEFAULT", text)


def test_the_version_is_the_same_everywhere() -> None:
    assert f"version: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert __version__ in (ROOT / "CHANGELOG.md").read_text()
