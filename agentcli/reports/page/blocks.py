"""The data of a page in blocks: JSON, compressed, as text that HTML cannot mistake.

Blocks are kept in a temporary folder until the page is written, so that only one is in
memory at a time. A block is named by its content. Nothing depends on the time: the same
run always gives the same page.
"""

import base64
import gzip
import hashlib
from pathlib import Path

LEVEL = 6
"""Compression level; level 9 takes twice the time and saves a hundredth of the size."""
BLOCK_BYTES = 1_000_000
"""Bytes of JSON in a block, before it is compressed: what a look at it unpacks."""


class BlockStore:
    """Blocks in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, data: bytes) -> str:
        """Compresses a block and returns its name."""
        # gzip would otherwise write the time into its header.
        packed = gzip.compress(data, LEVEL, mtime=0)
        name = hashlib.sha256(packed).hexdigest()[:16]
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
