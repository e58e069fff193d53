"""The lines of data sets that other programs compressed, as `.zst` or `.gz`."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from agentcli.errors import DataError

CHUNK = 1 << 16


def zstd_lines(path: Path, file: BinaryIO) -> Iterator[bytes]:
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
        raise damaged(path, number, error) from error
    # Only now: a damaged frame has been reported with its line above.
    file.seek(0)
    if _is_cut(file):
        raise DataError(
            f"{path}: ends too early, after line {number}; download it again"
        )


def gzip_lines(path: Path, file: BinaryIO) -> Iterator[bytes]:
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
        raise damaged(path, number, error) from error


def damaged(path: Path, number: int, error: Exception) -> DataError:
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
    while chunk := file.read(CHUNK):
        while chunk:
            frame = frame or decompressor.decompressobj()
            frame.decompress(chunk)
            if not frame.eof:
                break
            # A file may be several frames, one after another (RFC 8878, 3.1).
            chunk, frame = frame.unused_data, None
    return frame is not None
