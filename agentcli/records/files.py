"""How records lie on disk: JSON Lines, UTF-8, one complete record a line, `.zst` by suffix.

Readers stream: no function here holds a whole record file in memory. A torn last line (the process was killed while writing
it) is a record still owed and is dropped; anything else that does not decode is refused with file, line and field.
"""

import hashlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, TypeVar, cast

import msgspec

from agentcli.errors import DataError
from agentcli.records.types import SCHEMA_VERSION

T = TypeVar("T")


def derive_seed(*parts: int | str) -> int:
    """A 64-bit seed from integers and strings; the only way seeds are derived from one another."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def sha256_file(path: Path) -> str:
    """Hex sha256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomic(path: Path, data: bytes) -> None:
    """Write a whole file or none of it: a temporary file beside it, synced, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def write_json(path: Path, value: Any) -> None:
    """Write one record, or any JSON value, as indented JSON, atomically."""
    write_atomic(path, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


def read_json(path: Path, kind: type[T]) -> T:
    """Read one record. Raises DataError naming file and field."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    return _decode(msgspec.json.Decoder(kind), data, str(path))


def read_records(path: Path, kind: type[T]) -> Iterator[T]:
    """Stream the records of a JSON Lines file.

    Raises DataError "file:line: what is wrong - at `$.field`" for a line that is no such record, unless it is the last
    line and has no newline: that one is a record still owed.
    """
    decoder = msgspec.json.Decoder(kind)
    with _open_read(path) as file:
        for number, line in enumerate(_lines(path, file), 1):
            if not line.endswith(b"\n"):
                try:
                    record = decoder.decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    return
                yield record
                return
            if line.strip():
                yield _decode(decoder, line, f"{path}:{number}")


def _decode(decoder: "msgspec.json.Decoder[T]", data: bytes, place: str) -> T:
    try:
        record = decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        _refuse_other_version(_schema_version(data), place)
        raise DataError(f"{place}: {error}") from error
    _refuse_other_version(getattr(record, "schema_version", None), place)
    return record


def _refuse_other_version(version: Any, place: str) -> None:
    if version is not None and version != SCHEMA_VERSION:
        raise DataError(
            f"{place}: schema_version is {version}, this agentcli reads {SCHEMA_VERSION}; write the file again with it"
        )


def _schema_version(data: bytes) -> Any:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return value.get("schema_version") if isinstance(value, dict) else None


def _open_read(path: Path) -> IO[bytes]:
    try:
        if path.suffix == ".zst":
            import zstandard

            return io.BufferedReader(cast(io.RawIOBase, zstandard.open(path, "rb")))
        return open(path, "rb")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error


def _lines(path: Path, file: IO[bytes]) -> Iterator[bytes]:
    if path.suffix != ".zst":
        yield from file
        return
    import zstandard

    try:
        yield from file
    except zstandard.ZstdError as error:
        raise DataError(f"{path}: damaged compressed data ({error})") from error


class RecordWriter:
    """Appends records, one complete line at a time, flushed after each.

    With `append`, a torn last line left by a killed run is cut off first. `.zst` files cannot be appended to in place
    (DataError): a resumed compressed run starts a new frame, which readers accept.
    """

    def __init__(self, path: Path, append: bool = False) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._encoder = msgspec.json.Encoder()
        self._frames = None
        if path.suffix == ".zst":
            import zstandard

            self._frames = zstandard.ZstdCompressor()
        elif append and path.exists():
            _cut_torn_line(path)
        self._file = open(path, "ab" if append else "wb")  # noqa: SIM115 - closed by close()

    def write(self, record: msgspec.Struct) -> None:
        """Append one record."""
        line = self._encoder.encode(record) + b"\n"
        self._file.write(self._frames.compress(line) if self._frames else line)
        self._file.flush()

    def close(self) -> None:
        """Sync and close."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def __enter__(self) -> "RecordWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _cut_torn_line(path: Path) -> None:
    with open(path, "rb+") as file:
        size = file.seek(0, os.SEEK_END)
        end = size
        while end > 0:
            start = max(0, end - 65536)
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                file.truncate(start + found + 1)
                return
            end = start
        file.truncate(0)
