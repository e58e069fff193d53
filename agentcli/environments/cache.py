"""Values that are slow to compute, kept on disk under the hash of their input.

One compressed MessagePack file per entry, written under another name and renamed, so
several processes can share a folder. A file that does not decode (torn, flipped,
another version) is computed again and replaced.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
import zstandard

from agentcli.environments.keeping import CACHE, keeping
from agentcli.records.files import write_atomic
from agentcli.records.regular import require_regular

T = TypeVar("T")


def cache_folder(environ: Mapping[str, str], world: str) -> Path:
    """The folder for the files of a world.

    It lies below $AGENTCLI_CACHE, or below the platform's cache folder.
    """
    base = environ.get(CACHE)
    if base:
        return Path(base) / world
    platform = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return platform / "agentcli" / world


@dataclass(frozen=True)
class Cache:
    """A folder of computed values; without a folder, nothing is kept."""

    folder: Path | None
    version: str = ""
    """The version of the cached types and of what computes them."""

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
        path = self._path(self.folder, kind, parts)
        with keeping(self.folder, CACHE):
            value = _read(path, kind)
        if value is None:
            value = build()
            compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)
            packed = compressor.compress(msgspec.msgpack.encode(value))
            with keeping(self.folder, CACHE):
                write_atomic(path, packed)
        return value

    def _path(self, folder: Path, kind: type, parts: tuple[str, ...]) -> Path:
        digest = hashlib.blake2b(self.version.encode(), digest_size=16)
        for part in parts:
            digest.update(b"\0")
            digest.update(part.encode())
        name = digest.hexdigest()
        return folder / kind.__name__.lower() / name[:2] / f"{name}.msgpack.zst"


def _read(path: Path, kind: type[T]) -> T | None:
    require_regular(path)
    try:
        packed = zstandard.ZstdDecompressor().decompress(path.read_bytes())
        return msgspec.msgpack.decode(packed, type=kind)
    except (FileNotFoundError, zstandard.ZstdError, msgspec.MsgspecError):
        return None
