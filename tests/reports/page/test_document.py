"""The frame of a page: nothing but its own script may run, and a large page has its data beside it."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from agentcli.reports.page import document
from agentcli.reports.page.document import SCRIPTS, BlockStore, data_folder, policy, script, write_page

HOSTILE = '"><script>alert(1)</script>'


class Tags(HTMLParser):
    """The elements of a page, with what their attributes say."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


@pytest.fixture
def store(tmp_path: Path) -> BlockStore:
    (tmp_path / "store").mkdir()
    return BlockStore(tmp_path / "store")


def tags(page: Path) -> list[tuple[str, dict[str, str | None]]]:
    parser = Tags()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser.tags


def test_a_title_cannot_become_markup(store: BlockStore, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_page(page, HOSTILE, store.add(b"{}"), store, [store.add(HOSTILE.encode())])
    scripts = [attributes for tag, attributes in tags(page) if tag == "script"]
    assert [attributes.get("type") for attributes in scripts] == ["text/plain", "text/plain", None]
    assert HOSTILE not in page.read_text(encoding="utf-8")


def test_the_policy_allows_one_script_and_one_style_sheet(store: BlockStore, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_page(page, "t", store.add(b"{}"), store, [])
    text = page.read_text(encoding="utf-8")
    elements = tags(page)
    # It comes before everything that it is to hold for.
    assert [tag for tag, _ in elements[:4]] == ["html", "head", "meta", "meta"]
    (rules,) = [attributes["content"] for _, attributes in elements if "http-equiv" in attributes]
    assert rules == policy(beside=False)
    for tag in ("script", "style"):
        (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}';" in str(rules)
    assert "default-src 'none'" in str(rules)
    assert "unsafe" not in str(rules)


def test_the_script_makes_no_markup_and_asks_nothing_of_a_network() -> None:
    code = script()
    for end in ("</script", "<!--"):
        assert end not in code.lower()
    for name in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "fetch(",
        "XMLHttpRequest",
        "http://",
        "https://",
    ):
        assert name not in code.replace("http://www.w3.org/2000/svg", ""), name


def test_every_script_of_the_folder_is_in_the_page() -> None:
    folder = Path(document.__file__).parent
    assert {file.stem for file in folder.glob("*.js")} == set(SCRIPTS)


def test_the_page_names_no_world_and_no_method() -> None:
    from agentcli.credit.registry import METHODS
    from agentcli.environments.registry import world_names
    from agentcli.exploration.registry import REGISTRY

    words = set(re.findall(r"[a-z_-]{4,}", script().lower()))
    # A hint needs some method to name, and `chain` is a word.
    assert words & {*METHODS, *world_names(), *REGISTRY.names()} <= {"grpo"}


def test_a_large_page_has_its_data_beside_it(
    store: BlockStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.html"
    index, first, second = (store.add(text) for text in (b"{}", b"[1]", b"[2]"))
    monkeypatch.setattr(document, "LARGEST_FILE", 10)
    write_page(page, "t", index, store, [first, second, first])
    folder = data_folder(page)
    assert {file.name for file in folder.iterdir()} == {f"{first}.js", f"{second}.js"}
    assert "strict-dynamic" in page.read_text(encoding="utf-8")
    write_page(page, "t", index, store, [second])
    assert [file.name for file in folder.iterdir()] == [f"{second}.js"]
    monkeypatch.setattr(document, "LARGEST_FILE", 10**9)
    write_page(page, "t", index, store, [second])
    assert list(folder.iterdir()) == []


def test_a_page_leaves_files_that_are_not_its_own(store: BlockStore, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    folder = data_folder(page)
    folder.mkdir()
    (folder / "drawing.js").write_text("draw()", encoding="utf-8")
    (folder / "more.js").mkdir()
    write_page(page, "t", store.add(b"{}"), store, [])
    assert sorted(file.name for file in folder.iterdir()) == ["drawing.js", "more.js"]
