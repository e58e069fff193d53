"""Private copies of the planner's C library, which keeps its task in global variables.

Every open game has a copy of its own, so stepping many games in turn costs nothing. A
copy is never unloaded (the library does not survive it): a closed game gives its copy
back. Only the loadable segments of the file are copied, because the rest (debug
sections, thirty times as much) is never read.

The library numbers the states that it has met. Python's own binding does not declare
these numbers; they give exact snapshots, and die with the next load.
"""

import ctypes
import os
import struct
import tempfile
from functools import lru_cache
from pathlib import Path

from agentcli.environments.cache import keeping
from agentcli.errors import EngineError, MissingError
from agentcli.records.scratch import ScratchFolder

_NAME_BYTES = 1024
"""Room for a name in everything that the library reports."""


class Operator(ctypes.Structure):
    """One applicable ground operator as the library reports it."""

    _fields_ = (
        ("id", ctypes.c_int),
        ("name", ctypes.c_char * _NAME_BYTES),
        ("effects", ctypes.c_int),
    )


_STRIDE = ctypes.sizeof(Operator) // ctypes.sizeof(ctypes.c_int)
"""C ints from one operator's id to the next one's."""
_INT = ctypes.c_int
_POINTER = ctypes.c_void_p
_FUNCTIONS = {
    "load_sas": ((ctypes.c_char_p,), None),
    "get_state_id": ((), _INT),
    "set_state_id": ((_INT,), None),
    "get_state_size": ((), _INT),
    "get_state": ((_POINTER,), None),
    "get_applicable_operators_count": ((), _INT),
    "get_applicable_operators": ((_POINTER,), None),
    "apply_operator": ((_INT, _POINTER), _INT),
    "check_goal": ((), ctypes.c_bool),
}
"""Function of the library -> the types of its arguments and of its result."""
_free: list["Planner"] = []


class Planner:
    """One private copy of the library. Not thread-safe."""

    def __init__(self) -> None:
        self._lib = _load_copy()
        self._capacity = 0
        self._grow(256)
        self._effects = ctypes.create_string_buffer(_NAME_BYTES)
        self.exact = all(
            hasattr(self._lib, name) for name in ("get_state_id", "set_state_id")
        )
        """Whether this library can number and restore states."""
        if self.exact:
            self.go = self._lib.set_state_id
            self.state = self._lib.get_state_id
        self.won = self._lib.check_goal

    def load(self, sas: bytes) -> None:
        """Loads a translated task; the current state is its initial one."""
        self._lib.load_sas(sas)

    def operators(self) -> list[int]:
        """Ids of the operators that apply now, in the library's order."""
        count = self._lib.get_applicable_operators_count()
        if count > self._capacity:
            self._grow(count)
        self._lib.get_applicable_operators(self._operators)
        return self._ids[: count * _STRIDE : _STRIDE].tolist()

    def apply(self, operator: int) -> None:
        """Moves from the current state to the operator's successor."""
        self._lib.apply_operator(operator, None)

    def apply_reporting(self, operator: int, effects: int) -> list[str]:
        """Like apply; also names every effect atom of the operator, in order.

        Atoms are named whether their condition held or not. `effects` bounds how many
        there can be.
        """
        if len(self._effects) < _NAME_BYTES * effects:
            self._effects = ctypes.create_string_buffer(_NAME_BYTES * effects)
        count = self._lib.apply_operator(operator, self._effects)
        return _names(self._effects, count)

    def atoms(self) -> list[str]:
        """Names of the atoms of the current state, one per variable.

        Slow: quadratic inside the library.
        """
        size = self._lib.get_state_size()
        buffer = ctypes.create_string_buffer(_NAME_BYTES * size)
        self._lib.get_state(buffer)
        return _names(buffer, size)

    def _grow(self, capacity: int) -> None:
        self._capacity = capacity
        self._operators = (Operator * capacity)()
        # Every 258th int of the array is an id: a slice of it beats a loop over
        # structs.
        self._ids = memoryview(self._operators).cast("B").cast("i")


def _names(buffer: "ctypes.Array[ctypes.c_char]", count: int) -> list[str]:
    start = ctypes.addressof(buffer)
    return [
        ctypes.string_at(start + _NAME_BYTES * index).decode() for index in range(count)
    ]


def borrow() -> Planner:
    """A copy that no game uses; a new one is loaded where there is none."""
    return _free.pop() if _free else Planner()


def give_back(planner: Planner) -> None:
    """Takes a copy back; its state numbers are void from now on."""
    _free.append(planner)


@lru_cache(maxsize=1)
def has_snapshots() -> bool:
    """Whether the installed library can number and restore states."""
    planner = borrow()
    give_back(planner)
    return planner.exact


def _library_path() -> Path:
    try:
        from fast_downward.interface import DOWNWARD_LIB_PATH
    except ImportError as error:
        raise MissingError(
            f"ALFWorld needs the planner library ({error}); type: pip install "
            "'agentcli[alfworld]'"
        ) from error
    return Path(DOWNWARD_LIB_PATH)


def _load_copy() -> ctypes.CDLL:
    """Loads the library from a file of its own.

    The loader would share a library between openings of one file. Raises WriteError
    where the folder of temporary files has no room, EngineError where it or memory does
    not allow loading.
    """
    content = _loadable_part(_library_path())
    place = Path(tempfile.gettempdir())
    with keeping(place, "TMPDIR"), ScratchFolder(place) as folder:
        copy = Path(folder, "libdownward.so")
        copy.write_bytes(content)
        try:
            # The file may go once it is loaded: the mapping keeps what it needs.
            lib = ctypes.CDLL(os.fspath(copy))
        except OSError as error:
            raise EngineError(
                f"{error}; where {place} forbids execution, name another folder: "
                "TMPDIR=DIR; else memory has run out"
            ) from error
    for name, (arguments, result) in _FUNCTIONS.items():
        # Older libraries lack those that number states.
        if hasattr(lib, name):
            function = getattr(lib, name)
            function.argtypes = arguments
            function.restype = result
    return lib


def _loadable_part(path: Path) -> bytes:
    """The bytes of an ELF file up to the end of its last loadable segment.

    All bytes of a file that is not ELF with 64 bits, little endian.
    """
    with path.open("rb") as file:
        head = file.read(64)
        if head[:6] != b"\x7fELF\x02\x01":
            return head + file.read()
        (offset,) = struct.unpack_from("<Q", head, 32)
        size, count = struct.unpack_from("<HH", head, 54)
        file.seek(offset)
        table = file.read(size * count)
        end = 0
        for at in range(0, size * count, size):
            kind, _, start, _, _, length = struct.unpack_from("<IIQQQQ", table, at)
            if kind == 1:
                end = max(end, start + length)
        file.seek(0)
        return file.read(end)
