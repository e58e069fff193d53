"""Damaged and hostile files of other programs: one line that names file, line and field, and says what to do."""

import json
import os
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest
import zstandard
from agentcli import read_trees
from agentcli.records.foreign import inspect_logs, rollouts
from command_line import agentcli
from foreign import FORMATS, unpacked
from refusal import refused

CHAT = {"messages": [{"role": "user", "content": "go"}, {"role": "assistant", "content": "gone"}], "reward": 1}
NODES = [
    {"message": {"role": "user", "content": "go"}, "token_ids": [1], "mask": [False]},
    {
        "parent": 0,
        "message": {"role": "assistant", "content": "gone"},
        "sampled": True,
        "token_ids": [2, 3],
        "mask": [False, True],
        "logprobs": [-0.5],
    },
]

pytestmark = pytest.mark.usefixtures("empty_folder")


def episode(nodes: list[dict[str, Any]] = NODES, **trace: Any) -> dict[str, Any]:
    rewards = {"won": {"score": 1.0, "weight": 2.0}}
    return {"task": {"key": "t"}, "traces": [{"agent": {}, "nodes": nodes, "rewards": rewards, "ok": True, **trace}]}


def changed(position: int, **fields: Any) -> dict[str, Any]:
    """An episode with other fields in one node."""
    return episode([node | fields if n == position else node for n, node in enumerate(NODES)])


def log(**sample: Any) -> dict[str, Any]:
    scores = {"won": {"value": "C"}, "style": {"value": {"a": 0.25}}}
    return {"eval": {"task": "walk"}, "samples": [{"id": 1, "messages": CHAT["messages"], "scores": scores, **sample}]}


def attempt(form: str, *words: str) -> Any:
    return agentcli("import", "file", "--from", form, "-o", "runs/i", "-q", *words)


def refused_for(form: str, content: bytes | dict[str, Any], names: tuple[str, ...], *words: str) -> None:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    Path("file").write_bytes(data)
    refused(attempt(form, *words), 3, ("file", *names), ";")
    assert not Path("runs/i/trees.jsonl").exists()


def test_the_samples_of_these_tests_are_sound() -> None:
    for form, content in (("messages", CHAT), ("verifiers", episode()), ("inspect", log())):
        Path("file").write_text(json.dumps(content), encoding="utf-8")
        assert attempt(form, "--overwrite").code == 0


@pytest.mark.parametrize(
    ("form", "content", "names"),
    [
        ("messages", b"", ("holds no response",)),
        ("messages", b'{"x": ' + b"[" * 100_000, (":1", "nested too deeply")),
        ("messages", b'{"messages": [{"role": "user", "co', (":1", "$.messages[0]")),
        ("messages", b"\xff\n", (":1", "not UTF-8")),
        ("messages", b"\n" + json.dumps(CHAT | {"reward": float("nan")}).encode(), (":2", "$.reward")),
        ("messages", CHAT | {"reward": "1"}, (":1", "$.reward")),
        ("messages", CHAT | {"reward": 1e300}, (":1", "$.reward")),
        ("messages", {"messages": CHAT["messages"]}, (":1", "reward")),
        ("messages", CHAT | {"messages": "hi"}, (":1", "$.messages")),
        ("messages", CHAT | {"messages": [{"role": "wizard"}]}, (":1", "$.messages[0].role")),
        ("messages", CHAT | {"messages": [{"role": "user", "content": 1}]}, (":1", "$.messages[0].content")),
        ("messages", CHAT | {"steps": [-1]}, (":1", "$.steps[0]")),
        ("messages", CHAT | {"steps": [0, 1]}, (":1", "steps", "1 responses")),
        ("messages", CHAT | {"states": ["a"]}, (":1", "states", "1 responses")),
        ("messages", CHAT | {"actions": []}, (":1", "actions", "1 responses")),
        ("messages", CHAT | {"validity": ["odd"]}, (":1", "$.validity[0]")),
        ("messages", CHAT | {"validity": ["malformed"]}, (":1", "validity", "null")),
        ("messages", CHAT | {"success": "yes"}, (":1", "$.success")),
        ("messages", CHAT | {"group": [1]}, (":1", "$.group")),
        ("verifiers", CHAT, (":1", "`task`")),
        ("verifiers", changed(1, parent=1), (":1", "traces[0].nodes[1].parent")),
        ("verifiers", changed(0, parent=1), (":1", "traces[0].nodes[0].parent")),
        ("verifiers", changed(1, parent=7), (":1", "traces[0].nodes[1].parent")),
        ("verifiers", changed(1, parent=-1), (":1", "$.traces[0].nodes[1].parent")),
        ("verifiers", changed(1, mask=[True, False]), (":1", "traces[0].nodes[1].mask")),
        ("verifiers", changed(1, mask=[True]), (":1", "traces[0].nodes[1].mask")),
        ("verifiers", changed(1, logprobs=[-1.0, -1.0]), (":1", "traces[0].nodes[1].logprobs")),
        ("verifiers", changed(1, logprobs=[0.5]), (":1", "$.traces[0].nodes[1].logprobs[0]")),
        ("verifiers", changed(1, token_ids=["a"]), (":1", "$.traces[0].nodes[1].token_ids[0]")),
        ("verifiers", episode(rewards={"won": {"score": "1"}}), (":1", "$.traces[0].rewards[...].score")),
        ("verifiers", episode(calls=[{"sampling": {"temperature": -1}}]), (":1", "calls[0].sampling.temperature")),
        ("verifiers", episode(calls=[{"sampling": {"temperature": 1e300}}]), (":1", "calls[0].sampling.temperature")),
        ("verifiers", episode(nodes=NODES[:1] * 5000), (":1", "traces[0].nodes", "4096")),
        ("verifiers", episode(nodes=NODES[:1]), ("holds no response",)),
        ("inspect", b"PK\x03\x04 torn", ("no sound zip",)),
        ("inspect", {"samples": []}, ("`eval`",)),
        ("inspect", log(messages=7), ("$.samples[0].messages",)),
        ("inspect", log(scores={"won": {"value": "great"}}), ("sample 1", "scores.won")),
        ("inspect", log(scores={"won": {"value": [1]}}), ("sample 1", "scores.won")),
        ("inspect", log(scores={"won": {"value": 10**400}}), ("sample 1", "scores.won")),
        ("inspect", log(scores={"won": {"value": 10**400}}, x=float("nan")), ("sample 1", "scores.won")),
        ("inspect", log(id="\ud800", x=float("nan")), ("surrogates",)),
        ("inspect", b'{"eval": {}, "x": NaN, "a": ' + b"[" * 100_000, ("recursion",)),
        ("inspect", b'{"eval": {}, "x": NaN, "samples": [{"id": []}]}', ("$.samples[0].id",)),
    ],
)
def test_damage_is_named(form: str, content: bytes | dict[str, Any], names: tuple[str, ...]) -> None:
    refused_for(form, content, names)


def test_a_field_that_is_null_is_one_that_is_missing() -> None:
    """Tables, of which many chats are made, have every field in every part."""
    parts = [{"type": "image_url", "image_url": {}, "text": None}, {"type": "text", "text": "go", "reasoning": None}]
    calls = [{"id": "1", "function": {"name": "walk", "arguments": None}, "name": None, "arguments": None}]
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": None, "tool_calls": calls}]
    whole = json.dumps(CHAT | {"messages": messages})
    Path("file").write_text(whole, encoding="utf-8")
    assert attempt("messages").code == 0
    Path("file").write_text(json.dumps(without_null(json.loads(whole))), encoding="utf-8")
    first = Path("runs/i/trees.jsonl").read_bytes()
    assert attempt("messages", "--overwrite").code == 0
    assert Path("runs/i/trees.jsonl").read_bytes() == first
    assert b"walk" in first


def without_null(value: Any) -> Any:
    if isinstance(value, list):
        return [without_null(one) for one in value]
    if isinstance(value, dict):
        return {key: without_null(one) for key, one in value.items() if one is not None}
    return value


def test_another_score_can_be_named() -> None:
    refused_for("inspect", log(), ("no nothing", "--score won, style.a"), "--score", "nothing")
    refused_for("inspect", log(), ("no style;", "style.a"), "--score", "style")
    Path("file").write_text(json.dumps(log()), encoding="utf-8")
    assert attempt("inspect", "--score", "style.a").code == 0
    (tree,) = read_trees(Path("runs/i"))
    assert tree.steps[-1].reward == 0.25


def test_an_infinite_score_is_no_number() -> None:
    refused_for("inspect", log(scores={"won": {"value": float("inf")}}), ("scores.won: Infinity is no number",))


def test_a_log_that_unpacks_to_more_than_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked(Path())
    monkeypatch.setattr(inspect_logs, "LARGEST_LOG", 2000)
    refused_for("inspect", Path("log.eval").read_bytes(), ("unpacks to more than", "leave samples out"))


def test_a_file_has_to_be_named_in_utf_8() -> None:
    refused(agentcli("import", "--from", "messages", "-o", "runs/i"), 2, names="agentcli import FILE")
    name = os.fsdecode(b"\xff.jsonl")
    Path(name).write_text(json.dumps(CHAT), encoding="utf-8")
    refused(agentcli("import", name, "--from", "messages", "-o", "runs/i"), 2, names="not UTF-8", remedy="another name")
    assert not Path("runs").exists()


def test_steps_that_contradict_each_other_are_refused() -> None:
    other = CHAT | {"messages": [CHAT["messages"][0], {"role": "assistant", "content": "away"}]}
    rows = [row | {"group": "g", "steps": [0]} for row in (CHAT, other)]
    refused_for("messages", "\n".join(map(json.dumps, rows)).encode(), (":2", "steps[0]", "file:1"))


@pytest.mark.parametrize("other", [{"messages": ["come"]}, {"states": ["c", "b", "b"]}])
def test_a_step_that_is_shared_was_taken_after_the_same(other: dict[str, Any]) -> None:
    """Otherwise the prompt or the state of the second trajectory would be lost without a word."""
    row = {"messages": ["go"], "states": ["a", "b", "b"], "group": "g", "reward": 1}
    rows = []
    for steps, fields in (([0, 1], row), ([0, 2], row | other)):
        opening = {"role": "user", "content": fields["messages"][0]}
        rows.append(fields | {"messages": [opening, *CHAT["messages"][1:] * 2], "steps": steps})
    refused_for("messages", "\n".join(map(json.dumps, rows)).encode(), (":2", "steps[0]", "file:1"))


@pytest.mark.parametrize("form", FORMATS)
def test_too_large_a_record_or_tree_is_refused(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (unpacked(tmp_path) / FORMATS[form]).rename("file")
    monkeypatch.setattr(rollouts, "LARGEST_TREE", 100)
    refused(attempt(form), 3, ("file", "100 characters"), "leave the group out")
    monkeypatch.setattr(rollouts, "LARGEST_RECORD", 100)
    refused(attempt(form), 3, ("file", "larger than"), "leave the")


def zipped(method: int, packed: bytes, content: bytes) -> None:
    """A zip as Inspect writes one, with `packed` as its only sample."""
    name = b"samples/1_epoch_1.json"
    sizes = struct.pack("<3I2H", zlib.crc32(content), len(packed), len(content), len(name), 0)
    fields = struct.pack("<5H", 20, 0, method, 0, 0x21) + sizes
    local = b"PK\x03\x04" + fields + name + packed
    central = b"PK\x01\x02" + struct.pack("<H", 20) + fields + bytes(14) + name
    end = b"PK\x05\x06" + struct.pack("<4H2IH", 0, 0, 1, 1, len(central), len(local), 0)
    Path("file").write_bytes(local + central + end)


SAMPLE = json.dumps(log()["samples"][0]).encode()


def test_every_compression_of_a_zip_is_read() -> None:
    frames = b"".join(zstandard.compress(part) for part in (SAMPLE[:40], SAMPLE[40:]))
    squeeze = zlib.compressobj(wbits=-15)
    deflated = squeeze.compress(SAMPLE) + squeeze.flush()
    for method, packed in ((0, SAMPLE), (8, deflated), (93, frames)):
        zipped(method, packed, SAMPLE)
        assert attempt("inspect", "--overwrite").code == 0, method


def test_a_bomb_in_a_zip_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollouts, "LARGEST_RECORD", 2**20)
    zeros = bytes(2**26)
    squeeze = zlib.compressobj(wbits=-15)
    for method, packed in ((8, squeeze.compress(zeros) + squeeze.flush()), (93, zstandard.compress(zeros))):
        zipped(method, packed, zeros)
        refused(attempt("inspect"), 3, ("file", "samples/1_epoch_1.json", "larger than 1 MiB"), "leave")


@pytest.mark.parametrize(
    ("method", "packed", "said"),
    [(93, b"torn", "unpacked"), (8, b"\xff\xff", "unpacked"), (12, b"?", "method 12"), (0, SAMPLE[:-1], "checksum")],
)
def test_a_damaged_member_of_a_zip_is_named(method: int, packed: bytes, said: str) -> None:
    zipped(method, packed, SAMPLE)
    refused(attempt("inspect"), 3, ("file", "samples/1_epoch_1.json", said), "inspect log convert")


def test_a_real_log_that_was_cut_is_refused(tmp_path: Path) -> None:
    data = (unpacked(tmp_path) / "log.eval").read_bytes()
    refused_for("inspect", data[: len(data) // 2], ("no sound zip",))
    with zipfile.ZipFile("file", "w") as archive:
        archive.writestr("header.json", b'{"eval": {"task": "walk"}}')
    refused(attempt("inspect"), 3, ("file", "holds no response"), ";")


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ((), "--from"),
        (("--from", "verifier"), "verifiers"),
        (("--from", "messages", "--states", "all"), "--states all"),
        (("--from", "messages", "--score", "won"), "--score"),
        (("--from", "messages", "--success", "nan"), "--success"),
    ],
)
def test_options_that_are_no_choice_are_refused(words: tuple[str, ...], names: str) -> None:
    Path("file").write_text(json.dumps(CHAT), encoding="utf-8")
    refused(agentcli("import", "file", *words, "-o", "runs/i"), 2, names)


def test_no_file_and_no_regular_file_are_refused() -> None:
    for form in FORMATS:
        refused(agentcli("import", "none", "--from", form, "-o", "runs/i", "-q"), 3, "none: cannot be read")
        refused(agentcli("import", ".", "--from", form, "-o", "runs/i", "-q"), 3, "cannot be read")
