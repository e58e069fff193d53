"""Pictures for tests: small PNGs that differ by a number."""

import struct
import zlib
from functools import cache
from io import BytesIO

from PIL import Image


@cache
def square(number: int, side: int = 4) -> bytes:
    """A grey square, lighter for a higher number."""
    file = BytesIO()
    Image.new("RGB", (side, side), (number, number, number)).save(file, "PNG")
    return file.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    """One chunk of a PNG."""
    return struct.pack("!I", len(data)) + kind + data + struct.pack("!I", zlib.crc32(kind + data))


def vast(side: int) -> bytes:
    """A picture of `side` x `side` black pixels that is small as a file."""
    head = chunk(b"IHDR", struct.pack("!IIBBBBB", side, side, 1, 0, 0, 0, 0))
    rows = zlib.compress(bytes(min(side, 4096) * (side // 8 + 1)), 9)
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def bad(fault: str) -> tuple[bytes, ...]:
    """Pictures of one observation with which something is wrong."""
    good = square(1)
    match fault:
        case "text":
            return (b"room 1",)
        case "jpeg":
            return (b"\xff\xd8\xff\xe0" + good,)
        case "truncated":
            return (good, good[:-20])
        case "altered":
            return (good[:45] + bytes([good[45] ^ 1]) + good[46:],)
        case "wide":
            return (vast(4096),)
        case "bomb":
            return (vast(60_000),)
        case "large":
            return (good + bytes(5 * 2**20),)
        case "many":
            return (good,) * 5000
    raise ValueError(fault)
