"""What the documentation holds besides docs/: pages of the root, and a reference made from the code.

mkdocs calls these functions while it builds (`hooks` in mkdocs.yml). A link in a page is written as it works in the
repository; here it becomes the link between the pages of the site.
"""

import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation, Section
from mkdocs.structure.pages import Page
from reference import reference_pages

ROOT = Path(__file__).parents[1]
ROOT_PAGES = {
    "README.md": "index.md",
    "PAPERS.md": "papers.md",
    "AGENTS.md": "agents.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "STYLE.md": "style.md",
    "examples/README.md": "examples/index.md",
}
"""Pages outside docs/, and their places in the site."""
COPIED = (".py", ".sh", ".yaml", ".ipynb", ".toml", ".md", ".cff")
"""Files that a page may link to; each is copied into the site."""
LINK = re.compile(r"(\]\()([^)#\s]+)")


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages of the root and the reference."""
    for source, place in ROOT_PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, place, content=text))
    for place, text in reference_pages().items():
        files.append(File.generated(config, place, content=text))
    return files


def on_nav(nav: Navigation, config: Any, files: Files) -> Navigation:
    """Adds llms.txt, the list of all pages for programs that read documentation (llmstxt.org)."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    for item in nav.items:
        if isinstance(item, Section):
            lines += ["", f"## {item.title}", ""]
        pages = item.children if isinstance(item, Section) else [item]
        lines += [
            f"- [{page.title}]({page.url or './'})"
            for page in pages
            if isinstance(page, Page)
        ]
    files.append(File.generated(config, "llms.txt", content="\n".join(lines) + "\n"))
    return nav


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turns the links of the repository into those of the site."""
    place = page.file.src_uri
    source = source_of(place)

    def between_pages(link: re.Match[str]) -> str:
        target = link[2]
        if ":" in target:
            return link[0]
        path = os.path.normpath(PurePosixPath(source).parent / target)
        there = place_of(path)
        if files.get_file_from_path(there) is None and path.endswith(COPIED):
            copy(path, config, files)
        return link[1] + os.path.relpath(there, PurePosixPath(place).parent)

    return LINK.sub(between_pages, markdown)


def source_of(place: str) -> str:
    """The path in the repository of a page of the site."""
    sources = {there: path for path, there in ROOT_PAGES.items()}
    return sources.get(place, f"docs/{place}")


def place_of(path: str) -> str:
    """The place in the site of a file of the repository."""
    return ROOT_PAGES.get(path, path.removeprefix("docs/"))


def copy(path: str, config: Any, files: Files) -> None:
    """Puts a file of the repository beside the pages; one that does not exist is left for mkdocs to report."""
    if (ROOT / path).is_file():
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
