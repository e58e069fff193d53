"""10,000 damaged records of every kind: each is refused in one line that names file, line and field, or accepted, and then
everything that uses it works. A seeded generator, so that a failure names a mutant that anyone can make again."""

import functools
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
import zstandard
from agentcli.analysis.schema import type_of
from agentcli.analysis.validate import check
from agentcli.credit.registry import METHODS, make
from agentcli.errors import DataError
from agentcli.evaluation.episodes import episodes
from agentcli.evaluation.summary import summarise
from agentcli.records.files import read_numbered, read_records
from agentcli.records.trees import children, leaves, paths, validate_credit, validate_tree
from agentcli.records.types import Credit, Episode, Tree
from credit_trees import OF_OUTCOMES
from sample_records import every_record, tree

MUTANTS = 10_000
RECORDS = every_record()
DEEP = 100_000
MARK = b"\xef\xbb\xbf"
"""UTF-8's byte order mark."""

T = TypeVar("T")
Random = random.Random
Mutation = Callable[[Any, Random], bytes]

VALUES: list[bytes] = [
    *b"NaN Infinity -Infinity 1e30 -1e30 1e400 -1e400 1e-400 -1 -0.0 0.5 3 null true tru [] {} [null]".split(),
    *(str(2**70).encode(), str(-(2**70)).encode(), b"9" * 5000),
    *(b'""', b'"success"', b'"a\\nb\\u001b[31m"', b'"' + b"long " * 40_000 + b'"'),
    *(b'"\\ud800"', b'"\\udc00"', b'"\\u0000"', b'"\xff\xfe"', b'"\x00"'),
    *(b"[" * DEEP + b"]" * DEEP, b"[" * DEEP, b'{"a":' * DEEP + b"1" + b"}" * DEEP),
]
"""What a value may be replaced by: numbers no field should hold, other types, texts that are none, bottomless nesting."""


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a JSON value."""
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inner:
        yield from places(child, (*at, key))


def inside(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def replaced(record: Any, at: tuple[Any, ...], raw: bytes) -> bytes:
    """The record as JSON, with these bytes in place of one of its values."""
    if not at:
        return raw
    inside(record, at[:-1])[at[-1]] = "@here@"
    return msgspec.json.encode(record).replace(b'"@here@"', raw)


def other_value(record: Any, rng: Random) -> bytes:
    return replaced(record, rng.choice(list(places(record))), rng.choice(VALUES))


def keys(record: Any, rng: Random) -> bytes:
    """One object with a key taken away, given twice, unknown, renamed, or holding what is skipped."""
    at = rng.choice([path for path in places(record) if isinstance(inside(record, path), dict)])
    known = inside(record, at)
    pairs = [(msgspec.json.encode(str(key)), msgspec.json.encode(value)) for key, value in known.items()]
    spot = rng.randrange(len(pairs) + 1)
    unknown = rng.choice([b'"zz"', b'"a\\nb"', b'"schema_version"', b'""', b'"' + b"k" * 3000 + b'"'])
    match rng.randrange(4):
        case 0 if pairs:
            pairs.pop(rng.randrange(len(pairs)))
        case 1 if pairs:
            pairs.insert(spot, (rng.choice(pairs)[0], rng.choice(VALUES)))
        case 2 if pairs:
            number = rng.randrange(len(pairs))
            pairs[number] = (unknown, pairs[number][1])
        case _:
            pairs.insert(spot, (unknown, rng.choice(VALUES)))
    return replaced(record, at, b"{" + b",".join(key + b":" + value for key, value in pairs) + b"}")


def ancestry(record: Any, rng: Random) -> bytes:
    """A tree whose steps do not hang together, credit for steps that are not there; other records as they are."""
    steps = record.get("steps")
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        return other_value(record, rng)
    for _ in range(rng.choice([1, 1, 2])):
        if not steps:
            break
        chosen = rng.choice(steps)
        match rng.randrange(9):
            case 0:
                chosen["parent" if "parent" in chosen else "step"] = rng.choice([-1, 0, 1, 7, 8, 99, 2**31, None])
            case 1:
                chosen["id" if "id" in chosen else "step"] = rng.choice([0, 1, 5, -1, 2**40])
            case 2:
                chosen["outcome"] = rng.choice([None, "success", "errored", "lost", ""])
            case 3:
                rng.shuffle(steps)
            case 4:
                steps.pop(rng.randrange(len(steps)))
            case 5:
                steps.insert(rng.randrange(len(steps)), chosen)
            case 6:
                steps.clear()
            case 7:
                chosen["logprobs"] = rng.choice([[], [0.0], [-1e5] * 3, [1.0] * 3])
            case _:
                chosen["state"] = chosen["next_state"] = rng.choice(["", "s0", "\0terminal"])
    return msgspec.json.encode(record)


def bytewise(record: Any, rng: Random) -> bytes:
    """A few bytes flipped, deleted, inserted, repeated or cut off."""
    data = bytearray(msgspec.json.encode(record))
    for _ in range(rng.choice([1, 1, 2, 5])):
        spot = rng.randrange(len(data) + 1)
        match rng.randrange(6):
            case 0 if spot < len(data):
                data[spot] ^= 1 << rng.randrange(8)
            case 1:
                del data[spot : spot + rng.choice([1, 3, 40])]
            case 2:
                data[spot:spot] = rng.choice([b"\0", b"\xff", b"\xc3", *b'{ ] " , \\'.split(), b"\n", b"\r\n", MARK])
            case 3:
                data[spot:spot] = data[spot : spot + 30]
            case 4:
                data[spot:spot] = rng.randbytes(4)
            case _:
                del data[spot:]
    return bytes(data)


def around(record: Any, rng: Random) -> bytes:
    """The record itself, in an odd file: blank lines, CRLF, a byte order mark, two on a line, nothing at all."""
    line = msgspec.json.encode(record)
    wholes = [b"\n\n" + line, line + b"\r", line + b"\n \n\t", b"", b"\n", b" " + line]
    return rng.choice([*wholes, MARK + line, line + line, line + b"\0"])


MUTATIONS: list[Mutation] = [other_value, other_value, keys, ancestry, bytewise, around]


def mutants(seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    """(kind, file): a damaged record, alone or between sound ones, the last line with or without its newline."""
    rng = random.Random(seed)
    weighted = [*RECORDS, *["tree"] * 6, *["credit"] * 3]
    for _ in range(count):
        kind = rng.choice(weighted)
        record = msgspec.json.decode(msgspec.json.encode(RECORDS[kind]))
        line = rng.choice(MUTATIONS)(record, rng)
        sound = msgspec.json.encode(RECORDS[kind])
        lines = [*[sound] * rng.randrange(2), line, *[sound] * rng.randrange(2)]
        yield kind, b"\n".join(lines) + rng.choice([b"\n", b"\n", b""])


def refusal(work: Callable[[], T]) -> tuple[T | None, str | None]:
    """What comes of it, or the message of its DataError; anything else that it raises fails the test."""
    try:
        return work(), None
    except DataError as error:
        return None, str(error)


def use(record: Any) -> None:
    """What the stages do with an accepted record; a tree that is none is refused here."""
    if isinstance(record, Tree):
        validate_tree(record, "trees.jsonl:1")
        assert sum(map(len, children(record).values())) == len(record.steps)
        assert [path[-1] for path in paths(record)] == leaves(record)
        for found in episodes(record):
            assert msgspec.json.decode(msgspec.json.encode(found), type=Episode) == found
        for name in METHODS:
            give_credit(name, record)
    elif isinstance(record, Credit):
        validate_credit(record, tree(), "credit.jsonl:1")
    elif isinstance(record, Episode):
        summarise([record])


@functools.cache
def credit_method(name: str) -> tuple[Any, Any]:
    return make({"method": name})[1:]


def give_credit(method: str, sound: Tree) -> Credit | None:
    """What a method makes of a valid tree can be read back; None where it says which step of the tree it cannot use."""
    assign, settings = credit_method(method)
    given, problem = refusal(lambda: assign(sound, settings))
    if problem is not None:
        assert re.search(r"steps\[\d+\]\.[\w.]+: ", problem), (method, problem)
        return None
    validate_credit(given, sound)
    assert msgspec.json.decode(msgspec.json.encode(given), type=Credit) == given
    return given


def one_line(message: str, path: Path, lines: int | None) -> bool:
    """Whether a refusal reads "file:line: ... field ..."; `lines` None for a file of one record."""
    place = re.match(re.escape(str(path)) + (r":(\d+): " if lines else ": "), message)
    if place is None or not message.isprintable() or len(message) > 800:
        return False
    names_field = re.search(r" - at `(key` in `)?\$", message) is not None or "schema_version is " in message
    return names_field and (lines is None or 1 <= int(place[1]) <= lines)


@pytest.mark.slow
def test_every_mutant_is_refused_in_one_line_or_works(tmp_path: Path) -> None:
    tally: Counter[str] = Counter()
    for number, (kind, data) in enumerate(mutants(1, MUTANTS)):
        path = tmp_path / f"{number}.jsonl"
        path.write_bytes(data)
        accepted, problem = refusal(lambda path=path, kind=kind: list(read_records(path, type_of(kind))))
        path.unlink()
        if problem is not None:
            assert one_line(problem, path, data.count(b"\n") + 1), (number, kind, problem)
            tally["refused"] += 1
        for record in accepted or []:
            assert msgspec.json.decode(msgspec.json.encode(record), type=type(record)) == record, (number, kind)
            _, problem = refusal(lambda record=record: use(record))
            if problem is not None:
                assert re.match(r"\w+\.jsonl:1: (task|steps)", problem), (number, kind, problem)
                assert "\n" not in problem
            tally["used" if problem is None else "refused later"] += 1
    assert tally["refused"] > MUTANTS / 3
    assert tally["used"] > MUTANTS / 3
    assert tally["refused later"] > MUTANTS / 100


@pytest.mark.parametrize("kind", ["manifest", "panel", "tree", "stage-record"])
def test_files_of_one_record_are_refused_in_one_line_too(kind: str, tmp_path: Path) -> None:
    rng, path, refused = random.Random(2), tmp_path / "some.json", 0
    for number in range(150):
        record = msgspec.json.decode(msgspec.json.encode(RECORDS[kind]))
        path.write_bytes(rng.choice(MUTATIONS)(record, rng))
        (finding,) = check(path, kind)
        if finding.problem is not None:
            refused += 1
            assert finding.problem.startswith(f"{path}: "), (number, finding)
            assert finding.problem.isprintable(), (number, finding)
    assert 30 < refused < 150


def test_damaged_compression_is_refused_or_read(tmp_path: Path) -> None:
    """Frames carry a checksum: what is accepted are the very records that were written, up to the end of a frame."""
    path, tally, sound = tmp_path / "trees.jsonl.zst", Counter[str](), [tree(number) for number in range(4)]
    compress = zstandard.ZstdCompressor(write_checksum=True).compress
    whole = b"".join(compress(msgspec.json.encode(one) + b"\n") for one in sound)
    for seed in range(600):
        rng, data = random.Random(seed), bytearray(whole)
        spot = rng.randrange(len(data))
        match rng.randrange(4):
            case 0:
                data[spot] ^= 1 << rng.randrange(8)
            case 1:
                del data[spot:]
            case 2:
                del data[spot : spot + rng.choice([1, 50])]
            case _:
                data[spot:spot] = rng.randbytes(3)
        path.write_bytes(data)
        found, problem = refusal(lambda: list(read_records(path, Tree)))
        if found is None:
            assert re.match(re.escape(str(path)) + ": .* after line [0-4]( |;)", problem or ""), seed
        else:
            assert found == sound[: len(found)], seed
        tally["refused" if found is None else "read"] += 1
    assert tally["refused"] > 500


@pytest.mark.parametrize(
    ("kind", "at", "value"),
    [
        *(("tree", ("steps", 2, "reward"), value) for value in (b"NaN", b"Infinity", b"1e400", b"1e30", b"-1e30")),
        *(("tree", ("steps", 2, "logprobs", 1), value) for value in (b"NaN", b"-1e400", b"-1e30", b"0.1")),
        *(("tree", ("steps", 7, "moves", 1, "reward"), value) for value in (b"NaN", b"1e30")),
        *(("tree", ("steps", 2, "value"), value) for value in (b"NaN", b"-1e30")),
        *(("tree", ("steps", 2, "token_ids", 0), value) for value in (b"-1", str(2**70).encode(), b"0.5")),
        *(("credit", ("steps", 0, "advantage"), value) for value in (b"NaN", b"1e400", b"-1e30")),
        *(("credit", ("steps", 0, "weight"), value) for value in (b"NaN", b"-1", b"1e30")),
        *(("credit", ("steps", 0, "step"), value) for value in (b"-1", b"1e3")),
        *(
            ("episode", (name,), value)
            for name in ("tokens", "sample", "ledger")
            for value in (b"-1", str(2**70).encode())
        ),
        ("episode", ("score",), b"1e30"),
        ("tree", ("ledger", "steps"), b"-1"),
        ("tree", ("steps", 1, "outcome"), b'"won"'),
        ("tree", ("steps", 1, "response"), b'"\xff"'),
        ("tree", ("steps", 1, "response"), b'"\\ud800"'),
        ("tree", ("task", "id"), b"7"),
        ("tree", ("instruction",), b"[" * DEEP),
        ("train-metrics", ("loss",), b"NaN"),
        ("sft-metrics", ("loss",), b"null"),
    ],
)
def test_an_absurd_value_is_refused_with_its_path(kind: str, at: tuple[Any, ...], value: bytes, tmp_path: Path) -> None:
    sound = msgspec.json.encode(RECORDS[kind])
    bad = replaced(msgspec.json.decode(sound), at, value)
    path = tmp_path / "some.jsonl"
    path.write_bytes(sound + b"\n\n" + bad + b"\n" + sound + b"\n")
    with pytest.raises(DataError) as caught:
        list(read_numbered(path, type_of(kind)))
    field = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in at)
    assert str(caught.value).startswith(f"{path}:3: ")
    assert str(caught.value).endswith(f" - at `${field}`")


@pytest.mark.parametrize("method", OF_OUTCOMES)
def test_the_largest_rewards_leave_credit_finite(method: str) -> None:
    largest = tree()
    for number, step in enumerate(largest.steps):
        step.reward = 1e9 if number % 2 else -1e9
        step.score = step.reward
    assert give_credit(method, largest) is not None


def test_an_empty_file_holds_no_record_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "trees.jsonl"
    for data in (b"", b"\n\n", b" \r\n", b'{"task":'):
        path.write_bytes(data)
        assert list(read_records(path, Tree)) == []
        (finding,) = check(path)
        assert finding.problem.startswith(f"{path}: holds no complete record")
        assert finding.problem.endswith("write it again")
