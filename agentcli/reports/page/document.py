"""The page as HTML: one file that asks nothing of a network, or one with its data beside it.

It includes the scripts and the style sheet of this folder unchanged. The content
security policy in its head allows only these, by their hashes; text from a world or a
model can never become a script or markup.

Its data are blocks of JSON, compressed, as text that HTML cannot mistake. They are kept
in a temporary folder until the page is written, so that only one is in memory at a
time. A block is named by its content. Nothing depends on the time: the same run always
gives the same page.
"""

import base64
import gzip
import hashlib
from collections.abc import Iterator, Sequence
from html import escape
from importlib import resources
from pathlib import Path

from agentcli.records.files import replacing, write_atomic, writing
from agentcli.records.regular import open_regular

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
LEVEL = 6
"""Compression level; level 9 takes twice the time and saves a hundredth of the size."""
BLOCK_BYTES = 1_000_000
"""Bytes of JSON in a block, before it is compressed: what a look at it unpacks."""


class BlockStore:
    """Blocks in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, data: bytes) -> str:
        """Compresses a block and returns its name. Raises WriteError."""
        # gzip would otherwise write the time into its header.
        packed = gzip.compress(data, LEVEL, mtime=0)
        name = hashlib.sha256(packed).hexdigest()[:16]
        with writing(self.path(name)):
            self.path(name).write_bytes(base64.b64encode(packed))
        return name

    def path(self, name: str) -> Path:
        """The file of a block: base64 of gzip of JSON."""
        return self._folder / name

    def size(self, name: str) -> int:
        """The bytes that a block takes in the page."""
        return self.path(name).stat().st_size


class Filling:
    """Values on their way into blocks of a store, each block a list."""

    def __init__(self, store: BlockStore) -> None:
        self.names: list[str] = []
        """The blocks that are closed."""
        self._store = store
        self._values: list[bytes] = []
        self._bytes = 0

    def add(self, value: bytes) -> tuple[int, int]:
        """Adds a value of JSON; returns the number of its block, and its place there."""
        place = len(self.names), len(self._values)
        self._values.append(value)
        self._bytes += len(value)
        if self._bytes >= BLOCK_BYTES:
            self.close()
        return place

    def close(self) -> None:
        """Ends the block that is being filled, if it holds anything."""
        if self._values:
            data = b"[%b]" % b",".join(self._values)
            self.names.append(self._store.add(data))
        self._values = []
        self._bytes = 0


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
    for block in folder.glob("*.js"):
        if _is_block(block) and not (beside and block.stem in names):
            block.unlink()


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
            write_atomic(
                file, b'%b%b");\n' % (_call(name), store.path(name).read_bytes())
            )


def _call(name: str) -> bytes:
    """What the file of a block begins with."""
    return b'agentcliBlock("%b", "' % name.encode()


def _is_block(file: Path) -> bool:
    """Whether a file beside a page was written here; others are the user's own."""
    if not file.is_file():
        return False
    call = _call(file.stem)
    with open_regular(file) as opened:
        return opened.read(len(call)) == call


def _resource(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
