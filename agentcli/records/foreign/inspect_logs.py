"""Reads logs of Inspect (inspect-ai 0.3): .eval, a zip of samples, and .json.

The epochs of a sample are a group. The reward is a score: a number, or C, P, I and N as
`value_to_float` of Inspect has them. Logs hold no token ids.
"""

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from agentcli.errors import DataError
from agentcli.records.faults import UNREADABLE, shown
from agentcli.records.foreign import rollouts
from agentcli.records.foreign.rollouts import (
    Ending,
    ForeignMessage,
    ForeignRollout,
    ImportChoices,
    decoded,
    refuse_large,
    turns_of,
)
from agentcli.records.regular import open_regular
from agentcli.records.types import LARGEST_REWARD

ZSTANDARD = 93
"""The zip method that Inspect compresses with; Python's zipfile lacks it before 3.14."""
LARGEST_LOG = 2**32
"""Most bytes of a log's samples, unpacked: a small file may hold more than memory."""
AGAIN = "copy the log again, or write it anew with: inspect log convert"
LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


class ForeignScore(msgspec.Struct):
    """A score of a sample."""

    value: Any


class ForeignFault(msgspec.Struct):
    """What halted a sample."""

    message: str = ""


class InspectSample(msgspec.Struct):
    """A sample of a log, played once."""

    id: str | int
    epoch: int = 1
    messages: list[ForeignMessage] = []
    scores: dict[str, ForeignScore] | None = None
    error: ForeignFault | None = None
    limit: dict[str, Any] | None = None


class InspectSpec(msgspec.Struct):
    """The evaluation that a log is of."""

    task: str = ""


class InspectLog(msgspec.Struct):
    """A log as JSON; the header of a zip has no samples."""

    eval: InspectSpec
    samples: list[InspectSample] | None = None


def read(file: Path, choices: ImportChoices) -> Iterator[ForeignRollout]:
    """Streams the samples of a log. Raises DataError with the sample and the field."""
    with open_regular(file) as opened:
        if opened.peek(4)[:4] == b"PK\x03\x04":
            yield from _zipped(file, opened, choices)
            return
        data = opened.read(rollouts.LARGEST_RECORD + 1)
    remedy = "write it as .eval with: inspect log convert --to eval"
    refuse_large(len(data), str(file), remedy)
    log = _parsed(data, InspectLog, str(file))
    for sample in log.samples or ():
        yield _rollout(sample, log.eval.task, str(file), choices)


def _zipped(
    file: Path, opened: BinaryIO, choices: ImportChoices
) -> Iterator[ForeignRollout]:
    try:
        with zipfile.ZipFile(opened) as archive:
            members = {info.filename: info for info in archive.infolist()}
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise DataError(f"{file}: no sound zip ({error}); {AGAIN}") from error
    task = ""
    if "header.json" in members:
        place = f"{file}: header.json"
        header = _member(opened, members["header.json"], place)
        task = _parsed(header, InspectLog, place).eval.task
    room = LARGEST_LOG
    for name, info in members.items():
        # A sample that was logged again has the same name, and the last one counts.
        if name.startswith("samples/") and name.endswith(".json"):
            place = f"{file}: {shown(name)}"
            data = _member(opened, info, place)
            room -= len(data)
            if room < 0:
                most = LARGEST_LOG >> 30
                raise DataError(
                    f"{file}: unpacks to more than {most} GiB; leave samples out"
                )
            sample = _parsed(data, InspectSample, place)
            yield _rollout(sample, task, place, choices)


def _member(file: BinaryIO, info: zipfile.ZipInfo, place: str) -> bytes:
    """The content of a zip's file. Raises DataError, also for one that grows too large."""
    import zstandard

    most = rollouts.LARGEST_RECORD + 1
    remedy = "leave the sample out"
    refuse_large(info.compress_size, place, remedy)
    try:
        file.seek(info.header_offset)
        # The local header (APPNOTE 4.3.7) ends with the lengths of name and extra field.
        name, extra = struct.unpack("<26x2H", file.read(30))
        file.seek(name + extra, io.SEEK_CUR)
        packed = file.read(info.compress_size)
        if info.compress_type == zipfile.ZIP_STORED:
            data = packed
        elif info.compress_type == zipfile.ZIP_DEFLATED:
            data = zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, most)
        elif info.compress_type == ZSTANDARD:
            frames = zstandard.ZstdDecompressor().stream_reader(
                packed, read_across_frames=True
            )
            data = frames.read(most)
        else:
            raise ValueError(f"compressed by method {info.compress_type}")
    except (
        struct.error,
        zlib.error,
        zstandard.ZstdError,
        OSError,
        ValueError,
    ) as error:
        raise DataError(f"{place}: cannot be unpacked ({error}); {AGAIN}") from error
    refuse_large(len(data), place, remedy)
    if zlib.crc32(data) != info.CRC:
        raise DataError(f"{place}: damaged: its checksum differs; {AGAIN}")
    return data


def _parsed(data: bytes, kind: type[rollouts.T], place: str) -> rollouts.T:
    """A part of a log. Inspect writes NaN for what was not scored; it becomes None."""
    if b"NaN" not in data and b"Infinity" not in data:
        return decoded(data, kind, place, AGAIN)
    try:
        # The others stay texts, which are no scores.
        plain = json.loads(
            data, parse_constant=lambda word: None if word == "NaN" else word
        )
        # Python's reader takes halves of characters, which no tree can hold.
        data = msgspec.json.encode(plain)
    except (ValueError, OverflowError, *UNREADABLE) as error:
        raise DataError(f"{place}: {shown(str(error))}; {AGAIN}") from error
    return decoded(data, kind, place, AGAIN)


def _rollout(
    sample: InspectSample, task: str, place: str, choices: ImportChoices
) -> ForeignRollout:
    place = f"{place}: sample {shown(str(sample.id))}, epoch {sample.epoch}"
    turns, after = turns_of(sample.messages)
    if turns:
        turns[-1].end = Ending(
            reward=_reward(sample, place, choices.score),
            truncated=sample.limit is not None,
            error=None if sample.error is None else shown(sample.error.message),
            after=after,
        )
    return ForeignRollout(place, str(sample.id), turns, kind=task)


def _values(sample: InspectSample) -> dict[str, Any]:
    """The scores by name; a scorer with several has NAME.KEY for each."""
    values: dict[str, Any] = {}
    for name, score in (sample.scores or {}).items():
        if isinstance(score.value, dict):
            values |= {f"{name}.{key}": value for key, value in score.value.items()}
        else:
            values[name] = score.value
    return values


def _reward(sample: InspectSample, place: str, name: str | None) -> float | None:
    """The score as a number; None if there is none. Raises DataError for another one."""
    values = _values(sample)
    if not values:
        return None
    name = name or next(iter(values))
    if name not in values:
        raise DataError(
            f"{place}: scores: no {shown(name)}; take --score {shown(', '.join(values))}"
        )
    value = values[name]
    if isinstance(value, str):
        value = LETTERS.get(value, WORDS.get(value.lower(), value))
    if value is None:
        return None
    try:
        reward = float(value)
    except (TypeError, ValueError, OverflowError):
        reward = float("nan")
    if not abs(reward) <= LARGEST_REWARD:
        raise DataError(
            f"{place}: scores.{shown(name)}: {shown(str(value))} is no number; name "
            "another score with --score NAME"
        )
    return reward
