"""Record files: JSON Lines in UTF-8, one complete record a line.

Data sets from elsewhere may be compressed, as `.zst` or `.gz`.

Readers stream: nothing here holds a whole record file in memory. A torn last line is
dropped: the process was killed while it wrote, and the record still has to be produced.
Anything else that cannot be decoded is refused, naming file, line and field. Writers
leave complete lines and complete files, or raise WriteError.
"""

import errno
import fcntl
import hashlib
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, BinaryIO, TypeVar, cast

import msgspec

from agentcli.errors import DataError, WriteError
from agentcli.records.checksums import Check, checked_pieces
from agentcli.records.faults import UNREADABLE, fault_in, is_torn, shown
from agentcli.records.regular import (
    open_regular,
    read_regular,
    require_regular,
    unreadable,
)
from agentcli.records.types import SCHEMA_VERSION

T = TypeVar("T")


def derive_seed(*parts: int | str) -> int:
    """A 64-bit seed derived from integers and strings.

    Every seed that depends on another one is derived with this function.
    """
    # With the types, so that 1 and "1" give different seeds.
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex.

    Raises DataError for a file that is not what its stage wrote.
    """
    digest = hashlib.sha256()
    with open_regular(path) as file:
        for content in checked_pieces(path, file):
            digest.update(content)
    return digest.hexdigest()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns an OSError raised in the block into a WriteError.

    The error names `path`, the reason and what to do.
    """
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        remedy = "write elsewhere with -o DIR"
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            remedy = "free some and go on with --resume"
        raise WriteError(
            f"{path}: cannot be written ({error.strerror}); {remedy}"
        ) from error


def part_of(path: Path) -> Path:
    """The temporary file for the content of `path`, which is then renamed to `path`.

    The name is fixed, so that the next writer of `path` also replaces what a killed
    writer left there. The lock of the run, or that of the file, allows only one writer
    at a time.
    """
    return path.with_name(f".{path.name}.part")


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Opens a file whose content replaces that of `path` when the block ends.

    If the block raises, `path` is unchanged. A second writer waits for the first.
    Raises WriteError, also if `path` exists and is not a regular file.
    """
    part = part_of(path)
    with writing(path):
        require_regular(path)
        with _locked(part) as file:
            try:
                yield file
                file.flush()
                # Before the rename: after a crash the new name must not stand for an
                # empty file.
                os.fsync(file.fileno())
                os.replace(part, path)
            except BaseException:
                part.unlink(missing_ok=True)
                raise


def _locked(part: Path) -> IO[bytes]:
    """Opens an empty file that no other process can write until it is closed.

    Creates the folder.
    """
    while True:
        require_regular(part)
        part.parent.mkdir(parents=True, exist_ok=True)
        file = open(part, "ab")  # noqa: SIM115 - closed by the caller
        fcntl.flock(file, fcntl.LOCK_EX)
        # While we waited, the previous writer may have renamed the file that we opened.
        with suppress(FileNotFoundError):
            if part.stat().st_ino == os.fstat(file.fileno()).st_ino:
                file.truncate(0)
                return file
        file.close()


def write_atomic(path: Path, data: bytes) -> None:
    """Writes the complete file or nothing. Raises WriteError."""
    with replacing(path) as file:
        file.write(data)


def write_json(path: Path, value: Any) -> None:
    """Writes one record, or any JSON value, as indented JSON, atomically."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    write_atomic(path, text + b"\n")


def read_json(path: Path, kind: type[T]) -> T:
    """Reads one record.

    Raises DataError naming the file and the field, or the line that has changed.
    """
    data = read_regular(path)
    # Decoded first: the path of a field says more than a line that has changed.
    record = _decode(msgspec.json.Decoder(kind), data, str(path))
    for _ in checked_pieces(path, io.BytesIO(data)):
        pass
    return record


def read_records(path: Path, kind: type[T]) -> Iterator[T]:
    """Streams the records of a JSON Lines file; raises as `read_numbered` does."""
    return (record for _, record in read_numbered(path, kind))


def read_numbered(
    path: Path,
    kind: type[T],
    whole: bool = False,
    file: BinaryIO | None = None,
    only: int | None = None,
) -> Iterator[tuple[int, T]]:
    """Streams pairs of line number and record, from `file` if `path` is open already.

    Lines are counted from 1 as in an editor, blank ones included. A last line that has
    no newline and is not JSON counts as not yet written, and ends the stream; with
    `whole` it is an error. Raises DataError "file:line: what is wrong - at `$.field`"
    for any other line that is not such a record, and for a line that is not what its
    stage wrote. Lines besides the one of the number `only` are not looked at.
    """
    decoder = msgspec.json.Decoder(kind)
    check = Check(path)
    for number, line in enumerate(_lines(path, file), 1):
        if only not in (None, number):
            continue
        if not whole and not line.endswith(b"\n") and is_torn(line, decoder):
            return
        if not line.isspace():
            record = _decode(decoder, line, f"{path}:{number}")
            check.piece(number, line)
            yield number, record


def read_line(path: Path, wanted: int, kind: type[T]) -> T | None:
    """The record on one line, counted from 1; the other lines are not checked.

    None if the file has no such line, or the line is torn. Raises DataError.
    """
    return next((record for _, record in read_numbered(path, kind, only=wanted)), None)


def _decode(decoder: "msgspec.json.Decoder[T]", data: bytes, place: str) -> T:
    try:
        record = decoder.decode(data)
    except UNREADABLE as error:
        # A record of another version may fail at any field, which would mislead.
        _refuse_other_version(_schema_version(data), place)
        raise DataError(f"{place}: {fault_in(error, data)}") from error
    _refuse_other_version(getattr(record, "schema_version", None), place)
    return record


def _refuse_other_version(version: Any, place: str) -> None:
    if version is not None and version != SCHEMA_VERSION:
        # As JSON, so that the text "3" is not taken for the number.
        given = shown(msgspec.json.encode(version).decode())
        raise DataError(
            f"{place}: schema_version is {given}, this agentcli reads "
            f"{SCHEMA_VERSION}; write the file again with it"
        )


class _Versioned(msgspec.Struct):
    schema_version: Any = None


def _schema_version(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data, type=_Versioned).schema_version
    except UNREADABLE:
        return None


def _lines(path: Path, opened: BinaryIO | None = None) -> Iterator[bytes]:
    with opened or open_regular(path) as file:
        try:
            if path.suffix == ".zst":
                yield from _zstd_lines(path, file)
            elif path.suffix == ".gz":
                yield from _gzip_lines(path, file)
            else:
                yield from file
        except OSError as error:
            raise unreadable(path, error) from error


def _zstd_lines(path: Path, file: BinaryIO) -> Iterator[bytes]:
    """The lines of the zstandard `file`, opened from `path`.

    Raises DataError naming the last line before the damage, also if the file is cut
    short: the library itself takes an unfinished frame for the end.
    """
    import zstandard

    raw = cast(io.RawIOBase, zstandard.open(file, "rb"))
    number = 0
    try:
        for number, line in enumerate(io.BufferedReader(raw), 1):  # noqa: B007 - named in the error
            yield line
    except zstandard.ZstdError as error:
        raise _damaged(path, number, error) from error
    # Only now: a damaged frame has been reported with its line above.
    file.seek(0)
    if _is_cut(file):
        raise DataError(
            f"{path}: ends too early, after line {number}; download it again"
        )


def _gzip_lines(path: Path, file: BinaryIO) -> Iterator[bytes]:
    """The lines of the gzip `file`, opened from `path`.

    Raises DataError naming the last line before the damage.
    """
    import gzip
    import zlib

    number = 0
    try:
        with gzip.open(file) as text:
            for number, line in enumerate(text, 1):  # noqa: B007 - named in the error
                yield line
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise _damaged(path, number, error) from error


def _damaged(path: Path, number: int, error: Exception) -> DataError:
    """The error for a file that cannot be decompressed after line `number`."""
    return DataError(
        f"{path}: damaged compressed data after line {number} ({error}); download it "
        "again"
    )


def _is_cut(file: BinaryIO) -> bool:
    """Whether the last frame of a sound file is unfinished."""
    import zstandard

    decompressor = zstandard.ZstdDecompressor()
    frame = None
    while chunk := file.read(1 << 16):
        while chunk:
            frame = frame or decompressor.decompressobj()
            frame.decompress(chunk)
            if not frame.eof:
                break
            # A file may be several frames, one after another (RFC 8878, 3.1).
            chunk, frame = frame.unused_data, None
    return frame is not None


class RecordWriter:
    """Appends records, one complete line at a time.

    When `write` returns, the line has been handed to the operating system. Creates the
    folder. With `append`, first cuts off a torn last line that a killed run left. Every
    method raises WriteError if the disk is full or the path cannot be written. The file
    then ends with the last complete record.
    """

    def __init__(self, path: Path, append: bool = False) -> None:
        self._path = path
        self._encoder = msgspec.json.Encoder()
        with writing(path):
            require_regular(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            if append and path.exists():
                _mend_last_line(path)
            mode = "ab" if append else "wb"
            # Unbuffered, so that a kill loses no record that was written.
            self._file = open(path, mode, buffering=0)  # noqa: SIM115 - by close()

    def write(self, record: msgspec.Struct) -> None:
        """Appends one record. Raises DataError for text that is not valid Unicode."""
        try:
            line = self._encoder.encode(record) + b"\n"
        except UnicodeEncodeError as error:
            raise DataError(
                f"{self._path}: a record has a text that UTF-8 cannot hold "
                f"({error.reason})"
            ) from error
        with writing(self._path):
            self._append(line)

    def _append(self, data: bytes) -> None:
        owed = memoryview(data)
        try:
            while owed:
                written = self._file.write(owed)
                owed = owed[written:]
        except OSError:
            # Remove the part of the line that was written, so that the file ends with a
            # complete record.
            with suppress(OSError):
                start = self._file.seek(len(owed) - len(data), os.SEEK_END)
                self._file.truncate(start)
            raise

    def close(self) -> None:
        """Syncs and closes the file."""
        with writing(self._path), self._file:
            os.fsync(self._file.fileno())

    def __enter__(self) -> "RecordWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Report the error of the block, not one raised by closing the file.
        with suppress(WriteError) if error else nullcontext():
            self.close()


def _mend_last_line(path: Path) -> None:
    """Makes a file end with a newline.

    Adds the newline if only that is missing. Otherwise cuts off what follows the last
    one.
    """
    with open(path, "rb+") as file:
        start = _start_of_last_line(file)
        file.seek(start)
        last_line = file.read()
        if not last_line:
            return
        if is_torn(last_line, msgspec.json.Decoder()):
            file.truncate(start)
        else:
            file.write(b"\n")


def _start_of_last_line(file: IO[bytes]) -> int:
    """The offset just after the last newline."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - 65536)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


@contextmanager
def rewriting(path: Path) -> Iterator[RecordWriter]:
    """Yields a writer whose records replace those of `path` when the block ends.

    If the block raises, the file stays unchanged. A second writer waits for the first.
    """
    part = part_of(path)
    is_new_folder = not path.parent.exists()
    with writing(path):
        lock = _locked(part)
    with lock:
        try:
            with RecordWriter(part) as writer:
                yield writer
            with writing(path):
                part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            if is_new_folder:
                # Not if another writer waits in it.
                with suppress(OSError):
                    path.parent.rmdir()
            raise
