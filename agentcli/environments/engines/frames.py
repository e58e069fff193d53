"""The messages between the pool and its worker processes.

A message is msgpack data after a 4-byte big-endian length. Requests are answered one by
one in the order they were sent, so messages carry no call number; Release has no
answer. The pool names each state by a serial number that it never uses twice. A worker
may no longer know a state: it was evicted, its engine has moved on, or an earlier
process died. The worker then answers Lost, and the pool asks again with the state's
History.
"""

import struct
from typing import TypeAlias

import msgspec

from agentcli.environments.protocol import Observation, Start, Verdict
from agentcli.errors import EngineError
from agentcli.records.settings import EnvironmentSettings
from agentcli.records.types import Task

HEADER = struct.Struct("!I")
SHOWN_BYTES = 60
"""Most bytes that a message quotes of what is no frame."""


# Arrays without field names: both ends are of one release (Setup.release). Messages
# hold no cycles, so the garbage collector need not visit them.
class Frame(msgspec.Struct, array_like=True, tag=True, gc=False):
    """Base class of all messages."""


class History(msgspec.Struct, array_like=True):
    """Everything that is needed to rebuild a state and to check it."""

    task: Task
    actions: tuple[str, ...]
    observations: tuple[str, ...]
    """All texts so far: one more than there are actions."""
    key: str
    """The state key of the last observation."""


class Setup(Frame):
    """The first message to a process.

    The answer is Ready, or Failed, after which the process ends.
    """

    release: str
    """The pool's version of agentcli, which must be the worker's."""
    settings: EnvironmentSettings
    engines: int
    """Maximum number of live engines."""


class Open(Frame):
    """Open a task; `state` is the serial number of its initial state."""

    task: Task
    state: int


class Act(Frame):
    """Act in `state` of a task; `result` is the serial number of the next state."""

    task: str
    state: int
    action: str
    result: int
    history: History | None = None


class Consult(Frame):
    """Ask the engine what it thinks of `state`, which does not change."""

    task: str
    state: int
    argument: str | None
    """Score the actions that are possible with it. None: plan the actions that win."""
    history: History | None = None


class Release(Frame):
    """Forget a task."""

    task: str


class TimedAnswer(Frame, kw_only=True):
    """Base class of the answers."""

    seconds: float = 0.0
    """Wall seconds that the request took in the worker."""


class Ready(TimedAnswer):
    """The world and its first engine exist."""

    solvable: bool
    """The engine can plan."""


class Opened(TimedAnswer):
    """The task is open."""

    start: Start
    exact: bool
    """The engine gave a snapshot of the new state."""


class Acted(TimedAnswer):
    """The action was carried out."""

    observation: Observation
    exact: bool
    replayed: int
    """Environment steps that were replayed to restore the state."""


class Consulted(TimedAnswer):
    """The plan, or the scores."""

    advice: list[str] | Verdict
    replayed: int


class Lost(TimedAnswer):
    """The state is not known here; ask again with its history."""


class Failed(TimedAnswer):
    """The request raised an error."""

    kind: str
    """Name of a class in agentcli.errors."""
    text: str


Request: TypeAlias = Setup | Open | Act | Consult | Release
Reply: TypeAlias = Ready | Opened | Acted | Consulted | Lost | Failed

_encoder = msgspec.msgpack.Encoder()
decode_request = msgspec.msgpack.Decoder(Request).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode


def encode_frame(message: Request | Reply) -> bytes:
    """Encodes a message, preceded by its length."""
    # The length is known only afterwards: its place is kept free, which saves a copy.
    buffer = bytearray(HEADER.size)
    _encoder.encode_into(message, buffer, HEADER.size)
    HEADER.pack_into(buffer, 0, len(buffer) - HEADER.size)
    return bytes(buffer)


def take_frames(buffer: bytearray, longest: int) -> list[bytes]:
    """Removes all complete frames from the start of `buffer`; returns the payloads.

    Raises EngineError for a frame of more than `longest` bytes. The command of a worker
    that prints text, as a login shell does, starts such a frame: its letters are read
    as a length.
    """
    payloads = []
    end = 0
    while len(buffer) - end >= HEADER.size:
        begin = end + HEADER.size
        (length,) = HEADER.unpack_from(buffer, end)
        if length > longest:
            shown = bytes(buffer[end : end + SHOWN_BYTES])
            raise EngineError(f"it sent what is not a worker's answer: {shown!r}")
        if begin + length > len(buffer):
            break
        end = begin + length
        payloads.append(bytes(buffer[begin:end]))
    del buffer[:end]
    return payloads
