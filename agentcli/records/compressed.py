"""Record files with suffix .zst: one zstandard frame per record, each with a checksum.

A frame that is cut short at the end of the file is like a torn last line: the process
was killed while writing it. Any other damage is refused. A file that was compressed
elsewhere, with all lines in one frame, is read the same way.
"""

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, BinaryIO, NamedTuple, cast

import msgspec

from agentcli.errors import DataError
from agentcli.records.faults import is_torn

_CHUNK = 1 << 16


def lines(path: Path, file: BinaryIO, whole: bool = False) -> Iterator[bytes]:
    """The lines in the compressed `file`, which is that of `path`.

    Raises DataError naming the last line before the damage, and where the file is to be
    `whole`, for a last frame that is cut short.
    """
    import zstandard

    raw = cast(io.RawIOBase, zstandard.open(file, "rb"))
    number = 0
    try:
        for number, line in enumerate(io.BufferedReader(raw), 1):  # noqa: B007 - named in the error
            yield line
    except zstandard.ZstdError as error:
        raise DataError(
            f"{path}: damaged compressed data after line {number} ({error}); write it "
            "again"
        ) from error
    if whole:
        file.seek(0)
        if _read_end(file).torn is not None:
            raise DataError(
                f"{path}: ends too early, after line {number}; download it again"
            )


def gzip_lines(path: Path, file: BinaryIO) -> Iterator[bytes]:
    """The lines in `file`, which is that of `path` and compressed by gzip.

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
        raise DataError(
            f"{path}: damaged compressed data after line {number} ({error}); download "
            "it again"
        ) from error


def compressor() -> Callable[[bytes], bytes]:
    """The function that makes one frame of a line."""
    import zstandard

    return zstandard.ZstdCompressor(write_checksum=True).compress


def mend_last_frame(path: Path) -> None:
    """Makes a file end with a whole frame, so that another can follow.

    A last frame that was not written to its end is cut off. Where its record is whole
    and only newline or checksum are missing, it is written anew. Raises DataError, and
    changes nothing, for a damaged file and where the torn frame holds several records.
    """
    import zstandard

    with open(path, "rb+") as file:
        try:
            end = _read_end(file)
        except zstandard.ZstdError as error:
            raise DataError(
                f"{path}: damaged compressed data ({error}); write it again with "
                "--overwrite"
            ) from error
        if end.several or not end.ends_line:
            raise DataError(
                f"{path}: its last line is not complete, but shares a frame with "
                "others; decompress it, or use --overwrite"
            )
        file.truncate(end.whole)
        if end.torn is not None and not is_torn(end.torn, msgspec.json.Decoder()):
            compress = compressor()
            file.seek(end.whole)
            file.write(compress(end.torn.rstrip(b"\n") + b"\n"))


class _End(NamedTuple):
    """How a compressed file ends."""

    whole: int
    """Bytes up to the end of the last whole frame."""
    ends_line: bool
    """Whether the whole frames end with a newline."""
    torn: bytes | None
    """Text of a last frame that was not written to its end."""
    several: bool
    """Whether the torn frame holds more than one line; its text is not kept then."""


def _read_end(file: IO[bytes]) -> _End:
    """Walks all frames. Raises zstandard.ZstdError where one is damaged."""
    import zstandard

    decompressor = zstandard.ZstdDecompressor()
    frame: zstandard.ZstdDecompressionObj | None = None
    text = b""
    several = False
    whole = 0
    ends_line = True
    while chunk := file.read(_CHUNK):
        while chunk:
            if frame is None:
                frame = decompressor.decompressobj()
                text = b""
                several = False
            if several:
                # Only the last byte matters, and there may be more lines than memory
                # holds.
                text = text[-1:]
            text += frame.decompress(chunk)
            several = several or b"\n" in text[:-1]
            if not frame.eof:
                break
            chunk = frame.unused_data
            frame = None
            whole = file.tell() - len(chunk)
            if text:
                ends_line = text.endswith(b"\n")
    if frame is None:
        return _End(whole, ends_line, torn=None, several=False)
    return _End(whole, ends_line, torn=text, several=several)
