"""Values that are slow to compute, kept on disk under the hash of their input.

One compressed MessagePack file per entry, written under another name and renamed, so
several processes can share a folder. A file that does not decode (torn, flipped,
another version) is computed again and replaced.
"""

import errno
import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
import zstandard

from agentcli.errors import WriteError
from agentcli.records.files import write_atomic
from agentcli.records.regular import require_regular

T = TypeVar("T")
CACHE = "AGENTCLI_CACHE"
"""The environment variable that names the folder of games and translations."""


def cache_folder(environ: Mapping[str, str], world: str) -> Path:
    """The folder for the files of a world.

    It lies below $AGENTCLI_CACHE, or below the platform's cache folder.
    """
    base = environ.get(CACHE)
    if base:
        return Path(base) / world
    # An empty variable counts as unset (XDG Base Directory Specification).
    platform = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return platform / "agentcli" / world


@contextmanager
def keeping(folder: Path, variable: str) -> Iterator[None]:
    """Turns an OSError of the block into a WriteError, or into a MemoryError.

    A world that cannot keep its files fails for every task, so the rollout ends; an
    EngineError would end one trajectory. The message names `folder` and the environment
    variable that names another.
    """
    try:
        yield
    except OSError as error:
        # A WriteError is an OSError too; the reason is in what it was raised from.
        cause = error.__cause__ if isinstance(error, WriteError) else error
        if isinstance(cause, OSError) and cause.errno == errno.ENOMEM:
            raise MemoryError(f"{folder}: {cause.strerror}") from error
        reason = getattr(cause, "strerror", None) or str(cause)
        remedy = f"make room there, or name another folder: {variable}=DIR"
        raise WriteError(f"{folder}: cannot be used ({reason}); {remedy}") from error


@dataclass(frozen=True)
class Cache:
    """A folder of computed values; without a folder, nothing is kept."""

    folder: Path | None
    version: str = ""
    """The version of the cached types and of what computes them."""

    def get(self, kind: type[T], parts: tuple[str, ...], build: Callable[[], T]) -> T:
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
            # The checksum finds a flipped bit, which could decode to another value.
            compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)
            packed = compressor.compress(msgspec.msgpack.encode(value))
            with keeping(self.folder, CACHE):
                write_atomic(path, packed)
        return value

    def _path(self, folder: Path, kind: type, parts: tuple[str, ...]) -> Path:
        digest = hashlib.blake2b(self.version.encode(), digest_size=16)
        for part in parts:
            # Between parts, so that ("ab", "c") and ("a", "bc") have two names.
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
