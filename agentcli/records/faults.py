"""Explains in one line what is wrong with the bytes of a record.

The line ends with the JSON path of the field. msgspec gives the path if a value has the
wrong type or is out of bounds. If the bytes are not JSON at all (NaN, a torn line, not
UTF-8), it gives at most a byte offset, and the path of that byte is computed here. All
of this runs only for records that are refused.
"""

import re
from typing import Any

import msgspec

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, MemoryError)
"""Everything that a msgspec decoder can raise, whatever the bytes."""

_BYTE = re.compile(r"\(byte (\d+)\)")
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{},]', re.DOTALL)
_DEEPEST = 32
"""The most levels of nesting that a path shows."""


def fault_in(error: BaseException, data: bytes) -> str:
    """Describes in one line what a decoder found wrong with `data`, and where."""
    if isinstance(error, msgspec.ValidationError):
        text = str(error)
        # msgspec gives no path if the record itself has the wrong type.
        if " - at " not in text:
            text = f"{text} - at `$`"
        return shown(text)
    text, offset = _malformed(error, data)
    return shown(f"{text} - at `{json_path(data, offset)}`")


def is_torn(line: bytes, decoder: "msgspec.json.Decoder[Any]") -> bool:
    """Whether a line without a newline was only partly written.

    True if it is not valid JSON. A valid JSON line of another type of record is not
    torn.
    """
    try:
        decoder.decode(line)
    except (msgspec.ValidationError, RecursionError, MemoryError):
        return False
    except (msgspec.DecodeError, UnicodeDecodeError):
        return True
    return False


def json_path(data: bytes, offset: int) -> str:
    """The path of the value at byte `offset`, e.g. $.steps[3].reward.

    It goes as far as the bytes before `offset` are valid JSON.
    """
    path: list[int | str] = []
    """The position in each open array or object; "" before the first key."""
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
    """`text` from a file in the form that messages show: one line, shortened.

    Invisible characters are escaped.
    """
    if len(text) > 400:
        # The end is kept because it holds the path.
        text = f"{text[:250]}...{text[-100:]}"
    return printable(text)


def one_line(text: object) -> str:
    """A text, or what an error says, with each run of white space as one space."""
    return " ".join(str(text).split())


def printable(text: str) -> str:
    """`text` made safe to print on a terminal.

    Control, bidirectional and other invisible characters are escaped.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _malformed(error: BaseException, data: bytes) -> tuple[str, int]:
    """What is wrong with bytes that are not JSON, and the offset of the fault."""
    if isinstance(error, RecursionError):
        return "nested too deeply", len(data)
    if isinstance(error, MemoryError):
        return "too large for memory", 0
    # msgspec would call it an invalid character, which no editor shows.
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
