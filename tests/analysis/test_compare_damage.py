"""agentcli compare on damaged files: the place, what is wrong and what to type, in one line."""

from collections.abc import Callable
from pathlib import Path

import pytest
from agentcli.records.types import SCHEMA_VERSION
from compared_runs import refused
from older_runs import without_checksums

EPISODES, SUMMARY, TREES = "b/evaluation/test.jsonl", "b/evaluation/test.json", "b/trees.jsonl"
VERSION = b'_version": %d' % SCHEMA_VERSION
AGAIN = "go on with: agentcli eval b --split test --label test --resume"


def lines(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[bytes], bytes]:
    return lambda data: b"".join(change(data.splitlines(keepends=True)))


def third(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    """The first `old` of the third line is `new`."""
    return lines(lambda rows: [*rows[:2], rows[2].replace(old, new, 1), *rows[3:]])


@pytest.mark.parametrize(
    ("path", "change", "said"),
    [
        (
            EPISODES,
            lambda data: data[:-30],
            (f"{EPISODES}: holds 11 episodes, not the 12 of test.json", AGAIN),
        ),
        (EPISODES, lambda data: data[:-30] + b"\xc3", (f"{EPISODES}: holds 11 episodes, not the 12", AGAIN)),
        (EPISODES, lambda data: b"", (f"{EPISODES}: holds 0 episodes, not the 12", AGAIN)),
        (EPISODES, lambda data: data + data, (f"{EPISODES}: holds 24 episodes, not the 12", AGAIN)),
        (EPISODES, lines(lambda rows: rows[::-1]), (f"{EPISODES}: its episodes are not those of the tasks", AGAIN)),
        (EPISODES, lines(lambda rows: [rows[0][:50] + b"\n", *rows[1:]]), (f"{EPISODES}:1: ",)),
        (EPISODES, third(b"test/", b"t\xc3/"), (f"{EPISODES}:3: not UTF-8 (byte ", "$.task")),
        (EPISODES, third(b'"task"', b'"tsak"'), (f"{EPISODES}:3: ", "unknown field `tsak`")),
        (EPISODES, third(b'"score":', b'"score":NaN,"x":'), (f"{EPISODES}:3: ", "$.score")),
        (EPISODES, third(b'"steps":', b'"steps":-'), (f"{EPISODES}:3: ", "$.steps")),
        (SUMMARY, lambda data: data[:300], (f"{SUMMARY}: ",)),
        (SUMMARY, lambda data: b"", (f"{SUMMARY}: ",)),
        (SUMMARY, lambda data: data.replace(b"sha256", b"sha"), (f"{SUMMARY}: ", "unknown field `sha` - at `$.panel`")),
        (
            SUMMARY,
            lines(lambda rows: [row for row in rows if b'"split"' not in row]),
            ("missing required field `split`",),
        ),
        (SUMMARY, lambda data: data.replace(b'"seed"', b'"sed"'), (f"{SUMMARY}: ", "unknown field `sed` - at `$`")),
        (SUMMARY, lambda data: data.replace(b'"low"', b'"lw"', 1), (f"{SUMMARY}: ", "`lw` - at `$.success`")),
        (SUMMARY, lambda data: data.replace(b'"score"', b'"scr"'), (f"{SUMMARY}: ", "unknown field `scr`")),
        (SUMMARY, lambda data: data.replace(b'"wilson"', b'"wlsn"', 1), (f"{SUMMARY}: ", "$.success.interval")),
        (SUMMARY, lambda data: data.replace(b'"truncated"', b'"trncated"', 1), (f"{SUMMARY}: ", "$.outcomes")),
        (SUMMARY, lambda data: data.replace(VERSION, b'_version": 99'), (f"{SUMMARY}: schema_version is 99",)),
        (TREES, lambda data: data[:-30], (f"{TREES}: holds 11 trees, not the 12", "agentcli rollout --resume -o b")),
        (TREES, lambda data: b"", (f"{TREES}: holds 0 trees, not the 12", "agentcli rollout --resume -o b")),
        (TREES, lines(lambda rows: rows[::-1]), (f"{TREES}: its trees are not those of the tasks", "--resume -o b")),
        (TREES, third(b'"leaves":', b'"lvs":'), (f"{TREES}:3: ", "unknown field `lvs`")),
        (TREES, third(b'"method":', b'"mthd":'), (f"{TREES}:3: ", "missing required field `method`")),
    ],
)
@pytest.mark.parametrize("first", [False, True])
def test_a_damaged_file_is_named_in_one_line(
    runs: tuple[Path, Path], path: str, change: Callable[[bytes], bytes], said: tuple[str, ...], first: bool
) -> None:
    Path(path).write_bytes(change(Path(path).read_bytes()))
    # With checksums a changed file is refused before anybody looks at what is in it.
    without_checksums(Path("b"))
    line = refused(*(("b", "a") if first else ("a", "b")), code=3)
    for part in said:
        assert part in line


@pytest.mark.parametrize("path", [EPISODES, SUMMARY, TREES, "b/manifest.json"])
def test_a_folder_in_the_place_of_a_file(runs: tuple[Path, Path], path: str) -> None:
    Path(path).unlink()
    Path(path).mkdir()
    line = refused("a", "b", code=3)
    assert f"{path}: cannot be read" in line
    assert "(Is a directory)" in line
