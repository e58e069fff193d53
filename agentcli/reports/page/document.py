"""The page as HTML: one file that asks nothing of a network, or one with its data beside it.

It includes the scripts and the style sheet of this folder unchanged. The content
security policy in its head allows only these, by their hashes; text from a world or a
model can never become a script or markup.
"""

import base64
import hashlib
from collections.abc import Iterator, Sequence
from html import escape
from importlib import resources
from pathlib import Path

from agentcli.records.files import replacing, write_atomic
from agentcli.records.regular import open_regular
from agentcli.reports.page.blocks import BlockStore

SCRIPTS = (
    "dom",
    "format",
    "data",
    "route",
    "charts",
    "overview",
    "list",
    "compare",
    "lanes",
    "chat",
    "account",
    "states",
    "tree",
    "app",
)
"""The scripts in the order of the page: each can use the scripts before it."""
LARGEST_FILE = 64_000_000
"""Bytes of data above which it lies in files beside the page, and is read when asked for."""

MARK = '<meta name="generator" content="agentcli">'
MARKED_BYTES = 4096
"""The first bytes of a page, in which its mark stands."""


def is_page(file: Path) -> bool:
    """Whether the file is a page that was written here, and can be again from its runs."""
    if not file.is_file():
        return False
    with open_regular(file) as opened:
        return MARK.encode() in opened.read(MARKED_BYTES)


def data_folder(page: Path) -> Path:
    """The folder with the data of a large page."""
    return page.with_name(f"{page.stem}-data")


def write_page(
    page: Path, title: str, index: str, store: BlockStore, blocks: Sequence[str]
) -> None:
    """Writes the page, atomically, and beside it its data where that is large.

    `index` and `blocks` are names in the `store`. Raises WriteError.
    """
    # Blocks of equal content have one name, and one id in the page.
    names = list(dict.fromkeys(blocks))
    beside = sum(map(store.size, names)) > LARGEST_FILE
    folder = data_folder(page)
    if beside:
        _write_beside(folder, store, names)
    with replacing(page) as file:
        for text in _head(title, folder.name if beside else None):
            file.write(text.encode())
        file.write(_data("index", store.path(index)))
        for name in () if beside else names:
            file.write(_data(f"block-{name}", store.path(name)))
        file.write(f"<script>{script()}</script>\n</body>\n</html>\n".encode())
    # Blocks of an earlier page at this place; until now it could be looked at.
    _remove_others(folder, {f"{name}.js" for name in names} if beside else set())


def script() -> str:
    """All scripts as one, so that one hash allows them."""
    return '"use strict";\n' + "\n".join(_resource(f"{name}.js") for name in SCRIPTS)


def policy(beside: bool) -> str:
    """The content security policy of a page; `beside`: it reads files beside it."""
    scripts = [_hash(script())]
    if beside:
        # The hashed script may add the files that hold the data, and nothing else can.
        scripts.append("'strict-dynamic'")
    rules = {
        "default-src": "'none'",
        "script-src": " ".join(scripts),
        "style-src": _hash(_resource("page.css")),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "blocks" if beside else "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _head(title: str, data: str | None) -> Iterator[str]:
    folder = "" if data is None else f' data-blocks="{escape(data)}"'
    rules = escape(policy(data is not None))
    yield f'<!doctype html>\n<html lang="en"{folder}>\n<head>\n<meta charset="utf-8">\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{rules}">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    # Without an icon of its own, a browser asks the server for favicon.ico.
    yield f'{MARK}\n<link rel="icon" href="data:,">\n'
    yield f"<title>{escape(title)} · agentcli</title>\n"
    yield f"<style>{_resource('page.css')}</style>\n</head>\n<body>\n"
    yield "<header></header>\n<main><p>Opening…</p></main>\n"
    yield "<noscript>This page draws itself with the script that it holds.</noscript>\n"


def _data(name: str, file: Path) -> bytes:
    return b'<script type="text/plain" id="%b">%b</script>\n' % (
        name.encode(),
        file.read_bytes(),
    )


def _write_beside(folder: Path, store: BlockStore, names: Sequence[str]) -> None:
    """Writes the blocks that are not there yet."""
    for name in names:
        file = folder / f"{name}.js"
        # A block is named by its content, so one that is there already is right.
        if not file.exists():
            text = store.path(name).read_bytes()
            write_atomic(file, b'agentcliBlock("%b", "%b");\n' % (name.encode(), text))


def _remove_others(folder: Path, kept: set[str]) -> None:
    for file in folder.glob("*.js"):
        if file.name not in kept:
            file.unlink()


def _resource(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
