"""Values that are slow to compute, kept on disk under the hash of their input.

One compressed MessagePack file per entry, written under another name and renamed, so
several processes can share a folder. A file that does not decode (torn, flipped,
another version) is computed again and replaced.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import msgspec
import zstandard

from agentcli.environments.alfworld.keeping import CACHE, keeping
from agentcli.records.files import write_atomic
from agentcli.records.regular import require_regular

FORMAT = 1
"""Raise it with any change to the cached types or to what computes them."""
T = TypeVar("T")


@lru_cache(maxsize=1)
def _salt() -> bytes:
    textworld = version("textworld")
    planner = version("fast_downward_textworld")
    return f"{FORMAT} {textworld} {planner}".encode()


@dataclass(frozen=True)
class Cache:
    """A folder of computed values; None keeps nothing."""

    folder: Path | None

    def get(
        self,
        kind: type[T],
        parts: tuple[str, ...],
        build: Callable[[], T],
    ) -> T:
        """The value built from `parts`, read from disk where it was built before.

        Raises WriteError where it cannot be kept.
        """
        if self.folder is None:
            return build()
        path = _path(self.folder, kind, parts)
        with keeping(self.folder, CACHE):
            value = _read(path, kind)
        if value is None:
            value = build()
            compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)
            packed = compressor.compress(msgspec.msgpack.encode(value))
            with keeping(self.folder, CACHE):
                write_atomic(path, packed)
        return value


def _read(path: Path, kind: type[T]) -> T | None:
    require_regular(path)
    try:
        packed = zstandard.ZstdDecompressor().decompress(path.read_bytes())
        return msgspec.msgpack.decode(packed, type=kind)
    except (FileNotFoundError, zstandard.ZstdError, msgspec.MsgspecError):
        return None


def _path(
    folder: Path,
    kind: type,
    parts: tuple[str, ...],
) -> Path:
    digest = hashlib.blake2b(_salt(), digest_size=16)
    for part in parts:
        digest.update(b"\0")
        digest.update(part.encode())
    name = digest.hexdigest()
    return folder / kind.__name__.lower() / name[:2] / f"{name}.msgpack.zst"
