"""Explains what is wrong with the bytes of a record, in one line.

The line ends with the JSON path of the field. msgspec names the path of a value of the
wrong type or out of bounds. Where the bytes are not JSON at all (NaN, a torn line, not
UTF-8), it names a byte at most. The path of that byte is worked out here. All of this
runs only for a record that is refused.
"""

import re
from typing import Any

import msgspec

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, MemoryError)
"""Everything a msgspec decoder raises, whatever the bytes."""

_BYTE = re.compile(r"\(byte (\d+)\)")
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{},]', re.DOTALL)
_DEEPEST = 32
"""Levels of nesting that a path names."""


def fault_in(error: BaseException, data: bytes) -> str:
    """Says in one line what a decoder found wrong with `data`, and where."""
    if isinstance(error, msgspec.ValidationError):
        text = str(error)
        # msgspec leaves the path out where the record itself is of the wrong type.
        if " - at " not in text:
            text = f"{text} - at `$`"
        return shown(text)
    text, offset = _malformed(error, data)
    return shown(f"{text} - at `{json_path(data, offset)}`")


def is_torn(line: bytes, decoder: "msgspec.json.Decoder[Any]") -> bool:
    """Whether a line without a newline was never written to its end.

    Such a line is not JSON, rather than JSON of another record.
    """
    try:
        decoder.decode(line)
    except (msgspec.ValidationError, RecursionError, MemoryError):
        return False
    except (msgspec.DecodeError, UnicodeDecodeError):
        return True
    return False


def json_path(data: bytes, offset: int) -> str:
    """Path of the value that byte `offset` belongs to, e.g. $.steps[3].reward.

    It goes as far as the bytes before `offset` are JSON.
    """
    path: list[int | str] = []
    """The place in each open array or object; "" before the first key."""
    key_follows = False
    for token in _TOKEN.finditer(data, 0, offset):
        mark = token[0]
        if mark == b"{":
            key_follows = True
            path.append("")
        elif mark == b"[":
            key_follows = False
            path.append(0)
        elif mark in b"}]":
            key_follows = False
            del path[-1:]
        elif mark == b",":
            if path and isinstance(path[-1], int):
                path[-1] += 1
            else:
                key_follows = True
        elif key_follows and path:
            key_follows = False
            path[-1] = mark.strip(b'"').decode(errors="replace")
        if len(path) > _DEEPEST:
            break
    text = "$"
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part:
            text += f".{part}"
    return text


def shown(text: str) -> str:
    """`text` from a file as a message shows it: one line, shortened.

    Invisible characters are written as escapes.
    """
    if len(text) > 400:
        text = f"{text[:250]}...{text[-100:]}"
    return printable(text)


def printable(text: str) -> str:
    """`text` made harmless to a terminal.

    Control, bidirectional and other invisible characters are written as escapes.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _malformed(error: BaseException, data: bytes) -> tuple[str, int]:
    """The fault of bytes that are not JSON, and at which byte."""
    if isinstance(error, RecursionError):
        return "nested too deeply", len(data)
    if isinstance(error, MemoryError):
        return "too large for memory", 0
    if data.startswith(b"\xef\xbb\xbf"):
        return "begins with a byte order mark; save it as UTF-8 without one", 0
    try:
        data.decode()
    except UnicodeDecodeError as invalid:
        return f"not UTF-8 (byte {invalid.start})", invalid.start
    text = str(error)
    byte = _BYTE.search(text)
    offset = int(byte[1]) if byte else len(data)
    return text, offset
