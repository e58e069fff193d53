"""Private copies of the planner's C library, which holds one task and one current state
in global variables.

Every game that is alive owns a copy, so that stepping many games in turn costs nothing.
A copy is never unloaded (the library does not survive it): a game that is closed hands
its copy on. Only the loadable segments of the file are copied, because the rest (debug
sections, thirty times as much) is never read. The library numbers the states that it
has seen; those numbers, which Python's own binding does not declare, give exact
snapshots. They die with the next load.
"""

import ctypes
import os
import struct
import tempfile
from functools import lru_cache
from pathlib import Path

from agentcli.environments.alfworld.keeping import keeping
from agentcli.errors import EngineError, MissingError

_WORDS_PER_OPERATOR = 258
"""struct { int id; char name[1024]; int effects; } counted in C ints."""
_ATOM_BYTES = 1024
_free: list["Planner"] = []


class Operator(ctypes.Structure):
    """One applicable ground operator as the library reports it."""

    _fields_ = (
        ("id", ctypes.c_int),
        ("name", ctypes.c_char * 1024),
        ("effects", ctypes.c_int),
    )


class Planner:
    """One private copy of the library. Not thread-safe."""

    def __init__(self) -> None:
        self._lib = _load_copy()
        self._capacity = 0
        self._grow(256)
        self._effects = ctypes.create_string_buffer(_ATOM_BYTES)
        self.exact = hasattr(self._lib, "get_state_id") and hasattr(
            self._lib, "set_state_id"
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
        """Ids of the operators applicable in the current state, in the library's order."""
        count = self._lib.get_applicable_operators_count()
        if count > self._capacity:
            self._grow(count)
        self._lib.get_applicable_operators(self._operators)
        return self._ids[: count * _WORDS_PER_OPERATOR : _WORDS_PER_OPERATOR].tolist()

    def apply(self, operator: int) -> None:
        """Moves from the current state to the operator's successor."""
        self._lib.apply_operator(operator, None)

    def apply_reporting(self, operator: int, effects: int) -> list[str]:
        """Like apply; also names every effect atom of the operator, in order, whether
        its condition held or not. `effects` bounds how many there can be.
        """
        if len(self._effects) < _ATOM_BYTES * effects:
            self._effects = ctypes.create_string_buffer(_ATOM_BYTES * effects)
        count = self._lib.apply_operator(operator, self._effects)
        start = ctypes.addressof(self._effects)
        return [
            ctypes.string_at(start + _ATOM_BYTES * index).decode()
            for index in range(count)
        ]

    def atoms(self) -> list[str]:
        """Names of the atoms of the current state, one per variable (slow: quadratic
        inside the library).
        """
        size = self._lib.get_state_size()
        buffer = ctypes.create_string_buffer(_ATOM_BYTES * size)
        self._lib.get_state(buffer)
        start = ctypes.addressof(buffer)
        return [
            ctypes.string_at(start + _ATOM_BYTES * index).decode()
            for index in range(size)
        ]

    def _grow(self, capacity: int) -> None:
        self._capacity = capacity
        self._operators = (Operator * capacity)()
        self._ids = memoryview(self._operators).cast("B").cast("i")


def borrow() -> Planner:
    """A copy that nobody uses, newly loaded where there is none."""
    return _free.pop() if _free else Planner()


def give_back(planner: Planner) -> None:
    """Ends a borrowing; every state number of it is void from now on."""
    _free.append(planner)


@lru_cache(maxsize=1)
def has_snapshots() -> bool:
    """Whether the installed library can number and restore states, as the fast engine
    needs.
    """
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
    """Loads the library from a file of its own, for the loader shares a library between
    openings of one file.

    Raises WriteError where the folder of temporary files has no room, EngineError where
    it or memory does not allow loading.
    """
    content = _loadable_part(_library_path())
    place = Path(tempfile.gettempdir())
    with (
        keeping(place, "TMPDIR"),
        tempfile.TemporaryDirectory(prefix="agentcli-planner-", dir=place) as folder,
    ):
        copy = os.path.join(folder, "libdownward.so")
        with open(copy, "wb") as file:
            file.write(content)
        try:
            lib = ctypes.CDLL(copy)
        except OSError as error:
            raise EngineError(
                f"{error}; where {place} forbids execution, name another folder: "
                "TMPDIR=DIR; else memory has run out"
            ) from error
    for name, arguments, result in (
        ("load_sas", [ctypes.c_char_p], None),
        ("get_state_id", [], ctypes.c_int),
        ("set_state_id", [ctypes.c_int], None),
        ("get_state_size", [], ctypes.c_int),
        ("get_state", [ctypes.c_void_p], None),
        ("get_applicable_operators_count", [], ctypes.c_int),
        ("get_applicable_operators", [ctypes.c_void_p], None),
        ("apply_operator", [ctypes.c_int, ctypes.c_void_p], ctypes.c_int),
        ("check_goal", [], ctypes.c_bool),
    ):
        function = getattr(lib, name, None)
        if function is not None:
            function.argtypes, function.restype = arguments, result
    return lib


def _loadable_part(path: Path) -> bytes:
    """The bytes of a 64-bit little-endian ELF file up to the end of its last loadable
    segment; all of any other file.
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
        for index in range(count):
            kind, _, start, _, _, length = struct.unpack_from(
                "<IIQQQQ", table, index * size
            )
            if kind == 1:
                end = max(end, start + length)
        file.seek(0)
        return file.read(end)
