"""Record files with suffix .zst: one zstandard frame per record, each with a checksum.

A frame that is cut short at the end of the file is treated like a torn last line: the
process was killed while it wrote. Any other damage is refused. A file that another
program compressed, with all lines in one frame, is read in the same way.
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
    """The lines of the compressed `file`, opened from `path`.

    Raises DataError naming the last line before the damage. With `whole`, a last frame
    that is cut short is an error too.
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
    """The lines of `file`, opened from `path` and compressed by gzip.

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
    """A function that compresses one line into a frame."""
    import zstandard

    return zstandard.ZstdCompressor(write_checksum=True).compress


def mend_last_frame(path: Path) -> None:
    """Makes a file end with a complete frame, so that another one can be appended.

    An incomplete last frame is cut off. If its record is complete and only the newline
    or the checksum is missing, it is written again. Raises DataError and changes
    nothing if the file is damaged, or if the torn frame contains several records.
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
    """Bytes up to the end of the last complete frame."""
    ends_line: bool
    """Whether the complete frames end with a newline."""
    torn: bytes | None
    """Text of an incomplete last frame."""
    several: bool
    """Whether the torn frame contains more than one line; its text is then not kept."""


def _read_end(file: IO[bytes]) -> _End:
    """Walks all frames. Raises zstandard.ZstdError if one is damaged."""
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
                # Only the last byte matters, and all lines together may not fit into
                # memory.
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
